package machine

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
)

func key(k string) func(*belay.Submission) {
	return func(s *belay.Submission) { s.IdempotencyKey = k }
}

// Guarantee G9 (one execution per key): an idempotency key of a workflow leads to one execution.
func TestSubmitOncePerKey(t *testing.T) {
	s := newStage(t)
	first := s.submit(key("k"))
	r := s.do(s.submission(key("k")))
	if r.ID != first || !r.Replayed {
		t.Errorf("the second submission of a key is answered %+v, want %s", r, first)
	}
	s.refused(s.submission(key("k"), func(b *belay.Submission) {
		b.Input = json.RawMessage(`2`)
	}), belay.CodeIdempotencyMismatch)
	r = s.do(s.submission(key("k"), func(b *belay.Submission) { b.Workflow = "other" }))
	if r.Replayed {
		t.Error("the key of one workflow found the execution of another")
	}
	s.do(s.act(first, belay.ActionCancel))
	if r := s.do(s.submission(key("k"))); r.ID != first {
		t.Error("the key does not find an execution that has ended")
	}
	if n := len(s.records); n != 2 {
		t.Errorf("%d executions, want 2", n)
	}
}

// A repeated submission with the same key is recognised if its input differs only in white space
// between the parts of JSON. It is refused if the white space within a string differs.
func TestSubmitAgainWithOtherWhiteSpace(t *testing.T) {
	s := newStage(t)
	body := func(text string) func(*belay.Submission) {
		return func(b *belay.Submission) { b.Input = json.RawMessage(text) }
	}
	first := s.submit(key("k"), body(`{"a": [1, "x y"]}`))
	if r := s.do(s.submission(key("k"), body("{\"a\":[1,\"x y\"]}\n"))); r.ID != first {
		t.Errorf("written more closely it is answered %+v, want %s", r, first)
	}
	s.refused(s.submission(key("k"), body(`{"a":[1,"xy"]}`)), belay.CodeIdempotencyMismatch)
}

// Two submissions with the same key in one batch lead to one execution too (guarantee G9).
func TestSubmitOncePerKeyInOneFold(t *testing.T) {
	s := newStage(t)
	a, b := s.submission(key("k")), s.submission(key("k"))
	c := s.submission(key("k"), func(b *belay.Submission) { b.Priority = 7 })
	again := &Submit{Submission: a.Submission}
	_, r := s.batch(a, b, c, again)
	if r[1].ID != a.ID || !r[1].Replayed || r[3].ID != a.ID || !r[3].Replayed {
		t.Errorf("answers %+v", r)
	}
	if belay.CodeOf(r[2].Err) != belay.CodeIdempotencyMismatch {
		t.Errorf("another body in the same fold: %v", r[2].Err)
	}
	if len(s.records) != 1 {
		t.Errorf("%d executions, want 1", len(s.records))
	}
}

// The id of an execution is its operation id: a repeated submission finds the first. A repetition
// with another key is refused, because that key would not lead to this execution.
func TestSubmitAgainByID(t *testing.T) {
	s := newStage(t)
	c := s.submission(key("k"))
	s.do(c)
	if r := s.do(&Submit{Submission: c.Submission}); !r.Replayed || r.ID != c.ID {
		t.Errorf("the repetition is answered %+v", r)
	}
	other := c.Submission
	other.IdempotencyKey = "k2"
	s.refused(&Submit{Submission: other}, belay.CodeIdempotencyMismatch)
	other.IdempotencyKey = ""
	s.refused(&Submit{Submission: other}, belay.CodeIdempotencyMismatch)
	if s.do(s.submission(key("k2"))).ID == c.ID {
		t.Error("a refused key leads to the execution")
	}
}

