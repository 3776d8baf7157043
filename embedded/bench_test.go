package embedded_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/testkit/pgtest"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// inFlight is how many executions are in progress at the same time.
const inFlight = 1000

var payload = json.RawMessage(`{"text":"` + strings.Repeat("x", 290) + `"}`)

// bed is a test bed: an engine on an empty database of its own, with a worker.
type bed struct {
	*embedded.Backend
	b    *testing.B
	srv  *pgtest.Server
	stop func()

	here, there time.Duration
}

// newBed opens the database and calls prepare; then it starts the worker and the timers. The worker
// calls the function each once for every execution of the workflow "noop".
func newBed(b *testing.B, prepare func(*embedded.Backend), each func()) *bed {
	b.Helper()
	srv := pgtest.Shared(b)
	quiet := slog.New(slog.NewTextHandler(b.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	backend, err := embedded.Open(b.Context(), srv.Database(b), embedded.Logger(quiet))
	if err != nil {
		b.Fatal(err)
	}
	prepare(backend)
	w := worker.New(backend, worker.Options{Concurrency: inFlight, Log: quiet})
	worker.Register(w, "noop", func(context.Context, json.RawMessage) (string, error) {
		each()
		return "", nil
	})
	worker.Register(w, "steps", func(ctx context.Context, in json.RawMessage) (string, error) {
		for i := range 10 {
			if _, err := workflow.Step(ctx, "step", func(context.Context) (json.RawMessage, error) {
				return in, nil
			}, workflow.Key(i)); err != nil {
				return "", err
			}
		}
		return "", nil
	})
	x := &bed{Backend: backend, b: b, srv: srv}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	b.ResetTimer()
	x.here, x.there = ownCPU(b), srv.CPU()
	go func() { ended <- w.Run(ctx) }()
	x.stop = func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}
	return x
}

// report stops the worker and the engine, and reports the cost of each of n units. It measures
// processor time in this process and in the database, which is more reliable than elapsed time on a
// shared machine.
func (x *bed) report(n int, unit string) {
	x.b.Helper()
	x.stop()
	x.b.StopTimer()
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(n) }
	x.b.ReportMetric(float64(n)/x.b.Elapsed().Seconds(), unit+"/s")
	x.b.ReportMetric(each(ownCPU(x.b)-x.here), "µs-here/"+unit)
	x.b.ReportMetric(each(x.srv.CPU()-x.there), "µs-there/"+unit)
	s := x.Stats()
	x.b.ReportMetric(float64(s.Commands)/float64(max(1, s.Commits)), "commands/commit")
	if err := x.Close(); err != nil {
		x.b.Error(err)
	}
}

func ownCPU(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkDrain runs executions that were submitted before the measurement began.
func BenchmarkDrain(b *testing.B) {
	var begun atomic.Int64
	all := make(chan struct{})
	x := newBed(b, func(backend *embedded.Backend) {
		for left := b.N; left > 0; left -= 1000 {
			s := make([]belay.Submission, min(left, 1000))
			for i := range s {
				s[i] = belay.Submission{Workflow: "noop", Input: payload}
			}
			if _, err := backend.Submit(b.Context(), s...); err != nil {
				b.Fatal(err)
			}
		}
	}, func() {
		if begun.Add(1) == int64(b.N) {
			close(all)
		}
	})
	<-all
	x.report(b.N, "executions")
}

// BenchmarkFlow submits executions, runs them and awaits each.
func BenchmarkFlow(b *testing.B) { flow(b, "noop", 1, "executions") }

// BenchmarkSteps submits, runs and awaits executions of ten steps.
func BenchmarkSteps(b *testing.B) { flow(b, "steps", 10, "steps") }

func flow(b *testing.B, name string, each int, unit string) {
	x := newBed(b, func(*embedded.Backend) {}, func() {})
	var next atomic.Int64
	var wg sync.WaitGroup
	for range inFlight {
		wg.Go(func() {
			for int(next.Add(int64(each))) <= b.N {
				h, err := workflow.Start[string](b.Context(), x.Backend, name, payload)
				if err == nil {
					_, err = h.Result(b.Context())
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	x.report(b.N, unit)
}
