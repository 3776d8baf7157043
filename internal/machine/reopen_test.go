package machine

import (
	"encoding/json"
	"testing"

	"github.com/belaydev/belay"
)

// failedExecution makes an execution that failed after it had saved a step and consumed one of two signals.
func failedExecution(t *testing.T) (*stage, belay.WorkerID, belay.ExecutionID) {
	t.Helper()
	s := newStage(t)
	w := s.worker("w", ttl(hour))
	l := s.run(w, policy(belay.Policy{MaxAttempts: 1}))
	s.do(s.save(l, belay.KindStep, "a"))
	s.do(s.save(l, belay.KindState, "state"))
	seq := s.do(s.signal(l.Execution, "go")).Seq
	s.do(s.signal(l.Execution, "left"))
	c := s.save(l, belay.KindWait, "go")
	c.Consumes = seq
	s.do(c)
	s.do(s.settle(l, belay.OutcomeFailed, failing))
	return s, w, l.Execution
}

// After a reopening without a new input, finished steps and signals that no checkpoint has consumed
// stay valid, attempts and losses are counted from zero, and the dead letter is resolved. Tokens
// continue to grow.
func TestReopenKeepsFinishedSteps(t *testing.T) {
	for _, action := range []belay.Action{belay.ActionRetry, belay.ActionRequeue} {
		s, w, id := failedExecution(t)
		r := s.do(s.act(id, action))
		e := s.row(id)
		if e.Generation != 2 || e.InputGen != 1 || e.BaseSeq != 0 || e.Attempts != 0 || e.Class != 0 ||
			e.StartedAt != 0 || e.FinishedAt != 0 {
			t.Errorf("%s: %+v", action, *e)
		}
		if r.Execution.Generation != 2 || r.Seq != e.Seq {
			t.Errorf("%s: answered %+v", action, r)
		}
		if d := s.records[id].letters[0]; d.Resolution != belay.ResolvedRetried || d.ResolvedBy != "ann" ||
			d.ResolvedAt != s.now {
			t.Errorf("%s: dead letter %+v", action, *d)
		}
		from := Resume(s.records[id].history(), s.now)
		if len(from.Checkpoints) != 3 || len(from.Signals) != 1 || from.Signals[0].Name != "left" {
			t.Errorf("%s: resumes from %+v", action, from)
		}
		l := s.win(w)
		if l.Token != 2 || string(s.input(id)) != `{"n":1}` {
			t.Errorf("%s: token %d, input %s", action, l.Token, s.input(id))
		}
		s.do(s.settle(l, belay.OutcomeFailed, failing))
		if d := s.records[id].letters; len(d) != 2 || d[1].Generation != 2 || d[1].Resolution != "" {
			t.Errorf("%s: dead letters %+v", action, d)
		}
	}
}

// input is the input of the next run.
func (s *stage) input(id belay.ExecutionID) []byte {
	specs := s.records[id].specs
	return specs[len(specs)-1].Input
}

// After a reopening with another input, earlier steps, states and signals are invalid: the next run
// does not get them, and no checkpoint can consume such a signal.
func TestReopenWithAnotherInput(t *testing.T) {
	s, w, id := failedExecution(t)
	left := s.row(id).SignalSeq
	s.do(s.act(id, belay.ActionRequeue, func(c *belay.Control) { c.Input = json.RawMessage(`{"n":2}`) }))
	e := s.row(id)
	if e.Generation != 2 || e.InputGen != 2 || e.BaseSeq != e.Seq || e.Checkpoints != 0 || e.StateSeq != 0 ||
		e.SignalSeq != 0 {
		t.Errorf("%+v", *e)
	}
	if from := Resume(s.records[id].history(), s.now); len(from.Checkpoints)+len(from.Signals) != 0 {
		t.Errorf("resumes from %+v", from)
	}
	r := s.do(s.claims(w, 1))
	if string(r.Claims[0].Input) != `{"n":2}` {
		t.Errorf("input %s", r.Claims[0].Input)
	}
	l := leaseOf(&r.Claims[0].Execution)
	c := s.save(l, belay.KindWait, "left")
	c.Consumes = left
	s.refused(c, belay.CodeNotFound)
	s.do(s.save(l, belay.KindState, "state"))
	if k := s.records[id].checkpoints[1]; k.Pruned {
		t.Error("the state of the earlier input was pruned by the new one's")
	}
	specs := s.records[id].specs
	if len(specs) != 2 || specs[1].Generation != 2 || specs[1].Hash != specs[0].Hash || specs[0].Input == nil {
		t.Errorf("specs %+v", specs)
	}
}

// After a requeue with another input, a repetition of the original submission still finds the
// execution by its id. A submission of that id with the new input is refused.
func TestSubmitAgainAfterARequeue(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	c := s.submission(key("k"), policy(belay.Policy{MaxAttempts: 1}))
	s.do(c)
	s.do(s.settle(s.win(w), belay.OutcomeFailed, failing))
	s.do(s.act(c.ID, belay.ActionRequeue, func(c *belay.Control) { c.Input = json.RawMessage(`3`) }))
	if r := s.do(&Submit{Submission: c.Submission}); !r.Replayed || r.ID != c.ID {
		t.Errorf("answered %+v", r)
	}
	s.refused(&Submit{
		Submission: belay.Submission{ID: c.ID, Workflow: "job", Input: json.RawMessage(`3`), Policy: c.Policy},
	}, belay.CodeIdempotencyMismatch)
}

