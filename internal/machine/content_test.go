package machine

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

func byContent(s *belay.Submission) { s.Idempotency = belay.IdempotencyByContent }

func input(text string) func(*belay.Submission) {
	return func(s *belay.Submission) { s.Input = json.RawMessage(text) }
}

// A submission by content returns the execution of the same content that has not ended or has
// succeeded. An execution that will not succeed, that has another input now, or whose result cannot be
// read any more, gives the content up.
func TestAContentIsAnsweredByItsExecution(t *testing.T) {
	type test struct {
		name    string
		bring   func(x *stage, w belay.WorkerID, id belay.ExecutionID)
		answers bool
	}
	settled := func(o belay.Outcome, with ...func(*belay.Settlement)) func(*stage, belay.WorkerID, belay.ExecutionID) {
		return func(x *stage, w belay.WorkerID, _ belay.ExecutionID) { x.do(x.settle(x.win(w), o, with...)) }
	}
	acted := func(all ...belay.Action) func(*stage, belay.WorkerID, belay.ExecutionID) {
		return func(x *stage, _ belay.WorkerID, id belay.ExecutionID) {
			for _, a := range all {
				x.do(x.act(id, a))
			}
		}
	}
	permanent := func(s *belay.Settlement) { s.Failure = &belay.Failure{Class: belay.ClassPermanent} }
	requeued := func(x *stage, w belay.WorkerID, id belay.ExecutionID) {
		settled(belay.OutcomeFailed, permanent)(x, w, id)
		x.do(x.act(id, belay.ActionRequeue, func(c *belay.Control) { c.Input = []byte(`{"n":2}`) }))
	}
	for _, c := range []test{
		{"pending", func(*stage, belay.WorkerID, belay.ExecutionID) {}, true},
		{"running", func(x *stage, w belay.WorkerID, _ belay.ExecutionID) { x.win(w) }, true},
		{"waiting", settled(belay.OutcomeSuspended, func(s *belay.Settlement) { s.Wait = hour }), true},
		{"paused", acted(belay.ActionPause), true},
		{"waiting for its retry", settled(belay.OutcomeFailed, failing), true},
		{"succeeded", settled(belay.OutcomeSucceeded), true},
		{"retried", acted(belay.ActionQuarantine, belay.ActionRetry), true},
		{"failed", settled(belay.OutcomeFailed, permanent), false},
		{"quarantined", acted(belay.ActionQuarantine), false},
		{"cancelled", acted(belay.ActionCancel), false},
		{"being cancelled", func(x *stage, w belay.WorkerID, id belay.ExecutionID) {
			x.win(w)
			x.do(x.act(id, belay.ActionCancel))
		}, false},
		{"requeued with another input", requeued, false},
		{"succeeded with another input", func(x *stage, w belay.WorkerID, id belay.ExecutionID) {
			requeued(x, w, id)
			settled(belay.OutcomeSucceeded)(x, w, id)
		}, false},
		{"being deleted", func(x *stage, w belay.WorkerID, id belay.ExecutionID) {
			settled(belay.OutcomeSucceeded)(x, w, id)
			x.do(&Forget{id, x.now + 1})
		}, false},
		{"deleted", func(x *stage, w belay.WorkerID, id belay.ExecutionID) {
			settled(belay.OutcomeSucceeded)(x, w, id)
			delete(x.records, id)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			w := s.worker("w")
			first := s.submit(byContent)
			c.bring(s, w, first)
			next := s.submission(byContent)
			r := s.do(next)
			if c.answers && (r.ID != first || !r.Replayed) || !c.answers && (r.ID != next.ID || r.Replayed) {
				t.Errorf("answered %+v; the first is %s, answers: %v", r, first, c.answers)
			}
			if again := s.do(s.submission(byContent)); again.ID != r.ID || !again.Replayed {
				t.Errorf("then answered %+v, want %s", again, r.ID)
			}
		})
	}
}

// A repetition of a submission by content, under the same id, gets the first answer, even if the
// execution has failed and another execution has its key.
func TestAContentSubmittedAgainByID(t *testing.T) {
	s := newStage(t)
	first := s.submission(byContent)
	again := &Submit{Submission: first.Submission}
	s.do(first)
	s.do(s.act(first.ID, belay.ActionCancel))
	if r := s.do(again); r.ID != first.ID || !r.Replayed {
		t.Errorf("answered %+v", r)
	}
	second := s.submit(byContent)
	if r := s.do(again); r.ID != first.ID || second == first.ID {
		t.Errorf("answered %+v after %s took the key", r, second)
	}
	other := again.Submission
	other.Idempotency = ""
	s.refused(&Submit{Submission: other}, belay.CodeIdempotencyMismatch)
	s.do(s.act(first.ID, belay.ActionRetry)) // the operator's retry leaves two executions of the content
	if r := s.do(s.submission(byContent)); r.ID != second {
		t.Errorf("after the retry of %s, the content leads to %+v, want %s", first.ID, r, second)
	}
}

