package belaytest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/worker"
)

// Kit is a Backend in memory with one worker on it, which can be made to die.
type Kit struct {
	// Backend is where executions are submitted, signalled and looked at.
	Backend belay.Backend

	engine   *engine.Engine
	register func(*worker.Worker)
	change   []func(*worker.Options)
	opened   time.Time
	number   int

	// Of the worker that is there now.
	mu   sync.Mutex
	wire *wire
	stop context.CancelFunc
	done chan struct{}
	err  error // of its Run, once done is closed
}

// Nothing has to be noticed by a poll or a TTL here, and in virtual time each
// costs real time.
const (
	slowPoll = time.Hour
	ttl      = time.Hour
)

// Open opens a Backend and starts a worker that runs what register registers,
// with the options that change makes of the defaults. register is called again
// for each worker that follows. Close ends both.
func Open(register func(w *worker.Worker), change ...func(o *worker.Options)) *Kit {
	e := engine.New(memory.New(time.Now), engine.Options{Log: slog.New(slog.DiscardHandler), SlowPoll: slowPoll})
	k := &Kit{Backend: e, engine: e, register: register, change: change, opened: time.Now()}
	k.start()
	return k
}

// Close stops the worker in order and closes the Backend. It fails if a workflow
// did not end when it was told to.
func (k *Kit) Close() error {
	err := k.end()
	if cerr := k.Backend.Close(); err == nil {
		err = cerr
	}
	return err
}

// CrashBefore lets the worker die when it is about to save its n-th checkpoint
// from now on, counted from 1: the step, or the wait, has been carried out and
// is not saved, so the next worker carries it out again.
func (k *Kit) CrashBefore(n int) { k.current().arm(n, false) }

// CrashAfter lets the worker die right after its n-th checkpoint from now on was
// saved: the next worker goes on from there.
func (k *Kit) CrashAfter(n int) { k.current().arm(n, true) }

// Crash lets the worker die now. Its functions see their context end with
// belay.ErrLeaseLost as the cause, and nothing that they or the worker do
// reaches the Backend any more.
func (k *Kit) Crash() { k.current().crash() }

// Restart waits until the worker has died, if it has not yet, and starts another
// one. The executions of the dead one are lost at once, with a loss charged, and
// go on.
func (k *Kit) Restart() {
	<-k.current().crashed
	_ = k.end() // nobody is left to hear it
	k.start()
}

// Steal takes an execution from its owner, as an operator would. Whoever claims
// it next has a newer token; the old owner is refused from now on, and hears of
// it with its next write or heartbeat. CodeConflict if nobody owns it.
func (k *Kit) Steal(ctx context.Context, id belay.ExecutionID) error {
	_, err := k.Backend.Control(ctx, belay.Control{Execution: id, Action: belay.ActionSteal, Actor: "belaytest"})
	return err
}

// Advance lets d pass and waits until all that this sets off has been done. It
// works inside of a synctest bubble only, and panics elsewhere.
func (k *Kit) Advance(d time.Duration) {
	synctest.Wait()
	<-time.After(d)
	synctest.Wait()
}

// Boottime is the clock of the worker's fence: the time that the store has too.
func (k *Kit) Boottime() time.Duration { return time.Since(k.opened) }

func (k *Kit) current() *wire {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.wire
}

// start starts a worker.
func (k *Kit) start() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.number++
	o := worker.Options{
		Name: fmt.Sprintf("belaytest %d", k.number), TTL: ttl, Clock: k, Log: slog.New(slog.DiscardHandler),
		Process: belay.Process{Host: "belaytest", PID: k.number},
	}
	for _, f := range k.change {
		f(&o)
	}
	ctx, stop := context.WithCancel(context.Background())
	k.wire = &wire{Backend: k.Backend, crashed: make(chan struct{}), die: func(session belay.WorkerID) {
		_ = k.engine.Bury(context.Background(), session, "the test let it die") // refused if it had ended already
		stop()
	}}
	w := worker.New(k.wire, o)
	k.register(w)
	done := make(chan struct{})
	k.stop, k.done = stop, done
	go func() {
		defer close(done)
		k.err = w.Run(ctx)
	}()
}

// end stops the worker and waits for it.
func (k *Kit) end() error {
	k.mu.Lock()
	stop, done, w := k.stop, k.done, k.wire
	k.mu.Unlock()
	stop()
	<-done
	if w.isDead() {
		return nil
	}
	return k.err
}
