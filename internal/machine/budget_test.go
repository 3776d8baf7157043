package machine

import (
	"testing"

	"github.com/belaydev/belay"
)

func budget(cost belay.Cost) func(*belay.Submission) {
	return func(s *belay.Submission) { s.Budget = &belay.Budget{Cost: cost} }
}

func (s *stage) spend(l belay.Lease, cost belay.Cost) Reply {
	s.t.Helper()
	save := s.save(l, belay.KindStep, "spend")
	save.CostTokens = cost
	return s.do(save)
}

func (s *stage) raise(id belay.ExecutionID, cost belay.Cost) *Act {
	return s.act(id, belay.ActionBudget, func(c *belay.Control) { c.Budget = &belay.Budget{Cost: cost} })
}

// If a report of a cost spends the budget of the root, the root is paused, and the execution that
// reported the cost is paused when its run ends. Each other descendant is paused before its next run.
// If the budget is raised, the root resumes at once and the others with the next sweep.
func TestABudgetSpentInAChildPausesItsRoot(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	root := s.run(w, budget(100))
	child := s.run(w, s.childOf(root, "child"))
	other := s.run(w, s.childOf(child, "other"))
	s.do(s.settle(root, belay.OutcomeSuspended))
	s.spend(child, 99)
	s.is(root.Execution, "waiting(signal)")
	s.spend(other, 1)
	s.is(root.Execution, "paused(waiting)")
	s.is(child.Execution, "running") // the child has reported no cost since
	s.is(other.Execution, "running+pausing")
	s.do(s.settle(other, belay.OutcomeReleased))
	s.do(s.settle(child, belay.OutcomeReleased))
	s.is(child.Execution, "pending(released)")
	if r := s.do(s.claims(w, 5)); len(r.Claims) != 0 {
		t.Fatalf("claimed %+v though the budget is spent", r.Claims)
	}
	for _, id := range []belay.ExecutionID{child.Execution, other.Execution} {
		s.is(id, "paused(pending)")
		if r := reason(s.row(id)); r.Code != "budget" {
			t.Errorf("a descendant is paused because of %+v", r)
		}
		s.refused(&Unspend{id}, belay.CodeConflict)
		s.refused(s.act(id, belay.ActionResume), belay.CodeConflict)
	}
	if r := reason(s.row(root.Execution)); r.Code != "budget" ||
		r.Text != "its cost of 0.01 tokens has reached its budget of 0.01" {
		t.Errorf("the root is paused because of %+v", r)
	}
	s.do(s.raise(root.Execution, 100+1))
	s.is(root.Execution, "waiting(signal)")
	s.do(&Unspend{child.Execution})
	s.do(&Unspend{other.Execution})
	s.is(child.Execution, "pending(released)")
	s.is(other.Execution, "pending(released)")
	if r := s.do(s.claims(w, 5)); len(r.Claims) != 2 {
		t.Errorf("claimed %+v after the raise, want both descendants", r.Claims)
	}
}

// An execution that was scheduled before the budget of its root was spent does not begin: the accept pauses it.
func TestABudgetSpentBeforeAnAccept(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	root := s.run(w, budget(100))
	id := s.submit(s.childOf(root, "child"))
	token := s.do(&Schedule{Execution: id, Worker: w, Secret: belay.Secret{5}}).Execution.Token
	s.spend(root, 100)
	s.is(id, "scheduled")
	if r := s.do(&Accept{w, id, token, 1}); len(r.Claims) != 0 {
		t.Errorf("accepted %+v though the budget is spent", r.Claims)
	}
	s.is(id, "paused(pending)")
	s.refused(&Accept{w, id, token, 2}, belay.CodeConflict)
	s.do(s.raise(root.Execution, 101))
	s.do(&Unspend{id})
	s.is(id, "pending(released)")
}

// The answer to a save that spends the budget, and to a raise of the budget, is the seq of the row that
// it wrote. A repetition gets the same answer and charges nothing.
func TestRepeatedReportsAndRaises(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"), budget(5))
	save := s.save(l, belay.KindStep, "a")
	save.CostTokens = 5
	first := s.do(save)
	again := *save
	again.Repeat = true
	if r := s.do(&again); r.Seq != first.Seq || !r.Replayed {
		t.Errorf("repeated as %+v, first %+v", r, first)
	}
	raise := s.raise(l.Execution, 10)
	first = s.do(raise)
	if r := s.do(raise); r.Seq != first.Seq || !r.Replayed {
		t.Errorf("raised again as %+v, first %+v", r, first)
	}
	other := *raise
	other.Budget = &belay.Budget{Cost: 11}
	s.refused(&other, belay.CodeIdempotencyMismatch)
	if e := s.row(l.Execution); e.Cost != 5 || e.Budget != 10 || e.PauseRequested {
		t.Errorf("the row afterwards: %+v", e)
	}
}

