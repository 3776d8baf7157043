package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

const (
	// preferOthers is how long after an execution is due again the dispatcher serves other workers
	// before the worker on which its last run failed, was lost, or was never accepted.
	preferOthers = 5 * time.Second
	// maxFailedRuns is the number of failed or lost runs that the dispatcher remembers for each lane,
	// and maxFailedLanes is the number of lanes for which it remembers any.
	maxFailedRuns  = 32
	maxFailedLanes = 1000
)

// failedRun is a run that failed or was lost, or that its worker did not accept. Its execution will run
// again and has not been claimed since.
type failedRun struct {
	execution belay.ExecutionID
	worker    belay.WorkerID
	name      string       // the worker's name; a worker that is started again has the same name and another id
	due       machine.Time // the time from which the execution is due again
}

// failedRuns has the newest failed runs of each lane (a group of executions that the same workers
// may claim). They decide only the order in which the dispatcher serves claims that wait at the
// same time. So no claim waits longer because no other claim is there, and nothing is lost if the
// server forgets the runs.
type failedRuns map[machine.LaneID][]failedRun

// observe remembers the runs that failed, were lost or were not accepted in a batch, and forgets the runs
// whose executions were claimed.
func (f failedRuns) observe(b *batch) {
	var failed map[belay.ExecutionID]*machine.Run
	for _, r := range b.changes.Runs {
		untaken := r.Outcome == belay.OutcomeReleased && r.StartedSeq == 0
		switch {
		case untaken, r.Outcome == belay.OutcomeFailed, r.Outcome == belay.OutcomeTimedOut,
			r.Outcome == belay.OutcomeLost:
			if failed == nil {
				failed = make(map[belay.ExecutionID]*machine.Run)
			}
			failed[r.Execution] = r
		default:
		}
	}
	if len(f)+len(failed) == 0 {
		return
	}
	for _, e := range b.changes.Executions {
		due := e.Ready()
		if due == 0 {
			f.keep(e.Lane, func(x failedRun) bool { return x.execution != e.ID })
		} else if r := failed[e.ID]; r != nil {
			f.add(e.Lane, failedRun{e.ID, r.Worker, nameOf(b, r.Worker), due}, b.rows.Now)
		}
	}
}

// add remembers a run, and forgets the oldest run of a lane that has too many.
func (f failedRuns) add(id machine.LaneID, x failedRun, now machine.Time) {
	f.keep(id, func(y failedRun) bool { return y.execution != x.execution && !y.over(now) })
	runs := f[id]
	switch {
	case len(runs) == maxFailedRuns:
		runs = slices.Delete(runs, 0, 1)
	case len(runs) == 0 && len(f) == maxFailedLanes:
		return
	}
	f[id] = append(runs, x)
}

// keep forgets the runs of a lane for which the function returns false.
func (f failedRuns) keep(id machine.LaneID, wanted func(failedRun) bool) {
	runs, known := f[id]
	if !known {
		return
	}
	if runs = slices.DeleteFunc(runs, func(x failedRun) bool { return !wanted(x) }); len(runs) == 0 {
		delete(f, id)
		return
	}
	f[id] = runs
}

// prune forgets the runs whose time of preference is over, because they affect no claim any more.
func (f failedRuns) prune(now machine.Time) {
	for id := range f {
		f.keep(id, func(x failedRun) bool { return !x.over(now) })
	}
}

// over reports whether the time in which other workers are preferred is over.
func (x failedRun) over(now machine.Time) bool { return x.due.Add(preferOthers) <= now }

// rank returns 2 if the last run of a due execution in the claim's lanes failed or was lost in the
// claim's session, 1 if that happened in another session of a worker with the same name, and 0
// otherwise.
func (f failedRuns) rank(c *claim, now machine.Time) int {
	rank := 0
	if len(f) == 0 {
		return rank
	}
	for _, l := range c.session.lanes {
		if rank = max(rank, f.rankOf(l.ID, c.session.spec, now)); rank == 2 {
			break
		}
	}
	return rank
}

// rankOf is rank for the due executions of one lane and the session of a worker.
func (f failedRuns) rankOf(id machine.LaneID, spec belay.WorkerSpec, now machine.Time) int {
	rank := 0
	for _, x := range f[id] {
		switch {
		case x.due > now || x.over(now):
		case x.worker == spec.ID:
			return 2
		case x.name == spec.Name:
			rank = 1
		}
	}
	return rank
}

