package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/httpapi"
)

// BenchmarkCommitBesideWatchers measures how long an owner waits for a commit on SQLite in two cases: no client watches
// the execution, or a thousand clients watch it and a tenth of them read slowly. The rounds of the two cases alternate.
// The p99 with watchers should be at most 1.2 times the p99 without watchers.
func BenchmarkCommitBesideWatchers(b *testing.B) {
	const (
		watchers = 1000
		rounds   = 6
		commits  = 400
		warm     = 50
		every    = 5 * time.Millisecond
	)
	back, err := embedded.Open(b.Context(), "sqlite:"+b.TempDir(), embedded.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		b.Fatal(err)
	}
	defer back.Close()
	s := serveOn(b, back, httpapi.Options{Rate: httpapi.Rate{PerSecond: -1}, WriteTimeout: time.Minute})
	// the key says whether the client is slow
	clients := map[bool]*http.Client{false: {Transport: &http.Transport{}}, true: narrowClient()}
	var alone, watched []time.Duration
	var usedAlone, usedWatched time.Duration
	for b.Loop() {
		for range rounds {
			o := own(b, back)
			o.pace(warm, every)
			began := cpu()
			alone = append(alone, o.pace(commits, every)...)
			usedAlone += cpu() - began
			o = own(b, back)
			ctx, leave := context.WithCancel(b.Context())
			var done, joined sync.WaitGroup
			for i := range watchers {
				joined.Add(1)
				done.Go(func() { s.watch(ctx, clients[i%10 == 0], o.path, i%10 == 0, joined.Done) })
			}
			joined.Wait()
			o.pace(warm, every)
			began = cpu()
			watched = append(watched, o.pace(commits, every)...)
			usedWatched += cpu() - began
			leave()
			done.Wait()
		}
	}
	p50, p99 := quantiles(alone)
	w50, w99 := quantiles(watched)
	b.ReportMetric(float64(p50.Microseconds()), "p50-alone-µs")
	b.ReportMetric(float64(p99.Microseconds()), "p99-alone-µs")
	b.ReportMetric(float64(w50.Microseconds()), "p50-watched-µs")
	b.ReportMetric(float64(w99.Microseconds()), "p99-watched-µs")
	b.ReportMetric(float64(w99)/float64(p99), "p99-ratio")
	b.ReportMetric(float64(usedAlone.Milliseconds())/rounds, "cpu-alone-ms/round")
	b.ReportMetric(float64(usedWatched.Milliseconds())/rounds, "cpu-watched-ms/round")
}

// pace commits at a steady rate and returns how long each commit took.
func (o *owner) pace(n int, every time.Duration) []time.Duration {
	tick := time.NewTicker(every)
	defer tick.Stop()
	out := make([]time.Duration, n)
	for i := range out {
		<-tick.C
		began := time.Now()
		o.save()
		out[i] = time.Since(began)
	}
	return out
}

// watch reads a stream until ctx ends; if slow is set, it reads a few bytes at a time.
func (s *server) watch(ctx context.Context, c *http.Client, path string, slow bool, joined func()) {
	watch, err := s.open(ctx, c, path+"/events")
	joined()
	if err != nil {
		return
	}
	defer watch.body.Close()
	if !slow {
		_, _ = io.Copy(io.Discard, watch.in)
		return
	}
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	for little := make([]byte, 512); err == nil; _, err = watch.in.Read(little) {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

// cpu is how much processor time this process has used.
func cpu() time.Duration {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func quantiles(d []time.Duration) (p50, p99 time.Duration) {
	slices.Sort(d)
	return d[len(d)/2], d[len(d)*99/100]
}

// nothing is a Backend that answers at once, so that a benchmark measures the API alone.
type nothing struct{ belay.Backend }

func (nothing) Claim(context.Context, belay.ClaimRequest) (belay.ClaimReply, error) {
	return belay.ClaimReply{}, nil
}

func (nothing) Heartbeat(context.Context, belay.Heartbeat) (belay.HeartbeatReply, error) {
	return belay.HeartbeatReply{ExpiresIn: 15 * time.Second}, nil
}

func (nothing) Execution(context.Context, belay.ExecutionID) (belay.Execution, error) {
	return belay.Execution{Workflow: "w", State: belay.Pending}, nil
}

func (nothing) Signal(context.Context, belay.SignalRequest) error { return nil }

func (nothing) Save(context.Context, belay.Save) (int64, error) { return 1, nil }

func (nothing) Settle(context.Context, belay.Settlement) error { return nil }

func (nothing) Submit(_ context.Context, s ...belay.Submission) ([]belay.Submitted, error) {
	return make([]belay.Submitted, len(s)), nil
}

// BenchmarkRoutes measures what a request costs without the work of the Backend: the routes that
// workers use all the time, and an ordinary route for comparison.
func BenchmarkRoutes(b *testing.B) {
	const worker = "/v1/workers/wk_0000000000000000000000000z"
	held := strings.Repeat(`{"execution": "ex_0000000000000000000000000z", "token": 1, "idle_ms": 5},`, 100)
	save := `{"save": {"lease": {"execution": "ex_0000000000000000000000000z", "token": 1, "lease_id": "ls_0000000000000000000000000000000000000000000000000001"},
		"op": "0000000000000000000000000z", "kind": "step", "key": "fetch", "data": {"result": "` + strings.Repeat("x",
		200) + `"}}},`
	for _, r := range []struct{ name, method, path, body string }{
		{"claim", "POST", worker + "/claim", `{"number": 1, "slots": 10, "wait_ms": 20000}`},
		{"heartbeat of 100", "POST", worker + "/heartbeat", `{"claim_seen": 1, "holds": [` + strings.TrimSuffix(held,
			",") + `]}`},
		{"batch of 1", "POST", "/v1/batch", `{"ops": [` + strings.TrimSuffix(save, ",") + `]}`},
		{"batch of 100", "POST", "/v1/batch", `{"ops": [` + strings.TrimSuffix(strings.Repeat(save, 100), ",") + `]}`},
		{"signal", "POST", somewhere + "/signal", `{"name": "go", "payload": {"n": 1}}`},
		{"get", "GET", somewhere, ``},
	} {
		b.Run(r.name, func(b *testing.B) {
			h := httpapi.New(nothing{}, httpapi.Options{Rate: httpapi.Rate{PerSecond: -1}})
			b.ReportAllocs()
			for b.Loop() {
				req := httptest.NewRequest(r.method, r.path, strings.NewReader(r.body))
				req.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, req)
				if w.Code >= 300 {
					b.Fatal(fmt.Sprint(w.Code, w.Body))
				}
				_, _ = io.Copy(io.Discard, w.Body)
			}
		})
	}
}