// A repetition under the same id, after the execution was deleted and its key was not yet, creates the execution again.
func TestAContentSubmittedAgainAfterItsDeletion(t *testing.T) {
	s := newStage(t)
	first := s.submission(byContent)
	s.do(first)
	s.do(s.act(first.ID, belay.ActionCancel))
	delete(s.records, first.ID)
	again := &Submit{Submission: first.Submission}
	changes, r := s.batch(again, s.act(first.ID, belay.ActionCancel), s.submission(byContent))
	if r[0].Err != nil || r[0].ID != first.ID || r[0].Replayed || r[2].Err != nil || r[2].ID == first.ID {
		t.Errorf("answers %+v", r)
	}
	if len(changes.Keys) != 1 || changes.Keys[0].Was != first.ID || changes.Keys[0].Execution != r[2].ID {
		t.Errorf("written %+v", changes.Keys)
	}
}

// Several submissions of one content in a batch create one execution. If executions give up the
// content within a batch, the batch still writes the key of the content only once.
func TestOneContentInOneBatch(t *testing.T) {
	s := newStage(t)
	a, b := s.submission(byContent), s.submission(byContent)
	_, r := s.batch(a, b)
	if r[0].ID != a.ID || r[0].Replayed || r[1].ID != a.ID || !r[1].Replayed {
		t.Fatalf("answers %+v", r)
	}
	c, d, e := s.submission(byContent), s.submission(byContent), s.submission(byContent)
	changes, r := s.batch(s.act(a.ID, belay.ActionCancel), c, s.act(c.ID, belay.ActionCancel), d, e)
	if r[1].ID != c.ID || r[3].ID != d.ID || r[3].Replayed || r[4].ID != d.ID || !r[4].Replayed {
		t.Fatalf("answers %+v", r)
	}
	if len(changes.Keys) != 1 || changes.Keys[0].Was != a.ID || changes.Keys[0].Execution != d.ID {
		t.Errorf("written %+v", changes.Keys)
	}
}

// Texts of one JSON value are one content. Everything that decides how the execution runs is a part of
// the content; where and when it runs is not.
func TestWhatBelongsToAContent(t *testing.T) {
	deep := strings.Repeat(`{"a":[`, 4000) + "1.50" + strings.Repeat(`]}`, 4000)
	for _, c := range []struct {
		name string
		a, b []func(*belay.Submission)
		same bool
	}{
		{"order of members", with(input(`{"a":1,"b":2}`)), with(input(`{ "b":2, "a":1 }`)), true},
		{"notation of a number", with(input(`[1200, 0.5, -0]`)), with(input(`[1.2e3,5E-1,0.0]`)), true},
		{"numbers that are equal as floating point", with(input(`9007199254740993`)), with(input(`9007199254740992`)),
			false},
		{"number and text", with(input(`1`)), with(input(`"1"`)), false},
		{"escapes", with(input(`"\u0061\/"`)), with(input(`"a/"`)), true},
		{"duplicate members", with(input(`{"a":1,"a":2}`)), with(input(`{"a":2,"a":1}`)), false},
		{"one of duplicate members", with(input(`{"a":1,"a":2}`)), with(input(`{"a":2}`)), false},
		{"order of an array", with(input(`[1,2]`)), with(input(`[2,1]`)), false},
		{"no input and null", with(input(``)), with(input(`null`)), false},
		{"deep nesting", with(input(deep)), with(input(strings.Replace(deep, "1.50", "15e-1", 1))), true},
		{"workflow", nil, with(func(s *belay.Submission) { s.Workflow = "other" }), false},
		{"version", nil, with(func(s *belay.Submission) { s.Version = "2" }), false},
		{"policy", nil, with(policy(belay.Policy{MaxAttempts: 3})), false},
		{"parts of the policy", with(policy(belay.Policy{RunTimeout: within(time.Second)})),
			with(policy(belay.Policy{IdleTimeout: within(time.Second)})), false},
		{"owner", nil, with(func(s *belay.Submission) { s.External = true }), false},
		{"version and owner", with(func(s *belay.Submission) { s.Version = `","external":true,"version":"` }),
			with(func(s *belay.Submission) { s.External = true }), false},
		{"labels", nil, with(func(s *belay.Submission) { s.Labels = map[string]string{"a": "b"} }), true},
		{"worker labels", nil, with(func(s *belay.Submission) { s.WorkerLabels = map[string]string{"a": "b"} }), true},
		{"queue and priority", nil, with(func(s *belay.Submission) { s.Queue, s.Priority = "q", 7 }), true},
		{"due time", nil, with(func(s *belay.Submission) { s.DueAt = began.Add(hour).Time() }), true},
		{"gates", nil, with(func(s *belay.Submission) { s.Target = "t" }), true},
		{"trigger payload", nil, with(func(s *belay.Submission) { s.TriggerPayload = []byte("1") }), true},
	} {
		s := newStage(t)
		first := s.submit(append(c.a, byContent)...)
		second := s.submission(append(c.b, byContent)...)
		if r := s.do(second); c.same != (r.ID == first) {
			t.Errorf("%s: %+v after %s, want the same content: %v", c.name, r, first, c.same)
		}
	}
}

