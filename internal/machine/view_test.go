package machine

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
)

// Guarantee G15 (watchers miss nothing): the history is the merge of the rows by seq: ordered,
// without duplicates or gaps, and resumable from any seq.
func TestTheHistoryIsTheMergeOfAllRows(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(hour))
	id := s.submit(policy(belay.Policy{MaxAttempts: 2}))
	l := s.win(w)
	s.do(s.save(l, belay.KindStep, "a"))
	s.do(s.settle(l, belay.OutcomeFailed, failing))
	s.pass(time.Minute)
	l = s.win(w)
	s.do(s.act(id, belay.ActionPreempt))
	s.do(s.settle(l, belay.OutcomePreempted))
	s.do(&Schedule{Execution: id, Worker: w, Secret: belay.Secret{1}})
	s.do(s.act(id, belay.ActionPause))
	s.do(s.act(id, belay.ActionResume))
	s.do(s.signal(id, "go"))
	r := s.do(&Schedule{Execution: id, Worker: w, Secret: belay.Secret{1}})
	l = leaseOf(&s.do(&Accept{w, id, r.Execution.Token, 1}).Claims[0].Execution)
	wait := s.save(l, belay.KindWait, "go")
	wait.Consumes = s.row(id).SignalSeq
	s.do(wait)
	s.do(s.settle(l, belay.OutcomeSucceeded, func(x *belay.Settlement) { x.Output = json.RawMessage(`"done"`) }))
	s.do(s.act(id, belay.ActionFork))
	want := "submitted started step failed started preempt preempted scheduled pause resume signal scheduled " +
		"started wait succeeded! fork"
	rec := s.records[id].history()
	all := Events(rec, 0, 1000)
	if got := kinds(all); got != want {
		t.Errorf("the history is\n%s\nwant\n%s", got, want)
	}
	for i, ev := range all {
		if ev.Seq != int64(i+1) || ev.Execution != id || ev.At.IsZero() {
			t.Errorf("event %d: %+v", i+1, ev)
		}
		if d := cmp.Diff(all[i+1:], Events(rec, ev.Seq, 1000)); d != "" {
			t.Errorf("after %d: %s", ev.Seq, d)
		}
		if d := cmp.Diff(all[:i+1], Events(rec, 0, i+1)); d != "" {
			t.Errorf("the first %d: %s", i+1, d)
		}
	}
	failed, pause, done := all[3], all[8], all[14]
	if failed.Error == nil || failed.Error.Message != "no" || failed.Attempt != 1 || failed.Worker != w ||
		failed.Token != 1 {
		t.Errorf("%+v", failed)
	}
	if pause.Actor != "ann" || pause.Text != "because" || pause.Token != 3 {
		t.Errorf("an action that ended a run carries both: %+v", pause)
	}
	if string(done.Data) != `"done"` || !done.Final || done.Attempt != 2 {
		t.Errorf("%+v", done)
	}
}

// The end of a child is an event of its own kind, which names the child.
func TestEventsNameChildren(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w)
	child := s.submit(s.childOf(l, "kid"))
	s.do(s.settle(s.win(w), belay.OutcomeSucceeded))
	events := Events(s.records[l.Execution].history(), 2, 9)
	if len(events) != 1 || events[0].Kind != "child" || events[0].Name != "kid" || events[0].Text != child.String() {
		t.Errorf("%+v", events)
	}
}

func kinds(events []belay.Event) string {
	var out []string
	for _, ev := range events {
		out = append(out, ev.Kind+mark(ev.Final))
	}
	return strings.Join(out, " ")
}

// Each execution that has no owner and has not ended has a reason, and the time of the next check.
func TestEachRestingExecutionHasAReason(t *testing.T) {
	for _, c := range []struct {
		situation, code string
		until           time.Duration // from now; 0 if only an event can end the state
	}{
		{"pending", "queued", -1}, {"pending/delayed", "delayed", hour}, {"pending/external", "external", 0},
		{"pending/gated", "gate", 0},
		{"pending/retrying", "retry", 1125 * time.Millisecond}, {"pending/released", "released", -1},
		{"pending/reopened", "reopened", -1},
		{"scheduled", "scheduled", 300 * time.Second}, {"waiting", "signal", 0}, {"waiting/timer", "timer", hour},
		{"paused", "paused", 0}, {"paused/waiting", "paused", 0},
		{"running", "", 0}, {"succeeded", "", 0}, {"failed", "", 0}, {"cancelled", "", 0},
	} {
		x := &subject{stage: newStage(t)}
		x.owner, x.other = x.worker("owner"), x.worker("other")
		for _, at := range situations {
			if at.name == c.situation {
				at.set(x)
			}
		}
		r := View(x.records[x.id].history()).Reason
		if c.code == "" {
			if r != nil {
				t.Errorf("%s has reason %+v", c.situation, *r)
			}
			continue
		}
		if r == nil || r.Code != c.code {
			t.Errorf("%s has reason %+v, want %s", c.situation, r, c.code)
			continue
		}
		want := x.now.Add(c.until)
		if c.until == 0 {
			want = 0
		} else if c.until < 0 {
			want = x.now // the execution is due already
		}
		if At(r.Until) != want {
			t.Errorf("%s is looked at again at %s, want %s", c.situation, r.Until, want.Time())
		}
	}
}

