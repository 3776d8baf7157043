package machine

import (
	"time"

	"github.com/belaydev/belay"
)

// subject is an execution in one of the situations of testdata/rules.txt, with its workers.
type subject struct {
	*stage
	id    belay.ExecutionID
	lease belay.Lease // the lease of the execution's last claim, zero if it was never claimed
	owner belay.WorkerID
	other belay.WorkerID // another worker with free slots that may claim the same executions
}

// situation is the state of an execution and of all other rows that the rules read.
type situation struct {
	name string // in the form state/detail
	says string
	set  func(*subject)
}

const (
	hour  = time.Hour
	grace = 10 * time.Second // belay.DefaultCancelGrace
)

func (x *subject) submitted(p belay.Policy, with ...func(*belay.Submission)) {
	x.id = x.submit(append(with, policy(p))...)
	x.lease = belay.Lease{Execution: x.id, Worker: x.owner, Token: 1}
}

func (x *subject) running(p belay.Policy, with ...func(*belay.Submission)) {
	x.submitted(p, with...)
	x.lease = x.win(x.owner)
}

func (x *subject) scheduled(p belay.Policy) {
	x.submitted(p)
	r := x.do(&Schedule{Execution: x.id, Worker: x.owner, Secret: belay.Secret{9}})
	x.lease = leaseOf(r.Execution)
}

func (x *subject) waiting(p belay.Policy, wait time.Duration) {
	x.running(p)
	x.do(x.settle(x.lease, belay.OutcomeSuspended, func(s *belay.Settlement) { s.Wait = wait }))
}

// forget returns a Forget command for the execution, as if its retention were over.
func (x *subject) forget() Command { return &Forget{x.id, x.now + 1} }

// outside makes an external execution and locks it.
func (x *subject) outside(p belay.Policy) {
	x.submitted(p, external)
	x.owner = belay.WorkerID(x.stage.id())
	x.lease = leaseOf(&x.do(x.lock(x.owner, x.id)).Claims[0].Execution)
}

// parked makes the execution wait at a limit whose only place another execution has.
func (x *subject) parked() {
	first := x.worker("first")
	x.run(first, limit("crawler", 1))
	x.submitted(belay.Policy{}, limit("crawler", 1))
	x.do(x.claims(first, 1))
}

func external(s *belay.Submission) { s.External = true }

// child makes a child of a running parent and returns the parent's lease. Another worker owns the
// parent, so that the child's owner can be lost while the parent's owner is alive.
func (x *subject) child(p belay.Policy) belay.Lease {
	parent := x.run(x.worker("parent's"))
	x.submitted(p, x.childOf(parent, "c"))
	return parent
}

func (x *subject) runningChild(p belay.Policy) belay.Lease {
	parent := x.child(p)
	x.lease = x.win(x.owner)
	return parent
}

// lost lets the owner's session expire and ends it as lost.
func (x *subject) lost() {
	x.overdue()
	x.do(&Expire{x.owner})
}

// overdue moves time past the expiry of the owner's session and of no other session. The session is
// not marked as ended yet.
func (x *subject) overdue() {
	x.pass(8 * time.Second)
	for id := range x.workers {
		if id != x.owner {
			x.do(&Heartbeat{Heartbeat: belay.Heartbeat{Worker: id}})
		}
	}
	x.pass(8 * time.Second)
}

func failing(s *belay.Settlement) {
	s.Failure = &belay.Failure{Class: belay.ClassTransient, Message: "no"}
}

func within(d time.Duration) belay.Duration { return belay.Duration(d) }

