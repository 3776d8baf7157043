package storetest

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// What a walk knows, so that most of its commands make sense.

// row is an execution as it stood after the last step.
func (w *walker) row(id belay.ExecutionID) *machine.Execution {
	for _, rec := range w.now.Listed {
		if rec.Execution.ID == id {
			return rec.Execution
		}
	}
	return nil
}

// session is a session as it stood after the last step.
func (w *walker) session(id belay.WorkerID) *machine.Worker {
	for _, x := range w.now.Workers {
		if x.ID == id {
			return x.Worker
		}
	}
	return nil
}

// running is how many executions have a running owner, living how many sessions
// may claim. Without them most commands come to nothing.
func (w *walker) running() int { return int(w.now.Counts.Executions[belay.Running]) }

func (w *walker) living() (n int) {
	for _, x := range w.now.Workers {
		if x.State == belay.WorkerOpen {
			n++
		}
	}
	return n
}

// execution draws an execution, mostly one in a state if one is given.
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

// worker draws a session, mostly a living one.
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

// lease draws a lease, mostly one that holds.
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

// op draws the id of an operation: a new one, or one that was used before and
// is sent again.
func (w *walker) op() (op belay.OpID, again bool) {
	if len(w.ops) > 0 && w.chance(5) {
		return one(w, w.ops...), true
	}
	op = w.fresh()
	w.ops = append(w.ops, op)
	return op, w.chance(10)
}

// signalSeq draws the seq of a signal of an execution, mostly one there is.
func (w *walker) signalSeq(id belay.ExecutionID) int64 {
	if rec := w.records[id]; rec != nil && len(rec.Signals) > 0 && !w.chance(6) {
		return one(w, rec.Signals...).Seq
	}
	return int64(w.number(0, 5))
}

// payload draws a payload, or none.
func (w *walker) payload() []byte {
	return one(w, nil, nil, []byte(`1`), []byte(`{"text":"ünïcode <&>"}`), []byte(`"not JSON`))
}
