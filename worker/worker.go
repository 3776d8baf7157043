package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/broker"
	"github.com/belaydev/belay/internal/retry"
	"github.com/belaydev/belay/internal/run"
	"github.com/belaydev/belay/internal/uid"
)

// Worker claims executions and runs their workflows.
type Worker struct {
	b belay.Backend
	o Options

	mu       sync.Mutex
	handlers map[belay.Registration]run.Func
	order    []belay.Registration
	started  bool
	running  int                         // functions that have not returned, of all sessions
	held     int                         // runs that are not settled, of all sessions
	freed    chan struct{}               // gets a value when running or held decreases
	room     chan struct{}               // likewise while wantsRoom is set, for the goroutine that accepts offers
	session  *session                    // nil while the worker has none
	stopping bool                        // the worker claims nothing more
	alone    map[belay.RunID]*time.Timer // runs that must be alone: meanwhile the worker claims nothing else

	wantsRoom atomic.Bool // offers wait for a free slot
}

// New makes a worker; Run starts it. The caller must close the Backend after Run has returned.
func New(b belay.Backend, o Options) *Worker {
	return &Worker{
		b: b, o: o.withDefaults(),
		handlers: make(map[belay.Registration]run.Func), freed: make(chan struct{}, 1), room: make(chan struct{}, 1),
		alone: make(map[belay.RunID]*time.Timer),
	}
}

// RegisterOption is an option of Register.
type RegisterOption func(*belay.Registration)

// Version registers the workflow for executions of this version. Without it, the worker claims
// executions that have no version.
func Version(v string) RegisterOption {
	return func(r *belay.Registration) { r.Version = v }
}

// Register registers fn as the function for executions of the workflow. Input and output are
// encoded as JSON. An input that cannot be decoded into In makes its execution fail without a
// retry. Register panics if the workflow is already registered, or if Run was called before.
func Register[In, Out any](w *Worker, workflow string, fn func(ctx context.Context, in In) (Out, error),
	opts ...RegisterOption) {
	r := belay.Registration{Workflow: workflow}
	for _, o := range opts {
		o(&r)
	}
	w.register(r, func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
		var in In
		if len(input) > 0 {
			if err := json.Unmarshal(input, &in); err != nil {
				return nil, belay.Permanent(fmt.Errorf("read the input as %T: %w", in, err))
			}
		}
		out, err := fn(ctx, in)
		if err != nil {
			return nil, err
		}
		data, err := json.Marshal(out)
		if err != nil {
			return nil, belay.Permanent(fmt.Errorf("write the output as JSON: %w", err))
		}
		return data, nil
	})
}

func (w *Worker) register(r belay.Registration, fn run.Func) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started {
		panic(fmt.Sprintf("worker: register %q: the worker runs already", r.Workflow))
	}
	if w.handlers[r] != nil {
		panic(fmt.Sprintf("worker: register %q: it is registered already", r.Workflow))
	}
	w.handlers[r] = fn
	w.order = append(w.order, r)
}

// Run claims and runs executions until ctx ends or an operator drains the worker, and then stops
// gracefully, as the package comment describes. It returns nil after a graceful stop, and an error
// if the store refuses the worker or a function did not return in time. While the store is
// unavailable, Run tries again. Run can be called only once.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.begin(); err != nil {
		return err
	}
	w.o.Health.watch(w)
	defer w.leaving()
	for {
		s, err := w.open(ctx)
		if ctx.Err() != nil && s == nil {
			return w.awaitAll(w.o.Unwind)
		}
		if err != nil { // the runs of earlier sessions were asked to end when their session was lost
			return errors.Join(err, w.awaitAll(w.o.Unwind))
		}
		w.attach(s)
		if lost := s.serve(ctx); !lost {
			w.leaving()
			return s.stop(ctx)
		}
		w.attach(nil)
		s.abandon()
	}
}

func (w *Worker) begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started {
		return errors.New("worker: Run was called twice")
	}
	w.started = true
	if len(w.order) == 0 {
		return errors.New("worker: no workflow is registered")
	}
	if w.o.Broker != "" {
		return broker.CheckURL(w.o.Broker)
	}
	return nil
}