// situations are the situations of testdata/rules.txt, grouped by state.
var situations = []situation{
	{"missing", "no such execution", func(x *subject) {
		x.id = belay.ExecutionID(x.stage.id())
		x.lease = belay.Lease{Execution: x.id, Worker: x.owner, Token: 1}
	}},

	{"pending", "due, never claimed", func(x *subject) { x.submitted(belay.Policy{}) }},
	{"pending/delayed", "due in an hour", func(x *subject) {
		x.submitted(belay.Policy{}, func(s *belay.Submission) { s.DueAt = x.now.Add(hour).Time() })
	}},
	{"pending/needing", "due, and fails without a worker", func(x *subject) {
		x.submitted(belay.Policy{OnNoWorker: belay.FailNoWorker})
	}},
	{"pending/external", "owned from outside only", func(x *subject) {
		x.submitted(belay.Policy{}, func(s *belay.Submission) { s.External = true })
	}},
	{"pending/gated", "due, and parked by a gate", func(x *subject) {
		x.parked()
	}},
	{"pending/retrying", "a run failed, its backoff lasts", func(x *subject) {
		x.running(belay.Policy{})
		x.do(x.settle(x.lease, belay.OutcomeFailed, failing))
	}},
	{"pending/released", "given back by its worker", func(x *subject) {
		x.running(belay.Policy{})
		x.do(x.settle(x.lease, belay.OutcomeReleased))
	}},
	{"pending/reopened", "in its second generation", func(x *subject) {
		x.running(belay.Policy{MaxAttempts: 1})
		x.do(x.settle(x.lease, belay.OutcomeFailed, failing))
		x.do(x.act(x.id, belay.ActionRetry))
	}},
	{"pending/start-over", "its start timeout is over", func(x *subject) {
		x.submitted(belay.Policy{StartTimeout: within(time.Second)})
		x.pass(time.Second)
	}},
	{"pending/total-over", "ran before, its timeout is over", func(x *subject) {
		x.running(belay.Policy{Timeout: within(time.Second)})
		x.do(x.settle(x.lease, belay.OutcomeReleased))
		x.pass(time.Second)
	}},
	{"pending/child", "its parent runs", func(x *subject) { x.child(belay.Policy{}) }},
	{"pending/orphan", "its parent has ended", func(x *subject) {
		x.do(x.settle(x.child(belay.Policy{}), belay.OutcomeSucceeded))
	}},
	{"pending/leaving", "its parent is being cancelled", func(x *subject) {
		x.do(x.act(x.child(belay.Policy{}).Execution, belay.ActionCancel))
	}},
	{"pending/outlived", "its parent ended and was reopened", func(x *subject) {
		p := x.child(belay.Policy{})
		x.do(x.settle(p, belay.OutcomeFailed, func(s *belay.Settlement) {
			s.Failure = &belay.Failure{Class: belay.ClassPermanent}
		}))
		x.do(x.act(p.Execution, belay.ActionRetry))
	}},
	{"pending/abandoned", "its parent has ended, it may live on", func(x *subject) {
		x.do(x.settle(x.child(belay.Policy{Abandon: true}), belay.OutcomeSucceeded))
	}},

	{"scheduled", "assigned to its owner", func(x *subject) { x.scheduled(belay.Policy{}) }},
	{"scheduled/over", "not accepted within its timeout", func(x *subject) {
		x.scheduled(belay.Policy{ScheduledTimeout: within(time.Second)})
		x.pass(time.Second)
	}},
	{"scheduled/over-fail", "the same, and on_expired is fail", func(x *subject) {
		x.scheduled(belay.Policy{ScheduledTimeout: within(time.Second), OnExpired: belay.FailExpired})
		x.pass(time.Second)
	}},
	{"scheduled/draining", "its owner drains", func(x *subject) {
		x.scheduled(belay.Policy{})
		x.do(&Drain{x.owner})
	}},
	{"scheduled/overdue", "its owner's session has expired, and was not ended yet", func(x *subject) {
		x.scheduled(belay.Policy{})
		x.overdue()
	}},
	{"scheduled/lost", "its owner was lost", func(x *subject) {
		x.scheduled(belay.Policy{})
		x.lost()
	}},

	{"running/spent", "its budget is spent, so it was asked to pause", func(x *subject) {
		x.spending()
		save := x.save(x.lease, belay.KindStep, "key")
		save.CostTokens = 5
		x.do(save)
	}},

	{"running", "a live worker owns it", func(x *subject) { x.running(belay.Policy{}) }},
	{"running/child", "and its parent waits for it", func(x *subject) {
		p := x.runningChild(belay.Policy{})
		x.do(x.settle(p, belay.OutcomeSuspended))
	}},
	{"running/orphan", "a child whose parent has ended", func(x *subject) {
		x.do(x.settle(x.runningChild(belay.Policy{}), belay.OutcomeSucceeded))
	}},
	{"running/accepted", "assigned to its owner and accepted", func(x *subject) {
		x.scheduled(belay.Policy{})
		x.do(&Accept{x.owner, x.id, x.lease.Token, 1})
	}},
	{"running/cancelling", "cancelled, the grace lasts", func(x *subject) {
		x.running(belay.Policy{})
		x.do(x.act(x.id, belay.ActionCancel))
	}},
	{"running/cancel-over", "cancelled, the grace is over", func(x *subject) {
		x.running(belay.Policy{})
		x.do(x.act(x.id, belay.ActionCancel))
		x.pass(grace)
	}},
	{"running/pausing", "asked to pause", func(x *subject) {
		x.running(belay.Policy{})
		x.do(x.act(x.id, belay.ActionPause))
	}},
	{"running/preempting", "asked to yield", func(x *subject) {
		x.running(belay.Policy{})
		x.do(x.act(x.id, belay.ActionPreempt))
	}},
	{"running/last-attempt", "one more failure ends it", func(x *subject) { x.running(belay.Policy{MaxAttempts: 1}) }},
	{"running/no-letter", "the same, and it leaves no dead letter", func(x *subject) {
		x.running(belay.Policy{MaxAttempts: 1, NoDeadLetters: true})
	}},
	{"running/last-child", "a child that one more failure ends", func(x *subject) {
		x.runningChild(belay.Policy{MaxAttempts: 1})
	}},
	{"running/state", "has a saved state", func(x *subject) {
		x.running(belay.Policy{})
		x.do(x.save(x.lease, belay.KindState, "state"))
	}},
	{"running/signalled", "a signal came that it does not know of", func(x *subject) {
		x.running(belay.Policy{})
		x.do(x.signal(x.id, "s"))
	}},
	{"running/given-up", "its worker gave up the claim that won it", func(x *subject) {
		x.running(belay.Policy{})
		x.do(x.beat(x.owner))
	}},
	{"running/draining", "its owner drains", func(x *subject) {
		x.running(belay.Policy{})
		x.do(&Drain{x.owner})
	}},
	{"running/overdue", "its owner's session has expired, and was not ended yet", func(x *subject) {
		x.running(belay.Policy{})
		x.overdue()
	}},
	{"running/lost", "its owner was lost", func(x *subject) {
		x.running(belay.Policy{})
		x.lost()
	}},
	{"running/lost-cancelling", "the same, while it was being cancelled", func(x *subject) {
		x.running(belay.Policy{CancelGrace: within(hour)})
		x.do(x.act(x.id, belay.ActionCancel))
		x.lost()
	}},
	{"running/lost-pausing", "the same, while it was asked to pause", func(x *subject) {
		x.running(belay.Policy{})
		x.do(x.act(x.id, belay.ActionPause))
		x.lost()
	}},
	{"running/lost-delay", "the same, with a lock delay", func(x *subject) {
		x.running(belay.Policy{LockDelay: within(time.Second)})
		x.lost()
	}},
	{"running/lost-fail", "the same, and on_lost is fail", func(x *subject) {
		x.running(belay.Policy{OnLost: belay.Fail})
		x.lost()
	}},
	{"running/lost-last", "the same, and it was the last loss allowed", func(x *subject) {
		x.running(belay.Policy{MaxLosses: 1})
		x.lost()
	}},
	{"running/closed", "its owner's session was closed", func(x *subject) {
		x.running(belay.Policy{})
		x.do(&End{Worker: x.owner})
	}},
	{"running/run-over", "its run lasts too long", func(x *subject) {
		x.running(belay.Policy{RunTimeout: within(time.Second)})
		x.pass(time.Second + grace)
	}},
	{"running/run-late", "the same, within the grace", func(x *subject) {
		x.running(belay.Policy{RunTimeout: within(time.Second)})
		x.pass(2 * time.Second)
	}},
	{"running/idle-over", "no progress for too long", func(x *subject) {
		x.running(belay.Policy{IdleTimeout: within(time.Second)})
		x.pass(time.Second)
	}},
	{"running/total-over", "its timeout and the grace are over", func(x *subject) {
		x.running(belay.Policy{Timeout: within(time.Second)})
		x.pass(time.Second + grace)
	}},

	{"running/outside", "owned from outside", func(x *subject) { x.outside(belay.Policy{}) }},
	{"running/outside-cancelling", "the same, cancelled, the grace lasts", func(x *subject) {
		x.outside(belay.Policy{})
		x.do(x.act(x.id, belay.ActionCancel))
	}},
	{"running/outside-over", "the same, the grace is over", func(x *subject) {
		x.outside(belay.Policy{})
		x.do(x.act(x.id, belay.ActionCancel))
		x.pass(grace)
	}},
	{"running/outside-overdue", "its external owner's session has expired, not ended yet", func(x *subject) {
		x.outside(belay.Policy{})
		x.overdue()
	}},
	{"running/outside-lost", "its owner outside was lost", func(x *subject) {
		x.outside(belay.Policy{})
		x.lost()
	}},
	{"running/outside-requeue", "the same, and on_lost is requeue", func(x *subject) {
		x.outside(belay.Policy{OnLost: belay.Requeue})
		x.lost()
	}},

	{"waiting", "for a signal", func(x *subject) { x.waiting(belay.Policy{}, 0) }},
	{"waiting/timer", "for an hour", func(x *subject) { x.waiting(belay.Policy{}, hour) }},
	{"waiting/due", "its timer is over", func(x *subject) {
		x.waiting(belay.Policy{}, time.Second)
		x.pass(time.Second)
	}},
	{"waiting/signalled", "a signal came", func(x *subject) {
		x.waiting(belay.Policy{}, hour)
		x.do(x.signal(x.id, "s"))
	}},
	{"waiting/outside", "suspended by its owner from outside", func(x *subject) {
		x.outside(belay.Policy{})
		x.do(x.settle(x.lease, belay.OutcomeSuspended))
	}},
	{"waiting/parent", "for its child", func(x *subject) {
		x.running(belay.Policy{})
		x.submit(x.childOf(x.lease, "c"), func(s *belay.Submission) { s.DueAt = x.now.Add(hour).Time() })
		x.do(x.settle(x.lease, belay.OutcomeSuspended))
	}},
	{"waiting/total-over", "its timeout is over", func(x *subject) {
		x.waiting(belay.Policy{Timeout: within(time.Second)}, 0)
		x.pass(time.Second)
	}},

	{"paused", "while pending", func(x *subject) {
		x.submitted(belay.Policy{})
		x.do(x.act(x.id, belay.ActionPause))
	}},
	{"paused/spent", "its budget is spent", func(x *subject) {
		x.spending()
		x.do(x.settle(x.lease, belay.OutcomeReleased, func(s *belay.Settlement) { s.CostTokens = 5 }))
	}},
	{"paused/spent-twice", "the same, and an operator paused it too", func(x *subject) {
		x.spending()
		x.do(x.settle(x.lease, belay.OutcomeReleased, func(s *belay.Settlement) { s.CostTokens = 5 }))
		x.do(x.act(x.id, belay.ActionPause))
	}},
	{"paused/spent-child", "it has spent the budget of its root", func(x *subject) {
		x.spendingChild()
		x.do(x.settle(x.lease, belay.OutcomeReleased, func(s *belay.Settlement) { s.CostTokens = 5 }))
	}},
	{"paused/unspent-child", "the same, and the budget was raised", func(x *subject) {
		root := x.spendingChild()
		x.do(x.settle(x.lease, belay.OutcomeReleased, func(s *belay.Settlement) { s.CostTokens = 5 }))
		x.do(x.act(root.Execution, belay.ActionBudget))
	}},
	{"paused/waiting", "while waiting for a signal", func(x *subject) {
		x.waiting(belay.Policy{}, 0)
		x.do(x.act(x.id, belay.ActionPause))
	}},
	{"paused/timer", "while waiting for a timer, which is over now", func(x *subject) {
		x.waiting(belay.Policy{}, time.Second)
		x.do(x.act(x.id, belay.ActionPause))
		x.pass(time.Second)
	}},
	{"paused/start-over", "while pending, its start timeout is over", func(x *subject) {
		x.submitted(belay.Policy{StartTimeout: within(time.Second)})
		x.do(x.act(x.id, belay.ActionPause))
		x.pass(time.Second)
	}},
	{"paused/total-over", "its timeout is over", func(x *subject) {
		x.waiting(belay.Policy{Timeout: within(time.Second)}, 0)
		x.do(x.act(x.id, belay.ActionPause))
		x.pass(time.Second)
	}},

	{"succeeded", "", func(x *subject) {
		x.running(belay.Policy{})
		x.do(x.settle(x.lease, belay.OutcomeSucceeded))
	}},
	{"succeeded/child", "its parent goes on", func(x *subject) {
		x.runningChild(belay.Policy{})
		x.do(x.settle(x.lease, belay.OutcomeSucceeded))
	}},
	{"failed", "left a dead letter", func(x *subject) {
		x.running(belay.Policy{MaxAttempts: 1})
		x.do(x.settle(x.lease, belay.OutcomeFailed, failing))
	}},
	{"failed/step", "left a dead letter, and has saved a step", func(x *subject) {
		x.running(belay.Policy{MaxAttempts: 1})
		x.do(x.save(x.lease, belay.KindStep, "key"))
		x.do(x.settle(x.lease, belay.OutcomeFailed, failing))
	}},
	{"failed/no-letter", "left none", func(x *subject) {
		x.running(belay.Policy{MaxAttempts: 1, NoDeadLetters: true})
		x.do(x.settle(x.lease, belay.OutcomeFailed, failing))
	}},
	{"failed/child", "its parent goes on", func(x *subject) {
		x.runningChild(belay.Policy{MaxAttempts: 1})
		x.do(x.settle(x.lease, belay.OutcomeFailed, failing))
	}},
	{"failed/external", "owned from outside only", func(x *subject) {
		x.submitted(belay.Policy{StartTimeout: within(time.Second)}, func(s *belay.Submission) { s.External = true })
		x.pass(time.Second)
		x.do(&Tick{Execution: x.id})
	}},
	{"failed/outside", "lost by its owner from outside", func(x *subject) {
		x.outside(belay.Policy{})
		x.lost()
		x.do(&Lose{x.id, x.lease.Token, x.owner, false, true, false})
	}},
	{"failed/forgotten", "its retention is over, and it is being deleted", func(x *subject) {
		x.running(belay.Policy{MaxAttempts: 1})
		x.do(x.settle(x.lease, belay.OutcomeFailed))
		x.do(x.forget())
	}},
	{"cancelled", "", func(x *subject) {
		x.running(belay.Policy{})
		x.do(x.act(x.id, belay.ActionCancel))
		x.do(x.settle(x.lease, belay.OutcomeCancelled))
	}},
}

// spending makes the subject a running execution with a budget.
func (x *subject) spending() { x.running(belay.Policy{}, budget(5)) }

// spendingChild makes the subject the running child of a waiting root with a budget.
func (x *subject) spendingChild() belay.Lease {
	root := x.run(x.worker("root's"), budget(5))
	x.submitted(belay.Policy{}, x.childOf(root, "c"))
	x.lease = x.win(x.owner)
	x.do(x.settle(root, belay.OutcomeSuspended))
	return root
}
