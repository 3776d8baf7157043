package storetest

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// The methods in this file draw ids and leases from the rows that the test (a random walk) has
// seen, so that most commands are likely to be accepted.

// row is an execution after the last step.
func (w *walker) row(id belay.ExecutionID) *machine.Execution {
	for _, rec := range w.now.Listed {
		if rec.Execution.ID == id {
			return rec.Execution
		}
	}
	return nil
}

// session is a session after the last step.
func (w *walker) session(id belay.WorkerID) *machine.Worker {
	for _, x := range w.now.Workers {
		if x.ID == id {
			return x.Worker
		}
	}
	return nil
}

// running is the number of running executions, and living is the number of sessions that may claim.
// While these numbers are small, command is more likely to draw a claim or a new session, because
// most commands would otherwise be refused.
func (w *walker) running() int { return int(w.now.Counts.Executions[belay.Running]) }

func (w *walker) living() (n int) {
	for _, x := range w.now.Workers {
		if x.State == belay.WorkerOpen {
			n++
		}
	}
	return n
}

// execution draws an execution, most likely one in the given state, if a state is given.
func (w *walker) execution(state belay.State) belay.ExecutionID {
	var fit []belay.ExecutionID
	for _, rec := range w.now.Listed {
		if rec.Execution.State == state {
			fit = append(fit, rec.Execution.ID)
		}
	}
	if len(fit) > 0 && !w.chance(10) {
		return one(w, fit...)
	}
	if len(w.known) > 0 && !w.chance(20) {
		return one(w, w.known...)
	}
	return w.fresh()
}

// worker draws a session, most likely one that has not ended.
func (w *walker) worker() belay.WorkerID {
	var living []belay.WorkerID
	for _, x := range w.now.Workers {
		if !x.State.Ended() {
			living = append(living, x.ID)
		}
	}
	if len(living) > 0 && !w.chance(12) {
		return one(w, living...)
	}
	if len(w.workers) > 0 && !w.chance(10) {
		return one(w, w.workers...)
	}
	return w.fresh()
}

// lease draws a lease, most likely a valid one.
func (w *walker) lease() belay.Lease { return w.leaseIn(belay.Running) }

func (w *walker) leaseIn(state belay.State) belay.Lease {
	if x := w.row(w.execution(state)); x != nil && !x.Worker.IsZero() && !w.chance(12) {
		l := leaseOf(x)
		if w.chance(20) {
			l.Token += belay.Token(w.number(-1, 1))
		}
		return l
	}
	if len(w.leases) == 0 {
		return belay.Lease{Execution: w.execution(0), Worker: w.worker(), Token: 1, Secret: w.fresh()}
	}
	l := one(w, w.leases...)
	if w.chance(10) {
		l.Secret = w.fresh()
	}
	return l
}

// op draws an operation id: a new one, or one of an earlier operation for a repetition.
func (w *walker) op() (op belay.OpID, again bool) {
	if len(w.ops) > 0 && w.chance(5) {
		return one(w, w.ops...), true
	}
	op = w.fresh()
	w.ops = append(w.ops, op)
	return op, w.chance(10)
}

// signalSeq draws the seq of a signal of an execution, most likely an existing one.
func (w *walker) signalSeq(id belay.ExecutionID) int64 {
	if rec := w.records[id]; rec != nil && len(rec.Signals) > 0 && !w.chance(6) {
		return one(w, rec.Signals...).Seq
	}
	return int64(w.number(0, 5))
}

// payload draws a payload, which may be empty.
func (w *walker) payload() []byte {
	return one(w, nil, nil, []byte(`1`), []byte(`{"text":"ünïcode <&>"}`), []byte(`"not JSON`))
}