// open opens a session. It tries again after an error that may be temporary. The session is nil if
// the store refuses the worker or ctx ends.
func (w *Worker) open(ctx context.Context) (*session, error) {
	spec := belay.WorkerSpec{
		ID: w.newID(), Name: w.o.Name, Queues: w.o.Queues, Workflows: w.order, Labels: w.o.Labels,
		Capacity: w.o.Concurrency, TTL: belay.Duration(w.o.TTL), Heartbeat: belay.Duration(w.o.Heartbeat),
		Process: w.o.Process, Version: w.o.Version, Health: w.o.Health.address(),
	}
	delays := retry.NewDelays(w.o.IDs)
	for ctx.Err() == nil {
		sent := w.o.Clock.Boottime()
		got, err := w.b.OpenWorker(retry.Once(ctx), spec)
		switch {
		case err == nil:
			if got.Warning != "" {
				w.o.Log.Warn("worker session", "worker", got.ID, "warning", got.Warning)
			}
			return newSession(ctx, w, got, sent), nil
		case belay.CodeOf(err) == belay.CodeLeaseLost:
			spec.ID = w.newID() // the session was opened but its reply was lost, and the session has ended since
		case !unknown(err):
			return nil, fmt.Errorf("open a worker session: %w", err)
		}
		delays.Wait(ctx, err)
	}
	return nil, context.Cause(ctx)
}

// unknown reports whether a call may be repeated after the error, because the call did not reach
// the store or its result is unknown.
func unknown(err error) bool {
	var e *belay.Error
	if !errors.As(err, &e) {
		return true
	}
	return e.Code == belay.CodeInternal || retry.Transient(err)
}

func (w *Worker) newID() belay.WorkerID { return belay.WorkerID(uid.At(time.Now(), w.o.IDs())) }

// handler returns the registered function for an assignment. The store assigns only registered
// workflows. For any other workflow the function returns a permanent error, because a retry would
// not help.
func (w *Worker) handler(a *belay.Assignment) run.Func {
	r := belay.Registration{Workflow: a.Workflow, Version: a.Version}
	if fn := w.handlers[r]; fn != nil {
		return fn
	}
	return func(context.Context, json.RawMessage) (json.RawMessage, error) {
		return nil, belay.Permanent(fmt.Errorf("workflow %q version %q is not registered with worker %s", r.Workflow,
			r.Version, w.o.Name))
	}
}

// took counts new runs as running and as not settled. For five seconds (AloneFor) after a run with
// Alone began (a run of an execution that was lost several times), the worker claims no other
// execution.
func (w *Worker) took(runs []*run.Run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running += len(runs)
	w.held += len(runs)
	for _, r := range runs {
		if id := r.ID(); r.Assignment().Alone {
			w.alone[id] = time.AfterFunc(belay.AloneFor, func() { w.joined(id) })
		}
	}
}

// joined ends the time in which a run with Alone keeps its worker from claiming other executions: the
// run has saved a checkpoint, has ended or has lasted for AloneFor.
func (w *Worker) joined(id belay.RunID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.alone[id]
	if t == nil {
		return
	}
	t.Stop()
	if delete(w.alone, id); len(w.alone) == 0 {
		w.more()
	}
}

// returned records that a function has returned; settled records that a run is settled.
func (w *Worker) returned() { w.less(&w.running) }
func (w *Worker) settled()  { w.less(&w.held) }

func (w *Worker) less(count *int) {
	w.mu.Lock()
	*count--
	w.mu.Unlock()
	w.more()
}

// more wakes the goroutines that wait for a free slot or for the end of the runs.
func (w *Worker) more() {
	select {
	case w.freed <- struct{}{}:
	default:
	}
	if w.wantsRoom.Load() {
		select {
		case w.room <- struct{}{}:
		default:
		}
	}
}

// free returns the number of executions that the worker can claim. A slot is free as soon as the
// function of its run has returned without an error, so that the worker claims the next execution
// while the result of the last run is being stored. At most Concurrency runs may wait for their
// results to be stored.
func (w *Worker) free() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.alone) > 0 {
		return 0
	}
	return max(0, min(w.o.Concurrency-w.running, 2*w.o.Concurrency-w.held))
}

// unsettled returns the number of claimed runs whose end this worker has not finished handling: the
// function still runs, or the worker still stores its result.
func (w *Worker) unsettled() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held
}

func (w *Worker) full() bool { return w.free() == 0 }