// A submission with the id of an earlier submission is refused if any field differs.
func TestAnyDifferentFieldMakesAnotherBody(t *testing.T) {
	for name, change := range map[string]func(*belay.Submission){
		"version":       func(s *belay.Submission) { s.Version = "2" },
		"queue":         func(s *belay.Submission) { s.Queue = "q" },
		"input":         func(s *belay.Submission) { s.Input = json.RawMessage(`{}`) },
		"no input":      func(s *belay.Submission) { s.Input = nil },
		"priority":      func(s *belay.Submission) { s.Priority = 1 },
		"due":           func(s *belay.Submission) { s.DueAt = began.Add(hour).Time() },
		"labels":        func(s *belay.Submission) { s.Labels = map[string]string{"a": "b"} },
		"worker labels": func(s *belay.Submission) { s.WorkerLabels = map[string]string{"a": "b"} },
		"policy":        func(s *belay.Submission) { s.Policy.MaxAttempts = 9 },
		"external":      func(s *belay.Submission) { s.External = true },
	} {
		s := newStage(t)
		c := s.submission()
		s.do(c)
		other := c.Submission
		change(&other)
		t.Log(name)
		s.refused(&Submit{Submission: other}, belay.CodeIdempotencyMismatch)
	}
}

func TestADueTimeInThePastCountsAsNow(t *testing.T) {
	for _, c := range []struct {
		name string
		due  time.Time
		want Time
	}{
		{"now", time.Time{}, began},
		{"in the past", began.Time().Add(-hour), began},
		{"before 1970", time.Unix(-5, 0), began},
		{"later", began.Time().Add(hour), began.Add(hour)},
		{"at the end of times", latest.Time(), latest},
	} {
		s := newStage(t)
		id := s.submit(func(b *belay.Submission) { b.DueAt = c.due })
		if got := s.row(id).Ready(); got != c.want {
			t.Errorf("%s: ready at %d, want %d", c.name, got, c.want)
		}
	}
	s := newStage(t)
	s.refused(s.submission(func(b *belay.Submission) { b.DueAt = latest.Time().Add(time.Second) }), belay.CodeInvalid)
}