func with(f ...func(*belay.Submission)) []func(*belay.Submission) { return f }

// The defaults of a server do not belong to the content: servers may have different defaults.
func TestDefaultsDoNotBelongToAContent(t *testing.T) {
	s := newStage(t)
	first := s.submit(byContent)
	c := s.submission(byContent)
	c.Defaults = belay.Policy{MaxAttempts: 7}
	if r := s.do(c); r.ID != first {
		t.Errorf("with other defaults it is answered %+v", r)
	}
}

// No submission can choose a key that follows from a content, or name both a key and its content. A
// child is recognized by its name alone.
func TestKeysOfContentsCannotBeChosen(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	c := s.submission(byContent)
	chosen := contentKey(&c.Submission)
	if len(chosen) > belay.MaxName {
		t.Errorf("the key %s has %d bytes", chosen, len(chosen))
	}
	s.refused(s.submission(key(chosen)), belay.CodeInvalid)
	s.refused(s.submission(key("k"), byContent), belay.CodeInvalid)
	s.refused(s.submission(func(b *belay.Submission) { b.Idempotency = "sha256" }), belay.CodeInvalid)
	for _, k := range []string{
		strings.ToUpper(chosen), chosen[:len(chosen)-1] + "g", chosen + "0", strings.Replace(chosen, ":", " ", 1),
		ContentPrefix, ContentPrefix + ":", chosen[len(ContentPrefix):],
	} {
		if r := s.do(s.submission(key(k))); r.Replayed {
			t.Errorf("the key %q leads to %s", k, r.ID)
		}
	}
	if r := s.do(c); r.Replayed {
		t.Errorf("a chosen key answers a content: %+v", r)
	}
	parent := s.run(w, func(b *belay.Submission) { b.Priority = 1 })
	s.refused(s.submission(s.childOf(parent, "c"), byContent), belay.CodeInvalid)
}

// The hashes of an execution and its runs are those of the first input.
func TestHashesOfAContent(t *testing.T) {
	s := newStage(t)
	c := s.submission(byContent, input(`{"b":1.0,"a":"x"}`), policy(belay.Policy{MaxAttempts: 1}))
	s.do(c)
	hashes := func(generation int) string {
		r := s.records[c.ID]
		spec := r.specs[0]
		rec := &Record{Execution: r.execution, Spec: spec}
		inputs, config := rec.Hashes(generation)
		if v := View(rec); v.Generation == generation && (v.InputsHash != inputs || v.ConfigHash != config) {
			t.Errorf("the view has other hashes: %+v", v)
		}
		return inputs + " " + config
	}
	want := fmt.Sprintf("%x %x", sha256.Sum256([]byte(`{"a":"x","b":1}`)),
		sha256.Sum256([]byte(`{"policy":{"max_attempts":1}}`)))
	if got := hashes(1); got != want {
		t.Errorf("hashes %s, want %s", got, want)
	}
	s.do(s.act(c.ID, belay.ActionQuarantine))
	s.do(s.act(c.ID, belay.ActionRetry))
	if got := hashes(2); got != want {
		t.Errorf("after a retry %s, want %s", got, want)
	}
	s.do(s.act(c.ID, belay.ActionQuarantine))
	s.do(s.act(c.ID, belay.ActionRequeue, func(c *belay.Control) { c.Input = []byte(`2`) }))
	if hashes(1) != want || hashes(3) != " " {
		t.Errorf("after a requeue %s and %s", hashes(1), hashes(3))
	}
	plain := s.submission(key("k"))
	s.do(plain)
	rec := &Record{Execution: s.row(plain.ID), Spec: s.records[plain.ID].specs[0]}
	if in, config := rec.Hashes(1); in+config != "" {
		t.Errorf("an execution with a chosen key has the hashes %s %s", in, config)
	}
}

// The content may contain the largest allowed input. Another input of the same size is another
// content.
func TestTheContentOfALargeInput(t *testing.T) {
	s := newStage(t)
	text := strings.Repeat("x", belay.MaxPayload-2)
	first := s.submit(byContent, input(`"`+text+`"`))
	if r := s.do(s.submission(byContent, input(`"`+text+`"`))); r.ID != first {
		t.Errorf("answered %+v", r)
	}
	if r := s.do(s.submission(byContent, input(`"`+text[1:]+`y"`))); r.ID == first {
		t.Error("another large input is the same content")
	}
	s.refused(s.submission(byContent, input(`"`+text+`x"`)), belay.CodePayloadTooLarge)
}
