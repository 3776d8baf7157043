package machine

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// toExchange makes a target publish to an exchange.
func toExchange(name string) func(*belay.NotificationTargetPut) {
	return func(p *belay.NotificationTargetPut) { p.URL, p.Exchange = "", name }
}

// publishers opens a worker for executions and for deliveries to exchanges.
func (s *stage) publishers() belay.WorkerID {
	return s.worker("w", func(x *belay.WorkerSpec) {
		x.Workflows = append(x.Workflows, belay.Registration{Workflow: belay.PublishWorkflow})
	})
}

// Rule G19: a target at an exchange gets each end of each generation, as an execution of the workflow of messages that
// the commit of the end creates. The delivery has the limit and the circuit breaker of its exchange.
func TestAnExchangeGetsEachEnd(t *testing.T) {
	s := newStage(t)
	w := s.publishers()
	s.do(putTo(toExchange("ex"), func(p *belay.NotificationTargetPut) { p.RoutingKey = "a.b" }))
	l := s.run(w, policy(belay.Policy{MaxAttempts: 1}))
	for g, outcome := range []belay.Outcome{belay.OutcomeFailed, belay.OutcomeSucceeded} {
		s.do(s.settle(l, outcome))
		id := belay.TargetNotificationID(l.Execution, g+1, "t")
		d := s.records[id]
		if d.execution == nil {
			t.Fatalf("generation %d has no delivery", g+1)
		}
		var in struct {
			Exchange   string
			RoutingKey string `json:"routing_key"`
			Target     string
			Body       belay.NotificationEvent
		}
		err := json.Unmarshal(d.specs[0].Input, &in)
		e := d.execution
		if err != nil || in.Exchange != "ex" || in.RoutingKey != "a.b" || in.Target != "t" ||
			in.Body.Data.ID != l.Execution || in.Body.Data.Generation != g+1 ||
			in.Body.Data.State != s.row(l.Execution).State || e.Workflow != belay.PublishWorkflow ||
			e.Gates.Target != e.Gates.Concurrency.Name ||
			!strings.HasPrefix(e.Gates.Target, "notification:exchange:ex:") {
			t.Errorf("%v: the delivery is %+v with %s", err, e, d.specs[0].Input)
		}
		s.do(s.settle(s.win(w), belay.OutcomeSucceeded)) // the delivery
		if outcome == belay.OutcomeFailed {
			s.do(s.act(l.Execution, belay.ActionRetry))
			l = s.win(w)
		}
	}
	if n := len(s.records); n != 3 {
		t.Errorf("there are %d executions", n)
	}
}

// Attack: a user wants to publish to an exchange that no operator has named, by a submission, by a child, by a fork of
// a delivery or by another input for it. A retry without another input is allowed.
func TestOnlyTargetsPublish(t *testing.T) {
	s := newStage(t)
	w := s.publishers()
	publish := func(x *belay.Submission) {
		x.Workflow, x.Input = belay.PublishWorkflow, json.RawMessage(`{"exchange": "secret", "body": {}}`)
	}
	s.refused(s.submission(publish), belay.CodeForbidden)
	s.refused(s.submission(publish, func(x *belay.Submission) { x.External = true }), belay.CodeForbidden)
	parent := s.run(w)
	s.refused(s.submission(s.childOf(parent, "c"), publish), belay.CodeForbidden)

	s.do(putTo(toExchange("ex")))
	s.do(s.settle(parent, belay.OutcomeSucceeded))
	d := belay.TargetNotificationID(parent.Execution, 1, "t")
	input := slices.Clone(s.records[d].specs[0].Input)
	l := s.win(w)
	if l.Execution != d {
		t.Fatalf("the worker has %s", l.Execution)
	}
	s.refused(s.act(d, belay.ActionFork), belay.CodeConflict)
	s.do(s.act(d, belay.ActionCancel))
	s.do(s.settle(l, belay.OutcomeCancelled))
	requeue := s.act(d, belay.ActionRequeue)
	requeue.Input = json.RawMessage(`{"exchange": "secret", "body": {}}`)
	s.refused(requeue, belay.CodeForbidden)
	patch := s.act(d, belay.ActionRequeue)
	patch.InputPatch = json.RawMessage(`{"exchange": "secret"}`)
	s.refused(patch, belay.CodeForbidden)
	s.do(s.act(d, belay.ActionRetry))
	if s.win(w).Execution != d || len(s.records[d].specs) != 1 || string(s.records[d].specs[0].Input) != string(input) {
		t.Errorf("the delivery is %+v", s.records[d])
	}
}
