package worker

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/run"
)

// session is a worker's session, with the runs that belong to it.
type session struct {
	w      *Worker
	id     belay.WorkerID
	ttl    time.Duration
	beat   time.Duration
	shared run.Session
	// acked is the time, by the clock of the fence, at which the last acknowledged heartbeat was
	// sent or, before the first heartbeat, the request that opened the session. Only the goroutine
	// of heartbeats uses it.
	acked time.Duration
	// attendAfter is when heartbeatNow may send a heartbeat again. Only the goroutine of claims uses it.
	attendAfter time.Time

	// ctx ends when the session is lost or the worker has stopped.
	ctx context.Context
	end context.CancelCauseFunc

	mu sync.Mutex
	// the runs, from the arrival of their claim's reply until the store has acknowledged their
	// settlement
	held      []*run.Run
	index     map[belay.RunID]*run.Run
	claimSeen int64
	// acceptSeen is the number of the last accept whose reply arrived, or for which the worker does not wait.
	acceptSeen int64
	lost       bool

	mailbox *mailbox

	// now has requests for a heartbeat. Each request is a channel that is closed when the reply to
	// the heartbeat has arrived or the heartbeat has failed.
	now  chan chan struct{}
	soon chan struct{} // has a value if a heartbeat was requested
	// looking says that the goroutine of heartbeats looks at the current steps soon. look has a value if it is
	// asked to.
	looking atomic.Bool
	look    chan struct{}
	drained chan struct{} // closed when an operator drains the worker
	drain   sync.Once
	beats   sync.WaitGroup
}

func newSession(base context.Context, w *Worker, got belay.Session, sent time.Duration) *session {
	s := &session{
		w: w, id: got.ID, ttl: got.TTL.D(),
		// at most half of the TTL, because the fence closes (the runs freeze) after two thirds of the TTL
		beat:  min(got.Heartbeat.D(), got.TTL.D()/2),
		index: make(map[belay.RunID]*run.Run), acked: sent,
		now: make(chan chan struct{}), soon: make(chan struct{}, 1), look: make(chan struct{}, 1),
		drained: make(chan struct{}),
	}
	s.mailbox = newMailbox(s)
	base = context.WithoutCancel(base)
	s.ctx, s.end = context.WithCancelCause(base)
	s.shared = run.Session{
		Backend: w.b, Base: base, Linger: w.o.Linger, Full: w.full, Saved: w.joined, Report: s.report,
		IDs:   w.o.IDs,
		Fence: run.NewFence(w.o.Clock.Boottime, w.alarm, sent, s.ttl, w.o.MaxFreeze, s.frozenTooLong),
	}
	return s
}

// serve claims and runs executions until the session is lost, ctx ends, or an operator drains the
// worker. It reports whether the session is lost.
func (s *session) serve(ctx context.Context) (lost bool) {
	s.w.o.Log.Info("worker session opened", "worker", s.id, "name", s.w.o.Name, "ttl", s.ttl)
	s.beats.Go(s.heartbeats)
	claiming, stop := context.WithCancel(s.ctx)
	defer stop()
	var done sync.WaitGroup
	done.Go(func() { s.claims(claiming) })
	done.Go(func() { s.mailbox.serve(claiming) })
	select {
	case <-ctx.Done():
	case <-s.drained:
	case <-s.ctx.Done():
	}
	stop()
	done.Wait()
	return s.ctx.Err() != nil
}

// won starts the runs of the assignments that a claim won.
func (s *session) won(number int64, assignments []belay.Assignment) {
	runs := make([]*run.Run, len(assignments))
	for i := range assignments {
		runs[i] = run.New(&s.shared, assignments[i])
	}
	s.begin(runs, func() { s.claimSeen = number })
}

// begin starts runs that the worker does not have yet. seen notes under the lock that their reply has arrived, so that
// no heartbeat in between makes the store release them.
func (s *session) begin(runs []*run.Run, seen func()) {
	s.mu.Lock()
	seen()
	lost := s.lost
	runs = slices.DeleteFunc(runs, func(r *run.Run) bool { return s.index[r.ID()] != nil }) // answered before
	if !lost {
		s.held = append(s.held, runs...)
		for _, r := range runs {
			s.index[r.ID()] = r
		}
	}
	s.mu.Unlock()
	s.w.took(runs)
	for _, r := range runs {
		if lost {
			r.Lose(errLost)
		}
		go s.execute(r)
	}
}

