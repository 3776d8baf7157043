package simulation

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// mutants are the planted bugs, at least one for each promise that is checked.
var mutants = slices.Concat(otherMutants, gateMutants, resourceMutants, costMutants, repairMutants, mailboxMutants,
	scheduleMutants, notifyMutants, targetMutants)

var otherMutants = []*mutant{
	{name: "tokens go back", meant: "G1", after: func(_ *world, m *mutantState, _ *machine.Rows,
		c *machine.Changes) bool {
		for _, r := range c.Runs {
			for _, e := range c.Executions {
				if r.New && r.Execution == e.ID && r.Token == e.Token && r.Token > 1 && m.rng.IntN(3) == 0 {
					r.Token -= 1000
					e.Token -= 1000
				}
			}
		}
		return false
	}},
	{name: "no token check", meant: "G2", plan: func(p *plan) {
		p.calmDown()
		p.bare, p.workers, p.workerFreeze, p.gates = 2, 2, time.Second, false
		p.ttl = func(*rand.Rand) time.Duration { return time.Second }
	}, request: func(w *world, request any) {
		switch r := request.(type) {
		case *belay.Save:
			r.Lease = currentLease(w, r.Lease)
		case *belay.Settlement:
			r.Lease = currentLease(w, r.Lease)
		}
	}},
	{name: "renewal without its secret", meant: "G2", plan: func(p *plan) {
		p.outside, p.workerFreeze, p.notify = 2, 2*time.Second, false
	}, request: func(w *world, request any) {
		if r, is := request.(*belay.Lease); is {
			*r = currentLease(w, *r)
		}
	}},
	{name: "loss of an external owner counts as that of a worker", meant: "G8", plan: func(p *plan) {
		p.outside, p.workerCrash = 2, 2*time.Second
	}, before: func(_ *world, _ *mutantState, _ *machine.Need, rows *machine.Rows) {
		for _, x := range rows.Workers {
			x.Spec.External = x.Spec.External && x.State != belay.WorkerLost
		}
	}},
	{name: "acknowledged before it is written", meant: "G3", after: func(_ *world, m *mutantState, _ *machine.Rows,
		c *machine.Changes) bool {
		return !c.Empty() && m.rng.IntN(30) == 0
	}},
	{name: "checkpoint lost when reassigned", meant: "G4", read: func(q store.Read, r *machine.Record) {
		if n := len(r.Checkpoints); q.Resume && n > 0 {
			r.Checkpoints = r.Checkpoints[:n-1]
		}
	}},
	{name: "parent not changed in the commit of its child's end", meant: "G4", after: func(_ *world, _ *mutantState,
		_ *machine.Rows, c *machine.Changes) bool {
		for _, s := range c.Signals {
			if !s.Child.IsZero() {
				c.Executions = slices.DeleteFunc(c.Executions, func(e *machine.Execution) bool {
					return e.ID == s.Execution
				})
			}
		}
		c.Signals = slices.DeleteFunc(c.Signals, func(s *machine.Signal) bool { return !s.Child.IsZero() })
		return false
	}},
	{name: "wake-up lost when suspended", meant: "G5", after: func(_ *world, _ *mutantState, _ *machine.Rows,
		c *machine.Changes) bool {
		for _, e := range c.Executions {
			if e.State == belay.Waiting && e.SignalSeq > e.SignalSeen && e.RunAt == 0 && e.Reason == "signal" {
				e.SignalSeen, e.DueAt = e.SignalSeq, 0
			}
		}
		return false
	}},
	{name: "dead owners forgotten", meant: "G5", due: func(_ *world, _ *mutantState, d *store.Due) { d.Lost = nil }},
	{name: "claim that overlooks due work", meant: "G5", plan: (*plan).calmDown, before: func(_ *world, m *mutantState,
		_ *machine.Need, rows *machine.Rows) {
		for i := range rows.Ready {
			if m.rng.IntN(3) == 0 {
				rows.Ready[i] = machine.ReadyLane{}
			}
		}
	}},
	{name: "lost hints found by the slow poll alone", meant: "G5", plan: func(p *plan) {
		p.calmDown()
		p.nodes, p.hints, p.slowPoll, p.hintPoll = 2, true, 20*time.Second, 300*time.Millisecond
	}, ready: func([]store.LaneHint) []store.LaneHint { return nil }},
	{name: "reaper without a guard", meant: "G6", due: func(w *world, m *mutantState, d *store.Due) {
		workers, err := w.store.Workers(context.Background(), store.WorkerQuery{Limit: 1})
		if err == nil && len(workers) > 0 && !workers[0].State.Ended() && m.rng.IntN(20) == 0 {
			m.worker = workers[0].ID
			d.Workers = append(d.Workers, m.worker)
		}
	}, before: func(_ *world, m *mutantState, _ *machine.Need, rows *machine.Rows) {
		for _, x := range rows.Workers {
			if x.ID == m.worker {
				x.ExpiresAt = min(x.ExpiresAt, rows.Now)
				m.worker = belay.WorkerID{}
			}
		}
	}},
	{name: "heartbeat that renews less than it says", meant: "G6", says: "was promised",
		after: func(_ *world, _ *mutantState, rows *machine.Rows, c *machine.Changes) bool {
			for _, x := range c.Workers {
				// the heartbeat and the expiry move back by the same duration, so that they still
				// agree with each other
				if x.HeartbeatAt == rows.Now && !x.State.Ended() {
					x.HeartbeatAt, x.ExpiresAt = x.HeartbeatAt.Add(-x.Spec.TTL.D()*3/4),
						x.ExpiresAt.Add(-x.Spec.TTL.D()*3/4)
				}
			}
			return false
		}},
	{name: "heartbeat that renews more than it says", meant: "G6", says: "its last heartbeat was over",
		plan: (*plan).calmDown, after: func(_ *world, _ *mutantState, rows *machine.Rows, c *machine.Changes) bool {
			for _, x := range c.Workers {
				if x.HeartbeatAt == rows.Now && !x.State.Ended() {
					x.ExpiresAt = x.ExpiresAt.Add(5 * time.Second)
				}
			}
			return false
		}},
	{name: "time that stands still when the clock is set back", meant: "G5", plan: func(p *plan) {
		p.calmDown()
		p.clockStep, p.clockJump = 2*time.Second, 2*time.Hour
	}, still: true},
	{name: "worker that does not read its clock", meant: "G2", says: "its worker's fence", plan: func(p *plan) {
		p.workerFreeze, p.cut = 2*time.Second, 2*time.Second
		p.ttl = func(*rand.Rand) time.Duration { return time.Second }
	}, blind: true},
	{name: "every claim looks like the first", meant: "G4", says: "the log of the run", plan: func(p *plan) {
		p.epoch = 2 * time.Second
	}, reply: func(_ *mutantState, reply any) {
		if r, is := reply.(*belay.ClaimReply); is {
			for i := range r.Assignments {
				r.Assignments[i].First = true
			}
		}
	}},
	{name: "grace not written", meant: "G6", before: func(_ *world, _ *mutantState, _ *machine.Need,
		rows *machine.Rows) {
		rows.Mark = rows.Now
	}},
	{name: "reaper that ignores expired sessions", meant: "G6", plan: func(p *plan) {
		p.calmDown()
		p.workerCrash = time.Second
	}, due: func(_ *world, m *mutantState, d *store.Due) {
		if m.rng.IntN(4) > 0 {
			d.Workers = nil
		}
	}},
	{name: "success after a cancel", meant: "G7", plan: func(p *plan) {
		p.calmDown()
		p.bare, p.clients, p.gates = 3, 4, false
	}, after: func(_ *world, _ *mutantState, _ *machine.Rows,
		c *machine.Changes) bool {
		for _, e := range c.Executions {
			for _, r := range c.Runs {
				if r.Execution == e.ID && e.State == belay.Cancelled && r.Outcome == belay.OutcomeSucceeded {
					e.State = belay.Succeeded
				}
			}
		}
		return false
	}},
	{name: "claim before the backoff", meant: "G8", after: func(_ *world, _ *mutantState, rows *machine.Rows,
		c *machine.Changes) bool {
		for _, e := range c.Executions {
			if e.State == belay.Pending && e.Reason == "retry" {
				e.DueAt = rows.Now
			}
		}
		return false
	}},
	{name: "sleep that ends early", meant: "G8", read: func(q store.Read, r *machine.Record) {
		for _, k := range r.Checkpoints {
			if q.Resume && k.Kind == belay.KindWait {
				k.At -= machine.Time(time.Second / time.Microsecond)
			}
		}
	}},
	{name: "attempt not charged", meant: "G8", after: func(_ *world, _ *mutantState, _ *machine.Rows,
		c *machine.Changes) bool {
		for _, e := range c.Executions {
			if e.State == belay.Pending && e.Reason == "retry" {
				e.Attempts = 0
			}
		}
		return false
	}},
	{name: "idempotency key forgotten", meant: "G9", before: func(_ *world, _ *mutantState, _ *machine.Need,
		rows *machine.Rows) {
		rows.Keys = nil
	}, after: func(_ *world, _ *mutantState, _ *machine.Rows, c *machine.Changes) bool {
		c.Keys = nil
		return false
	}},
	{name: "dead letter dropped", meant: "G10", after: func(_ *world, _ *mutantState, _ *machine.Rows,
		c *machine.Changes) bool {
		c.DeadLetters = slices.DeleteFunc(c.DeadLetters, func(d *machine.DeadLetter) bool { return d.New })
		return false
	}},
	{name: "dead letter in another transaction", meant: "G10", after: func(_ *world, m *mutantState, _ *machine.Rows,
		c *machine.Changes) bool {
		late := m.letters
		m.letters = nil
		c.DeadLetters = slices.DeleteFunc(c.DeadLetters, func(d *machine.DeadLetter) bool {
			if d.New {
				m.letters = append(m.letters, d)
			}
			return d.New
		})
		c.DeadLetters = append(c.DeadLetters, late...)
		return false
	}},
	{name: "drained worker may claim", meant: "G11", after: func(_ *world, _ *mutantState, _ *machine.Rows,
		c *machine.Changes) bool {
		for _, x := range c.Workers {
			if x.State == belay.WorkerDraining {
				x.State = belay.WorkerOpen
			}
		}
		return false
	}},
	{name: "head of a lane passed over", meant: "G12", before: func(_ *world, _ *mutantState, _ *machine.Need,
		rows *machine.Rows) {
		for i, l := range rows.Ready {
			if len(l.Due) > 1 {
				rows.Ready[i].Due = l.Due[1:]
			}
		}
	}},
	{name: "seq with a gap", meant: "G15", after: func(_ *world, m *mutantState, _ *machine.Rows,
		c *machine.Changes) bool {
		for _, e := range c.Executions {
			if m.rng.IntN(100) == 0 {
				e.Seq++
			}
		}
		return false
	}},
	{name: "event not shown to a watcher", meant: "G15", reply: func(m *mutantState, reply any) {
		if events, is := reply.(*[]belay.Event); is && len(*events) > 1 && m.rng.IntN(10) == 0 {
			*events = (*events)[1:]
		}
	}},
	{name: "deleted before the retention is over", meant: "retention", says: "and was deleted with those", plan: func(
		p *plan,
	) {
		p.withRetention(leastRetention)
	}, prune: func(w *world, over *store.Retention) { over.Before = over.Before.Add(w.plan.retention / 2) }},
	{name: "never deleted", meant: "retention", says: "it was not deleted", plan: func(p *plan) {
		p.withRetention(leastRetention)
	}, prune: func(_ *world, over *store.Retention) { over.Before = 1 }},
	{name: "open dead letter deleted", meant: "retention", says: "its dead letter is open", plan: func(p *plan) {
		p.withRetention(leastRetention)
	}, prune: func(_ *world, over *store.Retention) { over.Letters = over.Before }},
}

// currentLease returns the valid lease of the execution, also if the caller has an older lease.
func currentLease(w *world, l belay.Lease) belay.Lease {
	r, err := w.store.Read(context.Background(), store.Read{Execution: l.Execution})
	if err != nil || r.Execution.State != belay.Running {
		return l
	}
	e := r.Execution
	return belay.Lease{Execution: e.ID, Worker: e.Worker, Token: e.Token, Secret: e.Secret}
}
