package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// reported makes a submission report its ends to a host.
func reported(s *belay.Submission) {
	s.Notify = []belay.Notification{
		{URL: "https://a.example/hook", Secret: "${{ secrets.A }}"},
		{URL: "https://b.example/hook", On: []belay.State{belay.Failed, belay.Cancelled}, Format: belay.FormatSlack},
	}
}

// traceparent is the trace of a submitter.
const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// requests is the lane of deliveries.
var requests = machine.NewLane("default", belay.NotificationWorkflow, "", 0, nil)

var notifyCases = []testCase{
	{"an execution keeps its notifications in every state and generation; others have none", func(e *env) {
		worker := e.open()
		want := belay.Submission{}
		reported(&want)
		l := e.run(worker, 1, reported)
		e.same("while it runs", want.Notify, e.row(l.Execution).Notify)
		e.settle(l, belay.OutcomeFailed)
		e.control(l.Execution, belay.ActionRetry)
		e.same("in the second generation", want.Notify, e.row(l.Execution).Notify)
		e.same("without notifications", []belay.Notification(nil), e.row(e.submit()).Notify)
		for _, x := range e.rows(machine.Need{Executions: []belay.ExecutionID{l.Execution}}).Executions {
			e.same("loaded for a command", want.Notify, x.Notify)
		}
	}},
	{"an execution keeps the trace of its submitter; a child has the trace of its parent's run", func(e *env) {
		for _, want := range []belay.Trace{{Parent: traceparent}, {Parent: traceparent, State: "vendor=1,a=b"}, {}} {
			l := e.run(e.open(), 1, func(s *belay.Submission) { s.Trace = want })
			id := belay.ChildID(l.Execution, 1, "child")
			e.ok(&machine.Submit{Submission: belay.Submission{
				ID: id, Workflow: "other", Parent: &l, ParentKey: "child",
				Trace: belay.Trace{Parent: strings.Replace(traceparent, "-4", "-5", 1)},
			}})
			e.same("of the child", want, e.row(id).Trace)
			e.settle(l, belay.OutcomeFailed)
			e.control(l.Execution, belay.ActionRetry)
			e.same("in the second generation", want, e.row(l.Execution).Trace)
			for _, x := range e.rows(machine.Need{Executions: []belay.ExecutionID{l.Execution}}).Executions {
				e.same("loaded for a command", want, x.Trace)
			}
			e.control(l.Execution, belay.ActionCancel)
		}
	}},
	{"the commit that ends an execution has its deliveries, and each generation has its own", func(e *env) {
		l := e.run(e.open(), 1, reported)
		e.settle(l, belay.OutcomeFailed)
		e.control(l.Execution, belay.ActionRetry)
		e.control(l.Execution, belay.ActionCancel)
		for i, want := range []struct {
			generation, target int
			there              bool
		}{{1, 0, true}, {1, 1, true}, {2, 0, false}, {2, 1, true}, {3, 0, false}} {
			id := belay.NotificationID(l.Execution, want.generation, want.target)
			rows := e.rows(machine.Need{
				Executions: []belay.ExecutionID{id}, Specs: []belay.ExecutionID{id},
				Keys: []machine.Key{deliveryKey(l.Execution, want.generation, want.target)},
			})
			if there := len(rows.Executions) == 1 && len(rows.Specs) == 1 && len(rows.Keys) == 1; there != want.there {
				e.Errorf("delivery %d: there are %d executions, %d specs, %d keys", i, len(rows.Executions),
					len(rows.Specs), len(rows.Keys))
			}
		}
	}},
	{"a worker of the workflow http claims a delivery, through the gates of its endpoint", func(e *env) {
		l := e.run(e.open(), 1, reported)
		e.settle(l, belay.OutcomeFailed)
		sender := e.open(func(s *belay.WorkerSpec) { s.Workflows[0].Workflow = belay.NotificationWorkflow })
		claims := e.ok(&machine.Claim{
			ClaimRequest: belay.ClaimRequest{Worker: sender, Number: 1, Slots: 2}, Lanes: []machine.Lane{requests},
			Secrets: []belay.Secret{e.id(), e.id()},
		}).Claims
		if len(claims) != 2 {
			e.Fatalf("%d claims", len(claims))
		}
		x := &claims[0].Execution
		limit := belay.Gate(belay.GateLimit, x.Gates.Concurrency.Name)
		e.same("limit of the endpoint", []machine.GateCount{{Gate: limit, Held: 1, Members: 1}}, e.counts(limit))
		e.clock.Advance(time.Second)
		e.settle(leaseOf(x), belay.OutcomeSucceeded)
		e.same("after the delivery", []machine.GateCount{{Gate: limit}}, e.counts(limit))
	}},
}

// deliveryKey is the idempotency key of a delivery.
func deliveryKey(id belay.ExecutionID, generation, target int) machine.Key {
	return machine.Key{
		Workflow: belay.NotificationWorkflow,
		Key:      fmt.Sprintf("%s%s:%d:%d", belay.NotificationPrefix, id, generation, target),
	}
}
