package machine

import (
	"slices"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// mutant is a planted bug: it changes the rows that are read or the changes that are written.
type mutant struct {
	name    string
	promise string // the promise whose checker must report the bug
	read    func(*keeper, *Rows)
	write   func(*keeper, *Changes)
}

// eachChanged makes a planted bug from a function. The bug calls the function for each execution
// that a batch writes and that existed before the batch.
func eachChanged(with func(is, was *Execution)) func(*keeper, *Changes) {
	return func(k *keeper, c *Changes) {
		for _, e := range c.Executions {
			if was := k.records[e.ID].execution; was != nil {
				with(e, was)
			}
		}
	}
}

func eachWorker(with func(*Worker)) func(*keeper, *Changes) {
	return func(_ *keeper, c *Changes) {
		for _, x := range c.Workers {
			with(x)
		}
	}
}

// dropExecutions is a bug that does not write some of the changed executions.
func dropExecutions(which func(c *Changes, is, was *Execution) bool) func(*keeper, *Changes) {
	return func(k *keeper, c *Changes) {
		c.Executions = slices.DeleteFunc(c.Executions, func(e *Execution) bool {
			was := k.records[e.ID].execution
			return was != nil && which(c, e, was)
		})
	}
}

// eachResource is a bug that writes another state of resources.
func eachResource(with func(*Resource)) func(*keeper, *Changes) {
	return func(_ *keeper, c *Changes) {
		for i, o := range c.Objects {
			if g, err := ReadGate(o); err == nil && g.Resource != nil {
				with(g.Resource)
				written := copied(o)
				written.Body, _ = gateCodec.encode(g)
				c.Objects[i] = written
			}
		}
	}
}

var mutants = []mutant{
	{name: "a claim does not raise the token", promise: "keys", write: eachChanged(func(is, was *Execution) {
		is.Token = was.Token
	})},
	{name: "tokens go down", promise: "G1", write: func(_ *keeper, c *Changes) {
		for _, r := range c.Runs {
			if r.New {
				r.Token = 1<<40 - r.Token
			}
		}
	}},
	{name: "a reopening begins tokens again", promise: "G1", write: eachChanged(func(is, was *Execution) {
		if is.Generation > was.Generation && is.Token == was.Token {
			is.Token = 0
		}
	})},
	{name: "writes of an expired session pass", promise: "G2", read: func(_ *keeper, r *Rows) {
		for _, x := range r.Workers {
			x.ExpiresAt = max(x.ExpiresAt, r.Now+1)
		}
	}},
	{name: "writes after the cancel's grace pass", promise: "G2", read: func(_ *keeper, r *Rows) {
		for _, e := range r.Executions {
			if e.CancelBy.over(r.Now) {
				e.CancelBy = r.Now + 1
			}
		}
	}},
	{name: "a stale checkpoint is written", promise: "G2", write: func(_ *keeper, c *Changes) {
		for _, k := range c.Checkpoints {
			k.Token = max(1, k.Token-1)
		}
	}},
	{name: "an operation's id is not written", promise: "G3", write: func(_ *keeper, c *Changes) {
		for _, s := range c.Signals {
			s.Op = belay.OpID{}
		}
	}},
	{name: "an operation is not looked up", promise: "G2", read: func(_ *keeper, r *Rows) { r.Ops = nil }},
	{name: "acknowledged checkpoints are lost", promise: "G3", write: func(_ *keeper, c *Changes) {
		c.Checkpoints = nil
	}},
	{name: "acknowledged chunks are lost", promise: "G3", write: func(_ *keeper, c *Changes) { c.Chunks = nil }},
	{name: "the end of a run is not written", promise: "G15", write: func(_ *keeper, c *Changes) {
		c.Runs = slices.DeleteFunc(c.Runs, func(r *Run) bool { return !r.New })
	}},
	{name: "actions are not written", promise: "G15", write: func(_ *keeper, c *Changes) { c.Deeds = nil }},
	{name: "a parent is not written with its child's end", promise: "G4",
		write: dropExecutions(func(c *Changes, is, _ *Execution) bool {
			return slices.ContainsFunc(c.Signals, func(s *Signal) bool {
				return s.Execution == is.ID && !s.Child.IsZero()
			})
		})},
	{name: "a child's end is not counted", promise: "G4", write: eachChanged(func(is, was *Execution) {
		is.Open = max(is.Open, was.Open)
	})},
	{name: "a child's end is not delivered", promise: "G15", write: func(_ *keeper, c *Changes) {
		c.Signals = slices.DeleteFunc(c.Signals, func(s *Signal) bool { return !s.Child.IsZero() })
	}},
	{name: "an end is not written", promise: "G4", write: dropExecutions(func(_ *Changes, is, was *Execution) bool {
		return is.State.Terminal() && !was.State.Terminal()
	})},
	{name: "a signal wakes no execution", promise: "G5", write: eachChanged(func(is, was *Execution) {
		if is.State == belay.Waiting && was.State == belay.Waiting {
			is.DueAt = was.DueAt
		}
	})},
	{name: "a retry is never due", promise: "G5", write: eachChanged(func(is, _ *Execution) {
		if is.Reason == "retry" {
			is.DueAt = 0
		}
	})},
	{name: "a reaper without a guard", promise: "G6", read: func(_ *keeper, r *Rows) {
		for _, x := range r.Workers {
			x.ExpiresAt = min(x.ExpiresAt, r.Now)
		}
	}},
	{name: "grace extends the batch's sessions only", promise: "G6",
		write: func(_ *keeper, c *Changes) { c.Grace = 0 }},
	{name: "a cancel is forgotten", promise: "G7", write: eachChanged(func(is, was *Execution) {
		if was.CancelBy == 0 {
			is.CancelBy = 0
		}
	})},
	{name: "an end is reversed", promise: "G7", write: eachChanged(func(is, was *Execution) {
		if was.State.Terminal() && is.Generation == was.Generation {
			is.State, is.FinishedAt, is.Class, is.DueAt = belay.Pending, 0, 0, 1
		}
	})},
	{name: "failures are not counted", promise: "G8", write: eachChanged(func(is, _ *Execution) { is.Attempts = 0 })},
	{name: "losses are not counted", promise: "G8", write: eachChanged(func(is, _ *Execution) { is.Losses = 0 })},
	{name: "the loss of an external owner counts as that of a worker", promise: "G8", read: func(_ *keeper, r *Rows) {
		for _, x := range r.Workers {
			if x.State.Ended() {
				x.Spec.External = false
			}
		}
	}},
	{name: "a renewal with a wrong secret passes", promise: "G2", read: func(k *keeper, r *Rows) {
		for _, c := range k.folding {
			for _, e := range r.Executions {
				if l, ok := c.(*Renew); ok && l.Execution == e.ID && l.Worker == e.Worker {
					e.Secret = l.Secret
				}
			}
		}
	}},
	{name: "a settled lock lives on", promise: "G4", write: eachWorker(func(x *Worker) {
		if x.Spec.External && x.State == belay.WorkerClosed {
			x.State, x.EndedAt, x.Why = belay.WorkerOpen, 0, ""
		}
	})},
	{name: "dropped bytes are not subtracted", promise: "sums", write: func(_ *keeper, c *Changes) { c.Drops = nil }},
	{name: "a claim comes early", promise: "G8", read: claimEarly},
	{name: "workers can claim external executions", promise: "G8", read: func(_ *keeper, r *Rows) {
		for _, e := range r.Executions {
			e.External = false
		}
	}},
	{name: "workers can claim the next generation of an external execution", promise: "G8",
		write: eachChanged(func(is, was *Execution) {
			is.External = is.External && is.Generation == was.Generation
		})},
	{name: "keys are not written", promise: "G9", write: func(_ *keeper, c *Changes) { c.Keys = nil }},
	{name: "dead letters are not written", promise: "G10", write: func(_ *keeper, c *Changes) { c.DeadLetters = nil }},
	{name: "dead letters are not resolved", promise: "G10", write: func(_ *keeper, c *Changes) {
		c.DeadLetters = slices.DeleteFunc(c.DeadLetters, func(d *DeadLetter) bool { return !d.New })
	}},
	{name: "a drain is forgotten", promise: "G11", write: eachWorker(func(x *Worker) {
		if x.State == belay.WorkerDraining {
			x.State = belay.WorkerOpen
		}
	})},
	{name: "a session comes back", promise: "session", write: eachWorker(func(x *Worker) {
		if x.State.Ended() {
			x.State = belay.WorkerOpen
		}
	})},
	{name: "a signal is consumed twice", promise: "signals", write: func(_ *keeper, c *Changes) { c.Consumed = nil }},
	{name: "a cost is rounded to whole tokens", promise: "cost", write: eachChanged(func(is, _ *Execution) {
		whole, _ := is.Cost.Tokens()
		is.Cost = belay.CostOf(whole)
	})},
	{name: "a parent is not charged for its child", promise: "cost",
		write: eachChanged(func(is, was *Execution) {
			if is.Seq == was.Seq {
				is.Cost = was.Cost
			}
		})},
	{name: "a child that spends the budget does not pause its root", promise: "budget",
		write: eachChanged(func(is, was *Execution) {
			if is.SpentBy == is.ID && was.State != belay.Running {
				is.State, is.PausedFrom, is.SpentBy = was.State, 0, belay.ExecutionID{}
			}
		})},
	{name: "a raise does not resume the child", promise: "G5", write: eachChanged(func(is, was *Execution) {
		if was.State == belay.Paused && !was.Parent.IsZero() && was.SpentBy != was.ID && !was.SpentBy.IsZero() &&
			!is.State.Terminal() {
			is.State, is.PausedFrom, is.SpentBy = was.State, was.PausedFrom, was.SpentBy
		}
	})},
	{name: "a raise does not resume the root", promise: "budget", write: eachChanged(func(is, was *Execution) {
		if was.SpentBy == was.ID && was.State == belay.Paused && !is.State.Terminal() {
			is.State, is.PausedFrom, is.SpentBy = was.State, was.PausedFrom, was.SpentBy
		}
	})},
	{name: "a cost is added twice", promise: "cost", write: eachChanged(func(is, was *Execution) {
		is.Cost += is.Cost - was.Cost
	})},
	{name: "a discarded step keeps its result", promise: "discard", write: func(_ *keeper, c *Changes) {
		c.Pruned = nil
	}},
	{name: "CheckAt is not written", promise: "CheckAt", write: eachChanged(func(is, was *Execution) {
		is.CheckAt = was.CheckAt
	})},
	{name: "a pause forgets the state before it", promise: "row", write: eachChanged(func(is, _ *Execution) {
		is.PausedFrom = 0
	})},
	{name: "a swap begins while runs use the resource", promise: "G13", read: func(_ *keeper, r *Rows) {
		for i := range r.Counts {
			if r.Counts[i].Gate == gpu {
				r.Counts[i].Held = 0
			}
		}
	}},
	{name: "the swap that is under way is forgotten", promise: "G13", write: eachResource(func(r *Resource) {
		r.Swap = nil
	})},
	{name: "the mode of a run is not stored", promise: "G13", write: eachResource(func(r *Resource) { r.Mode = "A" })},
	{name: "the marker of a swap outlives the swap", promise: "G5", write: func(k *keeper, c *Changes) {
		for i, o := range c.Objects {
			was := k.objects[o.ObjectRef]
			if g, err := ReadGate(o); err == nil && was != nil && g.Resource != nil && g.Resource.Swap == nil {
				if old, err := ReadGate(was); err == nil && old.Resource != nil && old.Resource.Swap != nil {
					kept := copied(o)
					kept.Body = was.Body
					c.Objects[i] = kept
				}
			}
		}
	}},
	{name: "rows are read before they are locked", promise: "G4", read: readOld},
}

// claimEarly is a bug that lets workers claim executions some seconds before they are due.
func claimEarly(k *keeper, r *Rows) {
	for _, e := range k.where(func(e *Execution) bool { return e.Ready() > k.now && e.Ready() < k.now.Add(5e9) }) {
		for i := range r.Ready {
			if r.Ready[i].Next == 0 || slices.ContainsFunc(r.Executions, func(x *Execution) bool {
				return x.ID == e.ID
			}) {
				continue
			}
			early := copied(e)
			early.DueAt = k.now
			r.Executions = append(r.Executions, early)
			r.Ready[i].Due = append(r.Ready[i].Due, e.ID)
		}
	}
}

// readOld is a bug: if the Seq (the number of the last change) of a running execution is divisible
// by 3, the execution is read with its previous Seq.
func readOld(k *keeper, r *Rows) {
	for i, e := range r.Executions {
		if e.State == belay.Running && e.Seq%3 == 0 {
			old := copied(e)
			old.Seq--
			r.Executions[i] = old
			for j := range r.Ready {
				r.Ready[j].Due = slices.DeleteFunc(r.Ready[j].Due, func(id belay.ExecutionID) bool {
					return id == e.ID
				})
			}
		}
	}
}

// about reports whether an error names the given guarantee or invariant of rows, such as G5.
func about(err error, promise string) bool {
	return strings.Contains(err.Error(), promise+": ")
}

// TestCheckersCatchPlantedBugs shows that the checkers find faults: each of these bugs makes a
// checker report the guarantee or invariant that the bug violates. Most bugs violate other
// guarantees as well; the test continues after such faults.
func TestCheckersCatchPlantedBugs(t *testing.T) {
	caught := 0
	all := slices.Concat(mutants, notifyMutants, targetMutants)
	for i, m := range all {
		var err error
		tries := 0
		for ; err == nil && tries < 5000; tries++ {
			k := newKeeper()
			k.onRead, k.onWrite = m.read, m.write
			if i >= len(mutants)+len(notifyMutants) {
				k.targets = testTargets()
			}
			p := newPlayer(k, randomBytes(uint64(tries), 600))
			p.onlyPromise = m.promise
			err = p.play()
		}
		if err == nil || !about(err, m.promise) {
			t.Errorf("%s: not caught as %s in %d histories: %v", m.name, m.promise, tries, err)
			continue
		}
		caught++
	}
	t.Logf("%d of %d planted bugs caught", caught, len(all))
}
