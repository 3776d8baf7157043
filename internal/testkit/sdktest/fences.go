package sdktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// writers is the body of a function in which n goroutines write until a write fails. It records the
// effects and the error of each goroutine.
type writers struct {
	mu      sync.Mutex
	wrote   []time.Duration // the time of each effect
	ends    []error
	saves   atomic.Int32
	stopped chan struct{}
}

func (ws *writers) run(e *env, ctx context.Context, n int) error {
	ws.stopped = make(chan struct{})
	defer close(ws.stopped)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for k := 0; ; k++ {
				if err := workflow.Guard(ctx); err != nil {
					ws.end(err)
					return
				}
				ws.mu.Lock() // the effect of a write: a note of its time
				ws.wrote = append(ws.wrote, time.Since(e.began))
				ws.mu.Unlock()
				if err := workflow.Checkpoint(ctx, fmt.Sprintf("writer %d, %d", i, k)); err != nil {
					ws.end(err)
					return
				}
				ws.saves.Add(1)
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	return errors.Join(ws.ends...)
}

func (ws *writers) end(err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.ends = append(ws.ends, err)
}

func (ws *writers) last() time.Duration {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.wrote) == 0 {
		return 0
	}
	return slices.Max(ws.wrote)
}

// jumping is a clock that can jump while timers stand still, like the clock of a process that was
// stopped and continued.
type jumping struct {
	e    *env
	jump atomic.Int64
}

func (c *jumping) Boottime() time.Duration { return c.e.Boottime() + time.Duration(c.jump.Load()) }

