package run

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
)

// Session has the data that all runs of a worker's session share.
type Session struct {
	Backend belay.Backend
	Fence   *Fence
	// Base is the parent of the contexts of all runs, which inherit its values. It must never end.
	Base context.Context
	// Linger is how long a run keeps its slot in the worker while all of its branches wait.
	Linger time.Duration
	// Full reports whether the worker has no free slot. While it reports true, a waiting run does
	// not linger: it suspends at once.
	Full func() bool
	// Saved, if not nil, is called after each checkpoint that a run has saved.
	Saved func(belay.RunID)
	// Report, if not nil, is called when a step or wait has begun, or one has ended that a heartbeat has
	// named. It must return at once.
	Report func()
	// quiet is until when runs report no steps, in microseconds since 1970.
	quiet atomic.Int64
	// IDs returns 16 unpredictable bytes, different at each call.
	IDs func() [16]byte
}

// Run is one run (attempt) of an execution. Its methods are safe for concurrent use.
type Run struct {
	s *Session
	a belay.Assignment
	// began is the time at which the claim's reply arrived. Durations that the store measured count
	// from this time.
	began time.Time
	// resumed is the highest seq of the checkpoints and signals that were read.
	resumed int64

	// ctx is the context of the workflow function. life is the context of the function's writes,
	// which are still allowed after a cancel has ended ctx, while the function cleans up.
	ctx  context.Context
	end  context.CancelCauseFunc
	life context.Context
	kill context.CancelCauseFunc
	free context.CancelFunc // stops the timer of ctx; nil without a timer

	ops      [16]byte
	opN      atomic.Uint64
	cost     atomic.Int64     // a belay.Cost
	usage    belay.ModelUsage // what no checkpoint has sent yet; mu guards it
	progress atomic.Int64     // the time of the last progress, in nanoseconds after began

	root Branch

	mu      sync.Mutex
	names   map[string]entry
	numbers map[string]int64 // the number of the next chunk of each artifact
	state   json.RawMessage
	lost    error // the reason why the lease is lost; nil while the lease is valid
	fault   error // if not nil, the run fails with this error, whatever the function returns
	stop    stop
	asked   belay.Outcome // the outcome with which the run must give its execution back; 0 without such a request
	askedCh chan struct{}
	circuit *circuit // why asked is OutcomeFailed
	// cancelled says that the execution was cancelled, and stopped says that the worker stops. If the
	// function then returns an error, the outcome is OutcomeCancelled or OutcomeReleased.
	cancelled, stopped bool
	// returned says that the workflow function has returned. over says that all branches have
	// returned too, so that only the settlement is left.
	returned bool
	over     atomic.Bool

	waits   waits
	signals signals
	reports reports
	result  result
}

// stop says why the run ends although its function has not finished.
type stop uint8

const (
	stopNot     stop = iota
	stopSuspend      // every branch waits
	stopGive         // an operator asked for the execution back, or a circuit breaker is open
)

// New prepares a run for an assignment that has just arrived.
func New(s *Session, a belay.Assignment) *Run {
	r := &Run{s: s, a: a, began: time.Now(), ops: s.IDs()}
	r.life, r.kill = context.WithCancelCause(s.Base)
	r.ctx, r.end = context.WithCancelCause(s.Base)
	limit := a.Remaining
	if t := a.Policy.RunTimeout.D(); t > 0 && (limit <= 0 || t < limit) {
		limit = t
	}
	if limit > 0 {
		r.ctx, r.free = context.WithTimeoutCause(r.ctx, limit, ErrTimedOut)
	}
	r.root = Branch{r: r}
	r.ctx = &scope{Context: r.ctx, r: r, b: &r.root}
	r.waits.branches = 1
	r.signals.start(a)
	r.resumed = (&belay.Resumed{Checkpoints: a.Checkpoints, Signals: a.Signals}).Last()
	r.restore(a.Checkpoints)
	return r
}

// restore stores the checkpoints of earlier runs in r.
func (r *Run) restore(saved []belay.Checkpoint) {
	if len(saved) == 0 {
		return
	}
	if r.names == nil {
		r.names = make(map[string]entry, len(saved))
	}
	late := time.Since(r.began) // the ages in r.names are those at r.began, so the time since then is subtracted
	for _, c := range saved {
		if c.Kind == belay.KindState {
			r.state = c.Data
			continue
		}
		r.names[c.Key] = entry{kind: c.Kind, data: c.Data, age: c.Age - late}
	}
	r.a.Checkpoints = nil
}

// resume reads the rest of the input, checkpoints and signals, if they did not fit into the claim's
// reply. Execute calls it before the workflow function.
func (r *Run) resume() error {
	for more := r.a.More; more; {
		part, err := read(r.life, r, func(ctx context.Context) (belay.Resumed, error) {
			return r.s.Backend.Resume(ctx, belay.ResumeQuery{Lease: r.a.Lease, After: r.resumed})
		})
		if err != nil {
			return r.answer("read what the run goes on from", err)
		}
		if r.resumed == 0 {
			r.a.Input = part.Input
		}
		r.restore(part.Checkpoints)
		r.mu.Lock()
		r.signals.add(part.Signals)
		r.mu.Unlock()
		r.resumed, more = max(r.resumed, part.Last()), part.More
	}
	return nil
}