// A raise of the budget does not end a pause by an operator, whether the operator paused the
// execution before or after the budget was spent.
func TestARaiseDoesNotEndAnOperatorsPause(t *testing.T) {
	for name, first := range map[string]bool{"before": true, "after": false} {
		s := newStage(t)
		l := s.run(s.worker("w"), budget(5))
		if first {
			s.do(s.act(l.Execution, belay.ActionPause))
		}
		s.spend(l, 5)
		if !first {
			s.do(s.act(l.Execution, belay.ActionPause))
		}
		s.do(s.settle(l, belay.OutcomeReleased))
		s.refused(s.act(l.Execution, belay.ActionResume), belay.CodeConflict)
		s.do(s.raise(l.Execution, 6))
		t.Log(name)
		s.is(l.Execution, "paused(pending)")
		s.do(s.act(l.Execution, belay.ActionResume))
		s.is(l.Execution, "pending(released)")
	}
}

// If an operator sets a budget that is not above the cost, the execution is paused, or stays paused.
func TestABudgetBelowTheCost(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	s.spend(l, 50)
	s.is(l.Execution, "running")
	s.do(s.raise(l.Execution, 50))
	s.is(l.Execution, "running+pausing")
	s.do(s.settle(l, belay.OutcomeReleased))
	s.do(s.raise(l.Execution, 49))
	s.is(l.Execution, "paused(pending)")
	s.do(s.raise(l.Execution, 51))
	s.is(l.Execution, "pending(released)")
}

// A sum of costs is at most MaxCost and does not overflow, so the largest budget can be spent too.
func TestTheLargestBudget(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"), budget(belay.MaxCost))
	s.spend(l, belay.MaxCost-1)
	s.is(l.Execution, "running")
	s.spend(l, belay.MaxCost)
	s.is(l.Execution, "running+pausing")
	if c := s.row(l.Execution).Cost; c != belay.MaxCost {
		t.Errorf("it costs %s", c)
	}
}

// A budget must be above 0, and only a root has one.
func TestRefusedBudgets(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"), budget(5))
	for _, cost := range []belay.Cost{0, -1, -belay.MaxCost} {
		s.refused(s.submission(budget(cost)), belay.CodeInvalid)
		s.refused(s.raise(l.Execution, cost), belay.CodeInvalid)
	}
	s.refused(s.submission(s.childOf(l, "rich"), budget(belay.MaxCost)), belay.CodeInvalid)
	child := s.submit(s.childOf(l, "poor"))
	s.refused(s.raise(child, belay.MaxCost), belay.CodeConflict)
	s.refused(s.act(l.Execution, belay.ActionPause, func(c *belay.Control) {
		c.Budget = &belay.Budget{Cost: 7}
	}), belay.CodeInvalid)
	s.refused(s.submission(budget(6), func(b *belay.Submission) { b.ID = l.Execution }), belay.CodeIdempotencyMismatch)
}

// A failed execution whose budget is spent can be reopened, and runs after its budget is raised. A fork has the
// budget of its original and costs nothing yet.
func TestReopenAndForkOfASpentBudget(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"), budget(5), policy(belay.Policy{MaxAttempts: 1}))
	s.do(s.settle(l, belay.OutcomeFailed, func(x *belay.Settlement) { x.CostTokens = 5 }))
	s.is(l.Execution, "failed")
	s.refused(s.raise(l.Execution, 6), belay.CodeConflict)
	lock := s.lock(belay.WorkerID(s.id()), l.Execution)
	lock.Reopen = true
	s.refused(lock, belay.CodeConflict)
	fork := s.do(s.act(l.Execution, belay.ActionFork)).ID
	if f := s.row(fork); f.Budget != 5 || f.Cost != 0 {
		t.Errorf("the fork costs %s of %s", f.Cost, f.Budget)
	}
	s.do(s.act(l.Execution, belay.ActionRetry))
	if r := s.do(s.claims(l.Worker, 5)); len(r.Claims) != 1 || r.Claims[0].Execution.ID != fork {
		t.Errorf("claimed %+v, want the fork", r.Claims)
	}
	s.is(l.Execution, "paused(pending)")
	s.do(s.raise(l.Execution, 6))
	s.is(l.Execution, "pending(reopened)")
}

// The spent budget of a root that has ended does not keep an abandoned child from running.
func TestAnEndedRootFreesItsChildren(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	root := s.run(w, budget(5))
	child := s.run(w, s.childOf(root, "c"), policy(belay.Policy{Abandon: true}))
	s.do(s.settle(child, belay.OutcomeReleased, func(x *belay.Settlement) { x.CostTokens = 5 }))
	s.is(child.Execution, "paused(pending)")
	s.do(s.act(root.Execution, belay.ActionCancel, func(c *belay.Control) { c.Grace = 1 }))
	s.do(s.settle(root, belay.OutcomeCancelled))
	s.do(&Unspend{child.Execution})
	s.is(child.Execution, "pending(released)")
}

// An execution whose budget is spent cannot be locked or scheduled.
func TestASpentBudgetKeepsOtherOwnersAway(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	root := s.run(w, budget(5))
	child := s.submit(s.childOf(root, "c"))
	s.spend(root, 5)
	s.is(child, "pending")
	s.refused(&Schedule{Execution: child, Worker: w, Secret: belay.Secret{1}}, belay.CodeConflict)
	s.refused(s.lock(belay.WorkerID(s.id()), child), belay.CodeConflict)
}
