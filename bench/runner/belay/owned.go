package belay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/bench/trial"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// work runs a worker for a trial that kills it. The worker prints a line when it begins an
// execution; the execution never ends. If r.Rate is 0, the worker names another host as its own, so
// that no process here can prove its death.
func work(ctx context.Context, r trial.Request) error {
	b, err := dial(ctx, r.URL)
	if err != nil {
		return err
	}
	o := worker.Options{TTL: r.TTL, Log: quiet(), Grace: -1}
	if r.Rate == 0 { // with Rate 0, the worker claims to be on another host
		o.Process = belay.Process{Host: "elsewhere", PID: os.Getpid()}
	}
	w := worker.New(b, o)
	worker.Register(w, "endless", func(ctx context.Context, _ trial.Payload) (string, error) {
		fmt.Printf("runs %d\n", time.Now().UnixNano())
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return errors.Join(w.Run(ctx), b.Close())
}

// takeover kills a worker and measures the time until its execution runs on another worker. Without
// a server, on PostgreSQL, each worker has an engine in its own process.
func takeover(ctx context.Context, r trial.Request) (trial.Sample, error) {
	b, err := open(ctx, r)
	if err != nil {
		return trial.Sample{}, err
	}
	r.Role, r.Rate = "work", 0
	if b.server != nil {
		r.URL = b.server.url
	}
	var took []time.Duration
	for range r.N {
		d, err := b.takeover(ctx, r)
		if err != nil {
			return trial.Sample{}, err
		}
		took = append(took, d)
	}
	s := trial.Sample{Times: trial.TimesOf(took)}
	r.Rate = 1
	d, err := b.takeover(ctx, r)
	if err != nil {
		return s, err
	}
	s.Values = map[string]float64{"same_host_ms": float64(d.Microseconds()) / 1000}
	return s, b.close()
}

func (b *bed) takeover(ctx context.Context, r trial.Request) (time.Duration, error) {
	h, err := workflow.Start[string](ctx, b.calls, "endless", trial.Input(0))
	if err != nil {
		return 0, err
	}
	first, err := trial.Spawn(r)
	if err != nil {
		return 0, err
	}
	if _, err := first.Await(ctx, "runs ", patience); err != nil {
		return 0, errors.Join(err, first.Kill())
	}
	second, err := trial.Spawn(r)
	if err != nil {
		return 0, errors.Join(err, first.Kill())
	}
	err = b.present(ctx, 2)
	killed := time.Now()
	err = errors.Join(err, first.Kill())
	var at string
	if err == nil {
		at, err = second.Await(ctx, "runs ", patience)
	}
	if err == nil {
		err = h.Cancel(ctx, "it has run")
	}
	if err := errors.Join(err, second.Stop(patience), b.present(ctx, 0)); err != nil {
		return 0, err
	}
	var nano int64
	if _, err := fmt.Sscan(at, &nano); err != nil {
		return 0, err
	}
	return time.Unix(0, nano).Sub(killed), nil
}

// present waits until there are n workers.
func (b *bed) present(ctx context.Context, n int) error {
	late := time.After(patience)
	for {
		all, err := b.calls.Workers(ctx)
		if err != nil {
			return err
		}
		here := 0
		for _, w := range all {
			if w.State == belay.WorkerOpen {
				here++
			}
		}
		if here == n {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-late:
			return fmt.Errorf("there are %d workers, not %d", here, n)
		}
	}
}

// hold lets 10 workers own N executions that do nothing. It measures how many writes the store gets
// in a heartbeat interval while the workers only send heartbeats, and how much memory the server
// uses.
func hold(ctx context.Context, r trial.Request) (trial.Sample, error) {
	const workers = 10
	b, err := open(ctx, r)
	if err != nil {
		return trial.Sample{}, err
	}
	var running atomic.Int64
	all := make(chan struct{})
	var ends []func() error
	crews := make([]*crew, workers)
	for i := range crews {
		works, end, err := b.connect(ctx)
		if err != nil {
			return trial.Sample{}, err
		}
		ends = append(ends, end)
		w := worker.New(works, worker.Options{Concurrency: (r.N + workers - 1) / workers, Log: quiet(), Grace: -1})
		worker.Register(w, "noop", func(ctx context.Context, _ trial.Payload) (string, error) {
			if running.Add(1) == int64(r.N) {
				close(all)
			}
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		crews[i] = run(ctx, w)
	}
	if _, err := fill(ctx, r, b.calls, 1, 0, r.N); err != nil {
		return trial.Sample{}, err
	}
	select {
	case <-all:
	case <-time.After(patience):
		return trial.Sample{}, fmt.Errorf("%d of %d run", running.Load(), r.N)
	}
	s, err := b.observe(ctx, r.For)
	for _, c := range crews {
		err = errors.Join(err, c.stopWorking())
	}
	for _, end := range ends {
		err = errors.Join(err, end())
	}
	return s, errors.Join(err, b.close())
}

// connect returns a Backend for another worker: a new connection to the server or, without a
// server, the engine in this process.
func (b *bed) connect(ctx context.Context) (_ belay.Backend, end func() error, _ error) {
	if b.server == nil {
		return b.works, func() error { return nil }, nil
	}
	c, err := dial(ctx, b.server.url)
	if err != nil {
		return nil, nil, err
	}
	return c, c.Close, nil
}

// observe measures the writes to the store and the resources of the server for the given duration,
// in which the workers only send heartbeats.
func (b *bed) observe(ctx context.Context, long time.Duration) (trial.Sample, error) {
	s := trial.Sample{Values: make(map[string]float64)}
	beats := long.Seconds() / belay.DefaultHeartbeat.D().Seconds()
	if e, ok := b.calls.(local); ok {
		before := e.Stats()
		pause(ctx, long)
		after := e.Stats()
		s.Values["writes_per_heartbeat"] = float64(after.Commits-before.Commits+after.Marks-before.Marks) / beats
		return s, nil
	}
	u, err := b.usage(ctx, long)
	if err != nil {
		return s, err
	}
	s.Values["server_mb"] = u.memory
	s.Values["server_cpu_percent"] = u.cpu
	s.Values["writes_per_heartbeat"] = u.writes * belay.DefaultHeartbeat.D().Seconds()
	return s, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