func TestReopenIsRefused(t *testing.T) {
	s, w, id := failedExecution(t)
	s.refused(s.act(id, belay.ActionRetry, func(c *belay.Control) {
		c.Input = json.RawMessage(`2`)
	}), belay.CodeInvalid)
	s.refused(s.act(id, belay.ActionRequeue, func(c *belay.Control) {
		c.Input = json.RawMessage(`{`)
	}), belay.CodeInvalid)
	s.do(s.act(id, belay.ActionRetry))
	s.refused(s.act(id, belay.ActionRetry), belay.CodeConflict)
	s.do(s.settle(s.win(w), belay.OutcomeSucceeded))
	s.refused(s.act(id, belay.ActionRequeue), belay.CodeConflict)
}

// A cancelled execution can be reopened too; its new runs do not get requests that were made to an
// earlier run.
func TestReopenACancelledExecution(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w)
	for _, a := range []belay.Action{belay.ActionPause, belay.ActionPreempt, belay.ActionCancel} {
		s.do(s.act(l.Execution, a))
	}
	s.do(s.settle(l, belay.OutcomeCancelled))
	s.do(s.act(l.Execution, belay.ActionRetry))
	s.is(l.Execution, "pending(reopened)")
	if d := s.records[l.Execution].letters; len(d) != 0 {
		t.Errorf("dead letters %+v", d)
	}
	s.win(w)
	s.is(l.Execution, "running")
}

// The end, the reopening and the next claim of an execution may be in one batch.
func TestFailReopenAndClaimInOneFold(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w, policy(belay.Policy{MaxAttempts: 1}))
	_, r := s.batch(s.settle(l, belay.OutcomeFailed), s.act(l.Execution, belay.ActionRetry), s.claims(w, 1))
	if len(r[2].Claims) != 1 || r[2].Claims[0].Execution.Token != 2 {
		t.Fatalf("claimed %+v", r[2])
	}
	if d := s.records[l.Execution].letters; len(d) != 1 || d[0].Resolution != belay.ResolvedRetried {
		t.Errorf("dead letters %+v", d)
	}
	if r[1].Execution.State != belay.Pending || r[1].Execution.Token != 1 {
		t.Errorf("the answer to the reopening changed with the claim: %+v", *r[1].Execution)
	}
}

// An execution that was cancelled while it waited at a gate does not wait at that gate after it is
// reopened.
func TestReopenRemovesTheGate(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	s.do(s.set("target:mail", belay.GateForceOpen))
	id := s.submit(target("mail"))
	s.do(s.claims(w, 1))
	s.is(id, "pending(gated)")
	s.do(s.act(id, belay.ActionCancel))
	s.do(s.act(id, belay.ActionRetry))
	s.is(id, "pending(reopened)")
}

// An external execution stays external across generations.
func TestAReopenedExternalExecutionStaysExternal(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	id := s.submit(func(b *belay.Submission) { b.External = true })
	s.do(s.act(id, belay.ActionCancel))
	s.do(s.act(id, belay.ActionRetry))
	f := s.do(s.act(id, belay.ActionFork)).ID
	if r := s.do(s.claims(w, 5)); len(r.Claims) != 0 {
		t.Errorf("a worker won an external execution: %+v", r.Claims)
	}
	for _, id := range []belay.ExecutionID{id, f} {
		if !s.row(id).External {
			t.Errorf("%s is open to workers", id)
		}
	}
}

// After a requeue that keeps results, the next run gets the new input with all finished steps, the state and the
// signals. The ends of children that the earlier input started are not delivered.
func TestRequeueKeepsResults(t *testing.T) {
	s, w, id := failedExecution(t)
	state := s.row(id).StateSeq
	s.do(s.act(id, belay.ActionRequeue, func(c *belay.Control) {
		c.Input, c.KeepResults, c.Generation = json.RawMessage(`{"n":2}`), true, 1
	}))
	e := s.row(id)
	if e.Generation != 2 || e.InputGen != 2 || e.BaseSeq != 0 || e.StateSeq != state || e.Checkpoints == 0 {
		t.Errorf("%+v", *e)
	}
	if v := View(&Record{Execution: e}); v.StateSeq != state {
		t.Errorf("the state is shown at %d, not %d", v.StateSeq, state)
	}
	from := Resume(s.records[id].history(), s.now)
	if len(from.Checkpoints) != 3 || len(from.Signals) != 1 || from.Signals[0].Name != "left" {
		t.Errorf("resumes from %+v", from)
	}
	if d := s.records[id].letters[0]; d.Resolution != belay.ResolvedRequeued {
		t.Errorf("dead letter %+v", *d)
	}
	r := s.do(s.claims(w, 1))
	if string(r.Claims[0].Input) != `{"n":2}` {
		t.Errorf("input %s", r.Claims[0].Input)
	}
	for _, change := range []func(*belay.Control){
		func(c *belay.Control) { c.Action = belay.ActionRetry },
		func(c *belay.Control) { c.Action = belay.ActionRequeue },
		func(c *belay.Control) { c.Action, c.Input = belay.ActionFork, json.RawMessage(`2`) },
	} {
		s.refused(s.act(id, belay.ActionCancel, func(c *belay.Control) { c.KeepResults = true; change(c) }),
			belay.CodeInvalid)
	}
}
