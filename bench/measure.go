package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the driver of the single commits

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// payload has about the 300 bytes that peers are measured with.
type payload struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

var input = payload{Name: "somebody", Text: strings.Repeat("x", 260)}

// measureCommits is how many single rows of 300 bytes the disk commits in a
// second, one after the other, with the settings of Belay's own store.
func measureCommits(ctx context.Context, dir string) (float64, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "single.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return 0, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, "CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)"); err != nil {
		return 0, err
	}
	insert, err := db.PrepareContext(ctx, "INSERT INTO t (body) VALUES (?)")
	if err != nil {
		return 0, err
	}
	defer insert.Close()
	body := []byte(strings.Repeat("x", 300))
	n, begin := 0, time.Now()
	for time.Since(begin) < 2*time.Second {
		if _, err := insert.ExecContext(ctx, body); err != nil {
			return 0, err
		}
		n++
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}

// bed is a Backend on a fresh data directory with one worker.
type bed struct {
	*embedded.Backend
	dir    string
	stop   context.CancelFunc
	worked chan error
}

// open starts a Backend and a worker that runs fn as workflow "w".
func open(ctx context.Context, dir string, concurrency int, fn func(context.Context, payload) (string, error)) (*bed, error) {
	b, err := embedded.Open(ctx, "sqlite:"+dir)
	if err != nil {
		return nil, err
	}
	d := &bed{Backend: b, dir: dir, worked: make(chan error, 1)}
	w := worker.New(b, worker.Options{Concurrency: concurrency})
	worker.Register(w, "w", fn)
	ctx, d.stop = context.WithCancel(ctx)
	go func() { d.worked <- w.Run(ctx) }()
	return d, nil
}