// Context returns the context with which the workflow function is called.
func (r *Run) Context() context.Context { return r.ctx }

// Assignment returns the assignment that the claim received, without its checkpoints.
func (r *Run) Assignment() *belay.Assignment { return &r.a }

// ID returns the id of the run.
func (r *Run) ID() belay.RunID { return r.a.Lease.Run() }

// Held returns the entry for this run in a heartbeat.
func (r *Run) Held() belay.Held {
	h := belay.Held{Execution: r.a.Lease.Execution, Token: r.a.Lease.Token, Steps: r.current()}
	if r.a.Policy.IdleTimeout > 0 {
		h.Idle = time.Since(r.began) - time.Duration(r.progress.Load())
	}
	return h
}

// Progress records that the run makes progress, for the policy's IdleTimeout.
func (r *Run) Progress() {
	if r.a.Policy.IdleTimeout > 0 {
		r.progress.Store(int64(time.Since(r.began)))
	}
}

// AddCost adds to the execution's cost. The next checkpoint or settlement sends the sum.
func (r *Run) AddCost(c belay.Cost) {
	for {
		was := r.cost.Load()
		if r.cost.CompareAndSwap(was, int64(belay.Cost(was).Add(c))) {
			return
		}
	}
}

// AddUsage adds usage to the execution's usage, and its tokens to the cost. The next checkpoint sends both.
// It ignores usage that the store would refuse, because that is no usage of a model.
func (r *Run) AddUsage(u belay.ModelUsage) {
	if u.Check() != nil {
		return
	}
	r.mu.Lock()
	r.usage = r.usage.Add(u)
	r.mu.Unlock()
	if tokens := u.Tokens(); tokens > 0 {
		r.AddCost(belay.CostOf(tokens))
	}
}

// takeUsage returns the usage that no checkpoint has sent yet, and sets it to zero.
func (r *Run) takeUsage() (u belay.ModelUsage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u, r.usage = r.usage, u
	return u
}

// giveUsage takes back usage that a checkpoint could not send.
func (r *Run) giveUsage(u belay.ModelUsage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.usage = r.usage.Add(u)
}

// takeCost returns the cost that no checkpoint has sent yet, and sets it to zero.
func (r *Run) takeCost() belay.Cost { return belay.Cost(r.cost.Swap(0)) }

// OnFreeze registers functions that are called when the fence closes and opens; see
// [Fence.OnFreeze].
func (r *Run) OnFreeze(freeze, thaw func()) (remove func()) {
	return r.s.Fence.OnFreeze(freeze, thaw)
}

// Lose ends the run because its lease is lost. The run then writes nothing more, and its contexts
// end with why as the cause, a belay.ErrLeaseLost.
func (r *Run) Lose(why error) {
	r.mu.Lock()
	first := r.lost == nil
	if first {
		r.lost = why
	}
	r.mu.Unlock()
	if first {
		r.kill(why)
		r.end(why)
	}
}

// Lost reports whether the run has learned that its lease is lost.
func (r *Run) Lost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost != nil
}

// Over reports whether the run has only its settlement left: the workflow function and all its
// branches have returned, or were never called.
func (r *Run) Over() bool { return r.over.Load() }

// Cancel ends the context of the workflow function because the execution was cancelled. The
// function may still save checkpoints until the grace period is over.
func (r *Run) Cancel(cause error) {
	r.mu.Lock()
	first := !r.cancelled
	r.cancelled = true
	r.mu.Unlock()
	if first {
		r.end(cause)
	}
}

// Stop ends the context of the workflow function because the worker stops. If the function then
// returns an error, the execution is released.
func (r *Run) Stop() {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.end(ErrReleased)
}

// Ask makes the run give its execution back at the next safe point (the beginning of a step or
// wait), with the outcome OutcomePreempted, OutcomeReleased, or OutcomeFailed for r.circuit.
func (r *Run) Ask(o belay.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked != 0 {
		return
	}
	r.asked = o
	if r.askedCh != nil {
		close(r.askedCh)
	}
	r.wakeAllLocked()
}

// Asked returns a channel that is closed when the run is asked to give its execution back: an operator
// has paused or preempted the execution, or a circuit breaker has refused the target of a step.
func (r *Run) Asked() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.askedCh == nil {
		r.askedCh = make(chan struct{})
		if r.asked != 0 {
			close(r.askedCh)
		}
	}
	return r.askedCh
}

// Drain makes the run suspend, without lingering, as soon as all of its branches wait.
func (r *Run) Drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits.draining = true
	r.decideLocked()
}

// op returns a new operation id. Its random part is chosen once for each run, so that in a
// simulation the ids do not depend on the order of concurrent runs.
func (r *Run) op() belay.OpID {
	id := belay.OpID(r.ops)
	binary.BigEndian.PutUint64(id[8:], binary.BigEndian.Uint64(id[8:])+r.opN.Add(1))
	return id
}