// The view of an execution shows the attempt number of its present or next run, and after its end
// that of its last run.
func TestTheViewShowsThePresentAttempt(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(hour))
	id := s.submit(policy(belay.Policy{MaxAttempts: 2}))
	shows := func(want int) {
		t.Helper()
		if got := View(s.records[id].history()).Attempt; got != want {
			t.Errorf("%s shows attempt %d, want %d", s.row(id).State, got, want)
		}
	}
	shows(1)
	l := s.win(w)
	shows(1)
	s.do(s.settle(l, belay.OutcomeFailed))
	shows(2)
	s.pass(time.Minute)
	l = s.win(w)
	shows(2)
	s.do(s.settle(l, belay.OutcomeFailed))
	shows(2)
	s.do(s.act(id, belay.ActionRetry))
	shows(1)
	s.do(s.settle(s.win(w), belay.OutcomeFailed))
	s.pass(time.Minute)
	s.do(s.settle(s.win(w), belay.OutcomeSucceeded))
	shows(2)
}

// A new owner gets each checkpoint with its age by the store's clock, so that a durable sleep ends
// at the right time.
func TestResumeGivesTheAgesOfCheckpoints(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w", ttl(hour)))
	s.do(s.save(l, belay.KindWait, "nap"))
	s.pass(90 * time.Second)
	s.do(s.save(l, belay.KindStep, "a"))
	checkpoints := Resume(s.records[l.Execution].history(), s.now).Checkpoints
	if len(checkpoints) != 2 || checkpoints[0].Age != 90*time.Second || checkpoints[1].Age != 0 ||
		checkpoints[0].Key != "nap" {
		t.Errorf("%+v", checkpoints)
	}
	checkpoints = Resume(s.records[l.Execution].history(), s.now.Add(-hour)).Checkpoints
	if checkpoints[0].Age != 0 {
		t.Errorf("a clock that went back makes an age of %s", checkpoints[0].Age)
	}
}

// The view of an execution shows a deadline only while the deadline applies, and an output only if
// the execution ended with the run that has the output.
func TestViewShowsDeadlineAndOutputOnlyWhileTheyApply(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(hour))
	deadline := func(id belay.ExecutionID) bool { return !View(s.records[id].history()).Deadline.IsZero() }
	timed := s.submit(policy(belay.Policy{Timeout: belay.Duration(hour)}))
	if deadline(timed) {
		t.Error("a deadline before the first run")
	}
	l := s.win(w)
	if !deadline(timed) {
		t.Error("no deadline while it runs")
	}
	s.do(s.settle(l, belay.OutcomeReleased, func(x *belay.Settlement) { x.Output = json.RawMessage(`1`) }))
	s.do(s.act(timed, belay.ActionCancel))
	if v := View(s.records[timed].history()); deadline(timed) || v.Output != nil {
		t.Errorf("after the end: deadline %s, output %s", v.Deadline, v.Output)
	}
	if l := s.run(w, policy(belay.Policy{MaxAttempts: 2})); deadline(l.Execution) {
		t.Error("a deadline without a timeout")
	}
}

// A policy is read back as it was written.
func TestParsePolicy(t *testing.T) {
	want := belay.Policy{
		MaxAttempts: 1, BackoffBase: 2, BackoffCap: 3, MaxLosses: 4, ScheduledTimeout: 5, StartTimeout: 6,
		RunTimeout: 7, IdleTimeout: 8,
		Timeout: 9, CancelGrace: 10, LockDelay: 11, OnLost: belay.Fail, OnExpired: belay.FailExpired,
		NoDeadLetters: true, Abandon: true,
	}
	got, err := ParsePolicy(want.Text())
	if err != nil || *got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if p, err := ParsePolicy(belay.Policy{}.Text()); p != nil || err != nil {
		t.Errorf("the defaults read back as %+v, %v", p, err)
	}
	if _, err := ParsePolicy([]byte(`{`)); err == nil {
		t.Error("nonsense reads as a policy")
	}
}