// gaveUp records that the worker does not wait for the reply to a claim any more. The next
// heartbeat reports the claim as seen and names no runs of the claim, so the store releases the
// executions that the claim may have won.
func (s *session) gaveUp(number int64) {
	s.mu.Lock()
	s.claimSeen = number
	s.mu.Unlock()
	s.heartbeatSoon()
}

// errLost is the error of runs whose session was lost before their claim's reply arrived.
var errLost = &belay.Error{
	Code: belay.CodeLeaseLost, Cause: belay.CauseExpired, Message: "the worker's session was lost",
}

// execute performs one run until the store has acknowledged the end of the run.
func (s *session) execute(r *run.Run) {
	growStack()
	defer s.settle(r) // runs even if the function calls runtime.Goexit
	if !r.Lost() {
		r.Execute(s.w.handler(r.Assignment()))
	}
}

// growStack grows the stack of a new goroutine to the size that decoding an input or saving a step
// needs. If the stack grew later, the runtime would copy all frames of the calls in progress, which
// took a tenth of the time of a worker whose runs have little to do. At this point there are almost
// no frames to copy.
//
//go:noinline
func growStack() byte {
	var room [4 << 10]byte
	return room[len(os.Args)%len(room)]
}

// settle ends the run in the store. A run that failed keeps its slot until its failure is stored: otherwise the worker
// could claim another execution that calls the same target before the target's circuit breaker has counted this
// failure.
func (s *session) settle(r *run.Run) {
	if r.Failed() {
		defer s.w.returned()
	} else {
		s.w.returned()
	}
	if err := r.Settle(); err != nil && belay.CodeOf(err) != belay.CodeLeaseLost {
		s.w.o.Log.With(slog.Any("", r.Assignment().Lease)).Error(
			"the end of a run could not be saved; the store will release the execution",
			"workflow", r.Assignment().Workflow, "error", err)
	}
	s.w.joined(r.ID())
	s.forget(r)
	s.w.settled()
}

func (s *session) forget(r *run.Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.index[r.ID()] != r {
		return
	}
	delete(s.index, r.ID())
	i := slices.Index(s.held, r)
	s.held[i] = s.held[len(s.held)-1]
	s.held[len(s.held)-1] = nil
	s.held = s.held[:len(s.held)-1]
}

// runs returns the runs that the session has now.
func (s *session) runs() []*run.Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.held)
}

func (s *session) isLost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

func (s *session) find(h belay.Held) *run.Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index[belay.RunID{Execution: h.Execution, Token: h.Token}]
}

// lose ends the session and all its runs.
func (s *session) lose(why error) {
	s.mu.Lock()
	first := !s.lost
	s.lost = true
	held := s.held
	s.held = nil
	clear(s.index)
	s.mu.Unlock()
	if !first {
		return
	}
	s.w.o.Log.Warn("worker session lost", "worker", s.id, "runs", len(held), "error", why)
	for _, r := range held {
		r.Lose(why)
	}
	s.end(why)
}

// abandon stops the alarm of a session's fence after the session has ended, as soon as the goroutine
// that sends heartbeats has returned. If the fence is closed for effects, it stays closed.
func (s *session) abandon() {
	s.beats.Wait()
	s.shared.Fence.Close()
}

// frozenTooLong ends the runs and keeps the session. If a later heartbeat reaches the store, it
// does not name these runs any more, so the store releases their executions at once.
func (s *session) frozenTooLong() {
	why := &belay.Error{
		Code: belay.CodeLeaseLost, Cause: belay.CauseExpired, Op: "worker " + s.w.o.Name,
		Message: "the worker was cut off from the store for longer than " + s.w.o.MaxFreeze.String(),
	}
	s.w.o.Log.Warn("ended runs that were frozen for too long", "worker", s.id, "max_freeze", s.w.o.MaxFreeze)
	for _, r := range s.runs() {
		r.Lose(why)
	}
}
