package machine

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
)

// hook gives a submission an actor and the payload of a trigger.
func hook(actor, payload string) func(*belay.Submission) {
	return func(s *belay.Submission) {
		s.Actor, s.TriggerPayload = actor, json.RawMessage(payload)
	}
}

// A second submission by another actor, with another trigger and another payload, joins the first execution,
// whose actor, trigger and payload stay, whether it is found by its id, its key or its content.
func TestTheFirstActorAndPayloadStay(t *testing.T) {
	content := func(s *belay.Submission) { s.Idempotency = belay.IdempotencyByContent }
	for name, by := range map[string]func(*belay.Submission){
		"key": key("k"), "content": content, "id": func(s *belay.Submission) { s.ID = belay.ExecutionID{7} },
	} {
		s := newStage(t)
		id := s.submit(by, hook("ci", `{"n": 1}`))
		for _, again := range []func(*belay.Submission){hook("eve", `{"n": 2}`), hook("", `[]`), func(*belay.Submission) {}} {
			if r := s.do(s.submission(by, again)); r.ID != id || !r.Replayed {
				t.Errorf("by %s: a second submission is answered %+v", name, r)
			}
		}
		spec := s.records[id].specs
		if len(spec) != 1 || spec[0].CreatedBy != "ci" || string(spec[0].TriggerPayload) != `{"n": 1}` {
			t.Errorf("by %s: %+v", name, spec)
		}
	}
}

// A submission with an actor that is no name, or with a payload that is too large or no JSON, is refused.
func TestActorsAndPayloadsAreChecked(t *testing.T) {
	s := newStage(t)
	text := `"` + strings.Repeat("x", belay.MaxTriggerPayload-2) + `"`
	s.do(s.submission(hook(strings.Repeat("a", belay.MaxName), text)))
	for name, c := range map[string]struct {
		actor, payload string
		code           belay.Code
	}{
		"a long name":           {strings.Repeat("a", belay.MaxName+1), `1`, belay.CodeInvalid},
		"a control character":   {"a\x1b[31m", `1`, belay.CodeInvalid},
		"a NUL":                 {"a\x00", `1`, belay.CodeInvalid},
		"a large payload":       {"a", text + " ", belay.CodePayloadTooLarge},
		"no JSON":               {"a", `{`, belay.CodeInvalid},
		"a NUL in the payload":  {"a", `"\u0000"`, belay.CodeInvalid},
		"half a surrogate pair": {"a", `"\ud800"`, belay.CodeInvalid},
	} {
		t.Log(name)
		s.refused(s.submission(hook(c.actor, c.payload)), c.code)
	}
}

// The first event names the actor of the submission. A child has none; a fork has the actor of its action.
func TestTheFirstEventNamesTheActor(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	id := s.submit(hook("ci", `1`))
	l := s.win(w)
	child := s.submit(s.childOf(l, "kid"), hook("eve", `2`))
	fork := s.do(s.act(id, belay.ActionFork)).ID
	for _, c := range []struct {
		id    belay.ExecutionID
		actor string
	}{{id, "ci"}, {child, ""}, {fork, "ann"}} {
		rec := s.records[c.id]
		spec := rec.specs[len(rec.specs)-1]
		rec2 := &Record{Execution: s.row(c.id), Spec: spec, CreatedBy: spec.CreatedBy}
		if v := View(rec2); v.CreatedBy != c.actor {
			t.Errorf("created by %q, want %q", v.CreatedBy, c.actor)
		}
		if ev := Events(rec2, 0, 1)[0]; ev.Kind != "submitted" || ev.Actor != c.actor {
			t.Errorf("%+v, want the actor %q", ev, c.actor)
		}
	}
}

// Metrics follow from the rows alone: they are the same at each read until the execution changes.
func TestMetrics(t *testing.T) {
	const ms = Time(1000)
	base := Execution{CreatedAt: began, State: belay.Running, RunAt: began + 900*ms, Cost: 12, Checkpoints: 5}
	ended := base
	ended.State, ended.FinishedAt = belay.Failed, began+2000*ms
	backwards := ended
	backwards.FinishedAt = began - 10*ms
	for name, c := range map[string]struct {
		e    Execution
		m    Measures
		want belay.Metrics
	}{
		"not begun": {Execution{CreatedAt: began, State: belay.Pending}, Measures{}, belay.Metrics{}},
		"running": {base, Measures{
			FirstRun: began + 250*ms, Runs: map[belay.Outcome]int{0: 1, belay.OutcomeLost: 2, belay.OutcomeFailed: 1},
			Running: 400 * time.Millisecond, Steps: 3,
		}, belay.Metrics{
			WaitMS: 250, RunningMS: 400, RunningSince: base.RunAt.Time(), Runs: 4,
			Outcomes: map[string]int{"lost": 2, "failed": 1}, Steps: 3, Checkpoints: 5, CostTokens: 12,
		}},
		"ended": {ended, Measures{
			FirstRun: began, Runs: map[belay.Outcome]int{belay.OutcomeFailed: 1}, Running: 7 * time.Microsecond,
			Children: map[belay.State]int{belay.Succeeded: 2, belay.Running: 1}, ChildCost: 5, ChildRuns: 2,
			ChildRunning: time.Second, Truncated: true,
		}, belay.Metrics{
			DurationMS: 2000, WaitMS: 1, RunningMS: 1, Runs: 1, Outcomes: map[string]int{"failed": 1}, Checkpoints: 5,
			CostTokens: 12, Truncated: true, Children: &belay.ChildMetrics{
				Total: 3, States: map[string]int{"succeeded": 2, "running": 1}, Runs: 2, RunningMS: 1000, CostTokens: 5,
			},
		}},
		"a clock that was set back": {backwards, Measures{}, belay.Metrics{
			DurationMS: 1, Checkpoints: 5, CostTokens: 12,
		}},
	} {
		got := DetailView(&Record{Execution: &c.e, Measures: &c.m}).Metrics
		if d := cmp.Diff(&c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// A run's duration is at least a millisecond once the run has ended, and 0 before.
func TestRunsHaveDurations(t *testing.T) {
	for _, c := range []struct {
		ended Time
		want  int64
	}{{0, 0}, {began, 1}, {began + 1, 1}, {began + 1_999, 1}, {began + 2_000, 2}, {began - 5_000, 1}} {
		if got := RunView(&Run{StartedAt: began, EndedAt: c.ended}, "w").DurationMS; got != c.want {
			t.Errorf("ended after %d µs: %d ms, want %d", c.ended-began, got, c.want)
		}
	}
	if got := RunView(&Run{EndedAt: began}, "w").DurationMS; got != 0 {
		t.Errorf("a run that never began lasted %d ms", got)
	}
}