// close stops the worker, closes the Backend and counts what the store holds.
func (d *bed) close(ctx context.Context) (string, error) {
	d.stop()
	if err := <-d.worked; err != nil {
		return "", err
	}
	if err := d.Backend.Close(); err != nil {
		return "", err
	}
	r, err := embedded.OpenReader(ctx, "sqlite:"+d.dir)
	if err != nil {
		return "", err
	}
	defer r.Close()
	c, err := r.Counts(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("in the store: %d executions succeeded, %d runs, %d checkpoints", c.Executions[belay.Succeeded], c.Runs, c.Checkpoints), nil
}

// measureExecutions is how many no-op executions are submitted one by one and
// worked off in a second, with up to 1,000 in flight.
func measureExecutions(ctx context.Context, dir string, n int) (sample, error) {
	return throughput(ctx, dir, n, 1, func(context.Context, payload) (string, error) { return "", nil })
}

// measureSteps is how many steps, each saved before the next begins, executions
// of ten steps take in a second.
func measureSteps(ctx context.Context, dir string, n int) (sample, error) {
	return throughput(ctx, dir, n, 10, func(ctx context.Context, in payload) (string, error) {
		for i := range 10 {
			_, err := workflow.Step(ctx, "step", func(context.Context) (payload, error) { return in, nil }, workflow.Key(i))
			if err != nil {
				return "", err
			}
		}
		return "", nil
	})
}

const inFlight = 1000

// sample is one run of a measure: units a second, microseconds of processor
// time for each, client included, and what the store holds afterwards.
type sample struct {
	rate, cpu float64
	held      string
}

// throughput submits n executions with at most inFlight not ended, and is over
// when the store has acknowledged the end of the last.
func throughput(ctx context.Context, dir string, n, units int, fn func(context.Context, payload) (string, error)) (sample, error) {
	d, err := open(ctx, dir, inFlight, fn)
	if err != nil {
		return sample{}, err
	}
	begin, cpu := time.Now(), cpuTime()
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make(chan error, inFlight)
	for range inFlight {
		wg.Go(func() {
			for next.Add(1) <= int64(n) {
				h, err := workflow.Start[string](ctx, d, "w", input)
				if err == nil {
					_, err = h.Result(ctx)
				}
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	s := sample{
		rate: float64(n*units) / time.Since(begin).Seconds(),
		cpu:  (cpuTime() - cpu).Seconds() * 1e6 / float64(n*units),
	}
	select {
	case err := <-errs:
		return s, err
	default:
	}
	s.held, err = d.close(ctx)
	return s, err
}

// latency is the time from the call of Start until the function runs.
type latency struct {
	Rate int     `json:"per_s"`
	N    int     `json:"executions"`
	P50  float64 `json:"p50_ms"`
	P95  float64 `json:"p95_ms"`
	P99  float64 `json:"p99_ms"`
	Max  float64 `json:"max_ms"`
}

func measureLatency(ctx context.Context, dir string, rate int, long time.Duration) (latency, error) {
	say("latency at %d/s", rate)
	var mu sync.Mutex
	var all []time.Duration
	began := make(map[string]time.Time)
	d, err := open(ctx, dir, 100, func(_ context.Context, in payload) (string, error) {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		all = append(all, now.Sub(began[in.Name]))
		return "", nil
	})
	if err != nil {
		return latency{}, err
	}
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	total := int(long.Seconds() * float64(rate))
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for i := range total {
		<-tick.C
		in := payload{Name: fmt.Sprint(i), Text: input.Text}
		wg.Go(func() {
			mu.Lock()
			began[in.Name] = time.Now()
			mu.Unlock()
			h, err := workflow.Start[string](ctx, d, "w", in)
			if err == nil {
				_, err = h.Result(ctx)
			}
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return latency{}, *err
	}
	if _, err := d.close(ctx); err != nil {
		return latency{}, err
	}
	slices.Sort(all)
	at := func(p float64) float64 { return float64(all[int(p*float64(len(all)-1))].Microseconds()) / 1000 }
	return latency{Rate: rate, N: len(all), P50: at(.50), P95: at(.95), P99: at(.99), Max: at(1)}, nil
}

// heartbeat is what keeping idle executions owned costs.
type heartbeat struct {
	Running      int     `json:"running"`
	Workers      int     `json:"workers"`
	Interval     string  `json:"interval"`
	Transactions float64 `json:"transactions"`
	Marks        float64 `json:"marks_alone"`
	CPU          float64 `json:"cores"`
}

// measureHeartbeat counts the transactions that keep 1,000 idle running
// executions on 10 workers owned, default settings.
func measureHeartbeat(ctx context.Context, dir string) (heartbeat, error) {
	const workers, each = 10, 100
	say("heartbeats of %d workers with %d idle executions", workers, workers*each)
	b, err := embedded.Open(ctx, "sqlite:"+dir)
	if err != nil {
		return heartbeat{}, err
	}
	var running atomic.Int64
	wctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	for range workers {
		w := worker.New(b, worker.Options{Concurrency: each, Grace: -1})
		worker.Register(w, "w", func(ctx context.Context, _ payload) (string, error) {
			running.Add(1)
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		wg.Go(func() { _ = w.Run(wctx) })
	}
	for range workers * each {
		if _, err := workflow.Start[string](ctx, b, "w", input); err != nil {
			return heartbeat{}, err
		}
	}
	for running.Load() < workers*each {
		time.Sleep(10 * time.Millisecond)
	}
	interval := belay.DefaultHeartbeat.D()
	before, cpu := b.Stats(), cpuTime()
	const intervals = 4
	time.Sleep(intervals * interval)
	after := b.Stats()
	h := heartbeat{
		Running: workers * each, Workers: workers, Interval: interval.String(),
		Transactions: float64(after.Commits-before.Commits+after.Marks-before.Marks) / intervals,
		Marks:        float64(after.Marks-before.Marks) / intervals,
		CPU:          (cpuTime() - cpu).Seconds() / (intervals * interval).Seconds(),
	}
	stop()
	wg.Wait()
	return h, b.Close()
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