// nameOf returns the name of a worker whose run ended in the batch, empty if the batch has not read
// the worker's session.
func nameOf(b *batch, id belay.WorkerID) string {
	for _, rows := range [...][]*machine.Worker{b.rows.Workers, b.rows.Owners} {
		for _, x := range rows {
			if x.ID == id {
				return x.Spec.Name
			}
		}
	}
	return ""
}

// countRunsLocked updates the numbers of runs of the workers from the runs that began or ended in a
// batch. It does not see the commits of other servers; a heartbeat of the worker corrects its number,
// because the store reads the worker's runs for it.
func (d *dispatcher) countRunsLocked(b *batch) {
	for _, id := range b.need.Held {
		if s := d.sessions[id]; s != nil {
			s.running, s.counted, s.countedAt = len(b.rows.Held[id]), true, b.rows.Now
			s.idleLocked()
		}
	}
	var s *session // the session of the previous run in the list: the runs of one worker often follow each other
	for _, r := range b.changes.Runs {
		if s == nil || s.spec.ID != r.Worker {
			s = d.sessions[r.Worker]
		}
		if s == nil {
			continue
		}
		if r.New {
			s.running++
		}
		if r.EndedSeq != 0 {
			s.running = max(0, s.running-1)
			s.idleLocked()
			if c := s.waiting; c != nil && c.request.Messages && s.running == s.spec.Capacity-1 {
				c.notifyClaim() // messages had filled the slots after the claim was sent
			}
		}
	}
}

// idleLocked wakes the claim of a session that runs nothing any more, if an execution may wait for an idle worker. The
// claim may have asked for fewer slots than the worker has, because it was sent before the last run ended.
func (s *session) idleLocked() {
	if s.running == 0 && s.waiting != nil &&
		slices.ContainsFunc(s.lanes, func(l *lane) bool { return l.ID.IsAlone() && l.hint != 0 }) {
		s.waiting.notifyClaim()
	}
}

// sortLocked sorts claims in the order in which the dispatcher serves them. Claims of workers on
// which a due execution failed or was lost come last. Apart from that, the claim comes first whose
// worker runs the fewest executions relative to its slots, and of two such claims the one that has
// waited longest.
func (d *dispatcher) sortLocked(claims []*claim, now machine.Time) {
	if len(claims) < 2 {
		return
	}
	for _, c := range claims {
		c.rank = d.failed.rank(c, now)
	}
	slices.SortFunc(claims, func(a, b *claim) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), compareLoad(a, b), cmp.Compare(a.arrived, b.arrived))
	})
}

// compareLoad compares the shares of their slots that the workers of two claims use.
func compareLoad(a, b *claim) int {
	x, y := int64(a.session.running), int64(b.session.running)
	return cmp.Compare(x*b.capacity(), y*a.capacity())
}

// capacity is the number of the worker's slots, used or not. If the worker has not given it, it is
// the number of slots that are in use or that the claim asks for.
func (c *claim) capacity() int64 {
	return max(1, int64(cmp.Or(c.session.spec.Capacity, c.session.running+c.request.Slots)))
}

// wakeLocked wakes a parked claim that may win executions. The first woken claim that acts sends the
// commands of all woken claims; see sendLocked.
func (d *dispatcher) wakeLocked(c *claim) {
	if !c.woken {
		c.woken = true
		d.woken = append(d.woken, c)
	}
	c.notifyClaim()
}

// sendLocked sends the command of a claim together with the commands of all other woken claims, in
// the order of sortLocked. First it wakes the claims that wait for work of a lane whose timer has
// fired, so that a claim that has just arrived does not overtake them.
func (d *dispatcher) sendLocked(c *claim, now machine.Time) {
	for _, l := range d.timers.expired(now) {
		d.rouseLocked(l, now)
	}
	claims := []*claim{c}
	for _, x := range d.woken {
		x.woken = false
		waits := x != c && x.sent == nil && x.session.waiting == x && !x.session.attention
		if waits && d.mayWinLocked(x, now) {
			claims = append(claims, x)
			x.notifyClaim() // wakes the claim x, so that it waits for its answer
		}
	}
	d.woken = nil
	d.sortLocked(claims, now)
	calls := make([]*call, len(claims))
	for i, x := range claims {
		x.sent = newCall(d.commandLocked(x, nil))
		calls[i] = x.sent
	}
	d.engine.committer.sendAll(calls...)
}
