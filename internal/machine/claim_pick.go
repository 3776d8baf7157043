package machine

import (
	"cmp"
	"slices"
)

// pick takes up to Slots due executions, from lanes (groups of executions that the same workers may
// claim) of higher priority first. Among lanes of one priority the queues take turns, so that the
// backlog of one queue does not delay the others; within a queue the execution that has been due
// for longest comes first. pick starts each run before it picks the next execution, because an
// execution that became due again in this batch is in two lists of due executions.
//
// A suspect, which must run alone, is never won together with another execution. A worker that runs
// nothing takes a suspect before all other executions of its priority. A busy worker takes a
// suspect first only in claims with an even number, so that many suspects do not delay other
// executions. If no other execution of the priority is due, the claim takes a suspect whatever its
// number.
func (c *Claim) pick(w *world, x *Worker) []Claimed {
	due := 0
	for _, l := range c.Lanes {
		due += len(w.ready[l.ID]) + len(w.fresh[l.ID])
	}
	won := make([]Claimed, 0, min(due, c.Slots))
	for i := 0; i < len(c.Lanes) && len(won) < c.Slots; {
		j := i
		for j < len(c.Lanes) && c.Lanes[j].Priority == c.Lanes[i].Priority {
			j++
		}
		suspect := w.longestDue(c.Lanes[i:j], c.mayRunAlone)
		for suspect != nil && !w.mayPass(suspect, c.Lanes[i].Priority) {
			suspect = w.longestDue(c.Lanes[i:j], c.mayRunAlone)
		}
		if suspect != nil && len(won) == 0 && (c.Idle || c.Number%2 == 0) {
			return append(won, c.take(w, x, suspect, 0))
		}
		turns := c.turns(w, c.Lanes[i:j])
		for len(won) < c.Slots {
			e := turns.next(w)
			if e == nil {
				break
			}
			if w.mayPass(e, c.Lanes[i].Priority) {
				won = append(won, c.take(w, x, e, len(won)))
			}
		}
		if suspect != nil && len(won) == 0 {
			return append(won, c.take(w, x, suspect, 0))
		}
		i = j
	}
	return won
}

// mayPass reports whether the budget of its root and the gates that a due execution names let it start a
// run. If not, the execution is no longer at the head of its lane.
func (w *world) mayPass(e *Execution, priority int) bool {
	if root := w.spent(e); root != nil {
		w.exhaust(e, root)
		return false
	}
	if e.Gates == nil {
		return true
	}
	switch w.ask(e, priority) {
	case open:
		return true
	case unknown:
		if w.unasked == nil {
			w.unasked = make(map[*Execution]bool)
		}
		w.unasked[e] = true
	case parked:
	}
	return false
}

// take starts the run of an execution, or schedules it, with the nth secret of the claim.
func (c *Claim) take(w *world, x *Worker, e *Execution, n int) Claimed {
	first := e.Token == 0
	if c.Assign {
		w.scheduleTo(e, x, c.Secrets[n])
		return w.claimed(e)
	}
	w.enter(e)
	e.Secret, e.ClaimNo = c.Secrets[n], c.Number
	w.assign(e, x)
	w.start(e)
	claimed := w.claimed(e)
	claimed.First = first
	return claimed
}

// mayRunAlone reports whether e is a suspect (an execution that was lost several times in a row) that
// the claim may take. An idle worker may take any suspect; a busy worker may take a suspect that has
// waited for an idle worker longer than AloneWait.
func (c *Claim) mayRunAlone(w *world, e *Execution) bool {
	return e.Lane.IsAlone() && (c.Idle || e.DueAt.Add(AloneWait) <= w.Now)
}

// shared reports whether e may run at the same time as other executions on one worker.
func shared(_ *world, e *Execution) bool { return !e.Lane.IsAlone() }

// turns are queues that take turns in a claim, each with its lanes (groups of executions with the
// same properties).
type turns struct {
	queues [][]Lane
	at     int // index of the queue whose turn is next
}

// turns groups lanes of one priority by queue, in the order of the queues' names. The first turn
// goes to the queue that follows c.After, the queue that had the last turn. If no last turn is
// known, it goes to the queue with the longest due execution.
func (c *Claim) turns(w *world, lanes []Lane) *turns {
	t := &turns{}
	if !slices.ContainsFunc(lanes, func(l Lane) bool { return l.Queue != lanes[0].Queue }) {
		t.queues = [][]Lane{lanes}
		return t
	}
	by := slices.Clone(lanes)
	slices.SortStableFunc(by, func(a, b Lane) int { return cmp.Compare(a.Queue, b.Queue) })
	for i := 0; i < len(by); {
		j := i
		for j < len(by) && by[j].Queue == by[i].Queue {
			j++
		}
		t.queues = append(t.queues, by[i:j:j])
		i = j
	}
	if c.After == "" {
		if first := w.longestDue(by, shared); first != nil {
			t.at = slices.IndexFunc(t.queues, func(q []Lane) bool { return q[0].Queue == first.Queue })
		}
		return t
	}
	t.at = max(0, slices.IndexFunc(t.queues, func(q []Lane) bool { return q[0].Queue > c.After }))
	return t
}

// next is the longest due execution of the queue whose turn it is. A queue with no due execution
// loses its turn to the next queue; next is nil if no queue has any.
func (t *turns) next(w *world) *Execution {
	for range t.queues {
		lanes := t.queues[t.at]
		t.at = (t.at + 1) % len(t.queues)
		if e := w.longestDue(lanes, shared); e != nil {
			return e
		}
	}
	return nil
}

// longestDue returns the execution with the earliest due time among those executions at the head of
// a lane for which fits returns true. An execution that has started is no longer at the head of its
// lane.
func (w *world) longestDue(lanes []Lane, fits func(*world, *Execution) bool) *Execution {
	var best *Execution
	for _, l := range lanes {
		if w.shutBy(l.Queue, l.Workflow) != nil {
			continue
		}
		if e := w.head(l.ID); e != nil && fits(w, e) && (best == nil || before(e, best)) {
			best = e
		}
	}
	return best
}

func before(a, b *Execution) bool {
	if a.DueAt != b.DueAt {
		return a.DueAt < b.DueAt
	}
	return a.ID.Compare(b.ID) < 0
}

// head returns the first execution of the lane that is still due. Executions that became ready in
// this batch come after all executions that were ready when the batch began.
func (w *world) head(lane LaneID) *Execution {
	for {
		q := w.ready
		if len(q[lane]) == 0 {
			q = w.fresh
		}
		if len(q[lane]) == 0 {
			return nil
		}
		if e := q[lane][0]; e.Ready().over(w.Now) && !w.unasked[e] {
			return e
		}
		q[lane] = q[lane][1:]
	}
}