// The view of an execution shows all fields of its submission.
func TestAViewShowsAllFieldsOfTheSubmission(t *testing.T) {
	s := newStage(t)
	want := belay.Submission{
		ID: belay.ExecutionID(s.id()), Workflow: "job", Version: "3", Input: json.RawMessage(`[1]`), Queue: "q",
		Priority: -5,
		Labels:   map[string]string{"team": "a"}, WorkerLabels: map[string]string{"gpu": "1"}, IdempotencyKey: "k",
		Trigger: belay.TriggerManual, Policy: belay.Policy{MaxAttempts: 7},
	}
	s.do(&Submit{Submission: want})
	v := View(s.records[want.ID].history())
	got := belay.Submission{
		ID: v.ID, Workflow: v.Workflow, Version: v.Version, Input: v.Input, Queue: v.Queue, Priority: v.Priority,
		Labels: v.Labels, WorkerLabels: v.WorkerLabels, IdempotencyKey: v.Key, Trigger: v.Trigger, Policy: *v.Policy,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	v.Policy.MaxAttempts = 1
	if s.row(want.ID).Policy.MaxAttempts != 7 {
		t.Error("changing a view changes the row")
	}
}

// The id of a child follows from its parent, the parent's generation and the child key: after a
// crash the same call finds the same child, even if the child has ended or the parent's lease is
// not valid any more.
func TestSubmitChildOnce(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	parent := s.run(w)
	c := s.submission(s.childOf(parent, "a"))
	s.do(c)
	if e := s.row(c.ID); e.Parent != parent.Execution || e.Child != "a" || e.ParentGen != 1 {
		t.Errorf("the child is %+v", e)
	}
	child := s.win(w)
	s.do(s.settle(child, belay.OutcomeSucceeded))
	if r := s.do(&Submit{Submission: c.Submission}); !r.Replayed {
		t.Error("a child that has ended was started again")
	}
	s.do(s.settle(parent, belay.OutcomeFailed, func(x *belay.Settlement) {
		x.Failure = &belay.Failure{Class: belay.ClassPermanent}
	}))
	s.do(s.act(parent.Execution, belay.ActionRetry))
	if r := s.do(&Submit{Submission: c.Submission}); !r.Replayed || s.row(parent.Execution).Open != 0 {
		t.Error("the child of an earlier generation was started again")
	}
	next := s.win(w)
	again := s.submission(s.childOf(next, "a"))
	if again.ID == c.ID {
		t.Fatal("two generations start the same child")
	}
	s.do(again)
	if e := s.row(again.ID); e.ParentGen != 2 || s.row(parent.Execution).Open != 1 {
		t.Errorf("the child of the second generation is %+v", e)
	}
}

func TestSubmitRefusesAForgedChild(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	parent := s.run(w)
	s.refused(s.submission(s.childOf(parent, "a"), func(b *belay.Submission) {
		b.ID = belay.ExecutionID(s.id())
	}), belay.CodeInvalid)
	s.refused(s.submission(s.childOf(parent, "a"), func(b *belay.Submission) { b.ParentKey = "" }), belay.CodeInvalid)
	s.refused(s.submission(s.childOf(parent, "a"), key("k")), belay.CodeInvalid)
	s.refused(s.submission(s.childOf(parent, "a"), func(b *belay.Submission) { b.Parent = nil }), belay.CodeInvalid)
	stale := parent
	stale.Secret[0]++
	s.refused(s.submission(s.childOf(stale, "a")), belay.CodeLeaseLost, belay.CauseExpired)
}

// A lane is made of queue, workflow, version, priority and required worker labels; nothing else
// decides where an execution runs.
func TestALaneIsMadeOfRoutingFields(t *testing.T) {
	spec := belay.WorkerSpec{
		Queues:    []string{"default", "q"},
		Workflows: []belay.Registration{{Workflow: "job"}, {Workflow: "job", Version: "2"}},
		Labels:    map[string]string{"gpu": "1", "zone": ""},
	}
	gpu, none := map[string]string{"gpu": "1"}, map[string]string(nil)
	for _, c := range []struct {
		lane Lane
		want bool
	}{
		{NewLane("default", "job", "", 0, none), true},
		{NewLane("q", "job", "2", 9, gpu), true},
		{NewLane("other", "job", "", 0, none), false},
		{NewLane("q", "other", "", 0, none), false},
		{NewLane("q", "job", "3", 0, none), false},
		{NewLane("q", "job", "", 0, map[string]string{"gpu": "2"}), false},
		{NewLane("q", "job", "", 0, map[string]string{"zone": ""}), true},
		{NewLane("q", "job", "", 0, map[string]string{"rack": ""}), false},
	} {
		if got := c.lane.Takes(spec); got != c.want {
			t.Errorf("%+v takes the worker: %v, want %v", c.lane, got, c.want)
		}
	}
	if a, b := NewLane("", "job", "", 0, none), NewLane("default", "job", "", 0, none); a.ID != b.ID ||
		a.Queue != "default" {
		t.Errorf("no queue and the default queue are lanes %+v and %+v", a, b)
	}
	seen := make(map[LaneID]Lane)
	for _, l := range []Lane{
		NewLane("a", "b", "", 0, none), NewLane("ab", "", "", 0, none), NewLane("a", "", "b", 0, none),
		NewLane("a", "b", "", 1, none),
		NewLane("z", "b", "", 0, none), NewLane("a", "z", "", 0, none), NewLane("a", "b", "z", 0, none),
		NewLane("a", "b", "", 0, gpu), NewLane("a", "b", "", -1, none),
		NewLane("a", "b", "", 0, map[string]string{"g": "pu1"}),
	} {
		if other, ok := seen[l.ID]; ok || l.ID < 0 {
			t.Errorf("lanes %+v and %+v have one id", l, other)
		}
		seen[l.ID] = l
	}
}