var fences = []testCase{
	{"a worker that is cut off writes nothing once the fence is closed, and its writers get lease_lost", func(e *env) {
		var ws writers
		c := e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			if workflow.Token(ctx)&0xffff > 1 {
				return 2, nil
			}
			return 1, ws.run(e, ctx, 8)
		}))
		id := e.start(nil)
		e.sleep(12 * time.Second)
		c.wire.cut() // the last heartbeat was sent at 10 s, so the fence closes at 20 s
		e.sleep(30 * time.Second)
		if ws.last() >= 20*time.Second {
			e.Errorf("an effect %s after the start", ws.last())
		}
		saved := ws.saves.Load()
		c.wire.set(nil)
		want(e, id, 2)
		<-ws.stopped
		if ws.saves.Load() != saved {
			e.Errorf("%d late checkpoints", ws.saves.Load()-saved)
		}
		wantLost(e, ws.ends, 8)
		e.settle()
	}},

	{"a process stopped past its TTL and continued writes nothing late", func(e *env) {
		// The process's timers have not fired, but its boot-time clock has gone on. The worker
		// reads that clock right before the effect.
		var ws writers
		clock := &jumping{e: e}
		c := e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			if workflow.Token(ctx)&0xffff > 1 {
				return 2, nil
			}
			return 1, ws.run(e, ctx, 8)
		}), func(o *worker.Options) { o.Clock = clock })
		id := e.start(nil)
		e.sleep(12 * time.Second)
		all, err := e.b.Workers(e.ctx)
		if err != nil || len(all) != 1 {
			e.Fatal(all, err)
		}
		c.wire.set(func(_ context.Context, c call) error { // no heartbeat and no claim arrives
			if c.op == "heartbeat" || c.op == "claim" {
				return errCut
			}
			return nil
		})
		clock.jump.Add(int64(time.Minute))
		stopped := time.Since(e.began)
		before := ws.saves.Load()
		if err := e.b.CloseWorker(e.ctx, all[0].ID); err != nil { // the reaper would do this for an expired session
			e.Fatal(err)
		}
		e.sleep(3 * time.Second)
		if ws.last() > stopped || ws.saves.Load() != before {
			e.Errorf("late effects: last %s, stopped at %s, %d late checkpoints", ws.last(), stopped,
				ws.saves.Load()-before)
		}
		c.wire.set(nil)
		<-ws.stopped
		wantLost(e, ws.ends, 8)
		want(e, id, 2)
	}},

	{"a worker that is cut off for a short time freezes its runs, thaws them, and loses no work", func(e *env) {
		var mu sync.Mutex
		var log []string
		note := func(what string) func() {
			return func() {
				mu.Lock()
				defer mu.Unlock()
				log = append(log, fmt.Sprintf("%s at %s", what, time.Since(e.began).Truncate(time.Second)))
			}
		}
		c := e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			remove := workflow.OnFreeze(ctx, note("freeze"), note("thaw"))
			defer remove()
			return threeSteps(ctx, nil)
		}))
		id := e.start(nil)
		beat := e.beats(c)
		e.sleep(51 * time.Second)
		c.wire.cut()
		e.sleep(11 * time.Second)
		c.wire.set(nil)
		want(e, id, "done")
		e.wantKinds(id, "submitted", "started", "step:step 0", "step:step 1", "step:step 2", "succeeded")
		freeze := "freeze at " + (beat() + 10*time.Second).Truncate(time.Second).String()
		if !slices.Equal(log, []string{freeze, "thaw at 1m2s"}) &&
			!slices.Equal(log, []string{freeze, "thaw at 1m3s"}) &&
			!slices.Equal(log, []string{freeze, "thaw at 1m4s"}) {
			e.Errorf("log %q, want %s", log, freeze)
		}
	}},

	{"a freeze longer than MaxFreeze ends the runs", func(e *env) {
		var cause error
		var ended time.Duration
		c := e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			if workflow.Token(ctx)&0xffff > 1 {
				return 2, nil
			}
			_, err := work(ctx, "work", 3*time.Hour)
			cause, ended = context.Cause(ctx), time.Since(e.began)
			return 1, err
		}), func(o *worker.Options) { o.TTL, o.Heartbeat, o.MaxFreeze = 30*time.Minute, time.Minute, 5*time.Minute })
		id := e.start(nil)
		// The last heartbeat arrives at 60 s. So the fence closes at 21 min, after two thirds of the
		// TTL, and the worker ends the run at 26 min, when the freeze has lasted for MaxFreeze.
		e.sleep(90 * time.Second)
		c.wire.cut()
		e.sleep(28 * time.Minute)
		e.within("end of the work", ended, 26*time.Minute, 26*time.Minute+time.Second)
		if !errors.Is(cause, belay.ErrLeaseLost) {
			e.Errorf("cause %v", cause)
		}
		e.wantState(id, belay.Running) // in the store the session has not expired yet
		c.wire.set(nil)
		want(e, id, 2)
		e.within("end", time.Since(e.began), 29*time.Minute, 30*time.Minute+30*time.Second)
		if e.count(id, "released") != 1 || e.count(id, "lost") != 0 {
			e.Error("not released at once\n" + e.history(id))
		}
	}},

	{"no step begins while the fence is closed", func(e *env) {
		var began []time.Duration
		c := e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			for i := 0; ; i++ {
				err := workflow.Do(ctx, "step", func(ctx context.Context) error {
					began = append(began, time.Since(e.began))
					time.Sleep(time.Second)
					return nil
				}, workflow.Key(i))
				if err != nil {
					return 0, err
				}
			}
		}))
		id := e.start(nil)
		beat := e.beats(c)
		e.sleep(6500 * time.Millisecond)
		c.wire.set(func(_ context.Context, c call) error {
			if c.op == "heartbeat" {
				return errCut // only heartbeats fail; a checkpoint would still arrive
			}
			return nil
		})
		e.sleep(11 * time.Second)
		closed := beat() + 10*time.Second
		if last := began[len(began)-1]; last >= closed || last < closed-2*time.Second {
			e.Errorf("the last step began at %s, the fence closed at %s", last, closed)
		}
		c.crash()
		e.act(id, belay.ActionCancel)
	}},
}

// beats returns a function that says when the last heartbeat of a worker was sent before its connection was cut: its
// fence closes 10 s later, after two thirds of its TTL.
func (e *env) beats(c *crew) func() time.Duration {
	var last atomic.Int64
	c.wire.set(func(_ context.Context, c call) error {
		if c.op == "heartbeat" && !c.done {
			last.Store(int64(time.Since(e.began)))
		}
		return nil
	})
	return func() time.Duration { return time.Duration(last.Load()) }
}

// wantLost checks that n writers have ended with lease_lost.
func wantLost(e *env, ends []error, n int) {
	e.Helper()
	if len(ends) != n {
		e.Errorf("%d of %d writers have ended", len(ends), n)
	}
	for _, err := range ends {
		if !errors.Is(err, belay.ErrLeaseLost) || belay.CodeOf(err) != belay.CodeLeaseLost {
			e.Errorf("a writer got %v, want lease_lost", err)
		}
	}
}
