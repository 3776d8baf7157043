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

// Kit is a Backend in memory with one worker. A test can make that worker crash.
type Kit struct {
	// Backend is the Backend on which the test submits, signals and reads executions.
	Backend belay.Backend

	engine   *engine.Engine
	register func(*worker.Worker)
	change   []func(*worker.Options)
	opened   time.Time
	number   int

	// The fields below belong to the current worker.
	mu   sync.Mutex
	wire *wire
	stop context.CancelFunc
	done chan struct{}
	err  error // the error of the worker's Run; valid after done is closed
}

// A kit needs no polls, because its worker and its engine are in one process and no notification is
// lost. It needs no expiry of leases, because Crash ends the session itself. In a test with virtual
// time, each poll and each heartbeat takes real processor time, so both intervals are long.
const (
	slowPoll = time.Hour
	ttl      = time.Hour
)

// Open opens a Backend and starts a worker. The function register registers the worker's workflows;
// it is called again for each later worker. The functions in change may change the worker's default
// options. Close stops the worker and closes the Backend.
func Open(register func(w *worker.Worker), change ...func(o *worker.Options)) *Kit {
	e := engine.New(memory.New(time.Now), engine.Options{Log: slog.New(slog.DiscardHandler), SlowPoll: slowPoll})
	k := &Kit{Backend: e, engine: e, register: register, change: change, opened: time.Now()}
	k.start()
	return k
}

// Close stops the worker gracefully and closes the Backend. It returns an error if a workflow
// function did not return after its context had ended.
func (k *Kit) Close() error {
	err := k.end()
	if cerr := k.Backend.Close(); err == nil {
		err = cerr
	}
	return err
}

// CrashBefore makes the worker crash before it saves its n-th checkpoint from now on, counted from
// 1. The step or wait of that checkpoint was executed and is not saved, so the next worker executes
// it again.
func (k *Kit) CrashBefore(n int) { k.current().arm(n, false) }

// CrashAfter makes the worker crash right after its n-th checkpoint from now on, counted from 1,
// was saved. The next worker continues after that checkpoint.
func (k *Kit) CrashAfter(n int) { k.current().arm(n, true) }

// Crash makes the worker crash now. The contexts of its functions end with belay.ErrLeaseLost as
// the cause, and no later call of the functions or of the worker reaches the Backend.
func (k *Kit) Crash() { k.current().crash() }

// Restart waits until the worker has crashed, and starts another worker. The runs of the crashed
// worker end at once as lost, which counts as a loss of each execution, and the new worker
// continues the executions.
func (k *Kit) Restart() {
	<-k.current().crashed
	_ = k.end() // the error of a crashed worker does not matter
	k.start()
}

// Steal takes an execution away from its owner, like the steal action of an operator. The next
// owner has a newer token. From now on the store refuses the old owner's writes, and the old owner
// learns of the loss from its next write or heartbeat. The error has CodeConflict if the execution
// has no owner.
func (k *Kit) Steal(ctx context.Context, id belay.ExecutionID) error {
	_, err := k.Backend.Control(ctx, belay.Control{Execution: id, Action: belay.ActionSteal, Actor: "belaytest"})
	return err
}

// Advance moves the virtual time forward by d, and waits until the worker and the engine have done
// all work that became ready. It works only inside a synctest bubble, and panics elsewhere.
func (k *Kit) Advance(d time.Duration) {
	synctest.Wait()
	<-time.After(d)
	synctest.Wait()
}

// Boottime is the clock of the worker's fence (the time at which a worker without an acknowledged
// heartbeat stops its work). Inside a synctest bubble it shows virtual time, like the store's clock.
func (k *Kit) Boottime() time.Duration { return time.Since(k.opened) }

func (k *Kit) current() *wire {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.wire
}

// start starts the next worker.
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
		// An error of Bury does not matter: it means that the session has already ended.
		_ = k.engine.Bury(context.Background(), session, "the test made the worker crash")
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
