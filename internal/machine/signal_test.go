package machine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
)

// No wake-up is lost: a signal that the suspending run had not seen makes the execution due at
// once, whether the signal or the suspend is first, in one batch or in two.
func TestASuspendSeesEverySignal(t *testing.T) {
	for name, play := range map[string]func(s *stage, l belay.Lease, suspend *Settle, signal *Deliver){
		"signal, then suspend": func(s *stage, _ belay.Lease, suspend *Settle, signal *Deliver) {
			s.do(signal)
			s.do(suspend)
		},
		"suspend, then signal": func(s *stage, _ belay.Lease, suspend *Settle, signal *Deliver) {
			s.do(suspend)
			s.do(signal)
		},
		"in one fold": func(s *stage, _ belay.Lease, suspend *Settle, signal *Deliver) {
			s.batch(signal, suspend)
		},
		"in one fold, late": func(s *stage, _ belay.Lease, suspend *Settle, signal *Deliver) {
			s.batch(suspend, signal)
		},
	} {
		s := newStage(t)
		w := s.worker("w")
		l := s.run(w)
		play(s, l, s.settle(l, belay.OutcomeSuspended, func(x *belay.Settlement) {
			x.Wait = hour
		}), s.signal(l.Execution, "go"))
		t.Log(name)
		s.is(l.Execution, "waiting(timer due)")
		if won := s.win(w); won.Execution != l.Execution {
			t.Errorf("%s: won %s", name, won.Execution)
		}
	}
}

// A signal that the run had seen does not wake the execution.
func TestSuspendAfterSeeingTheSignal(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	seq := s.do(s.signal(l.Execution, "go")).Seq
	s.do(s.settle(l, belay.OutcomeSuspended, func(x *belay.Settlement) { x.SignalSeen = seq }))
	s.is(l.Execution, "waiting(signal)")
	s.do(s.signal(l.Execution, "go"))
	s.is(l.Execution, "waiting(signal due)")
}

// A signal makes only waiting executions due: a pending execution with a later due time keeps that
// due time when a signal arrives, also if the execution is paused at that moment.
func TestASignalWakesOnlyWaitingExecutions(t *testing.T) {
	s := newStage(t)
	id := s.submit(func(b *belay.Submission) { b.DueAt = s.now.Add(hour).Time() })
	s.do(s.signal(id, "go"))
	s.is(id, "pending(delayed later)")
	s.do(s.act(id, belay.ActionPause))
	s.do(s.signal(id, "go"))
	s.do(s.act(id, belay.ActionResume))
	s.is(id, "pending(delayed later)")
}

// A signal, cancel, pause or preempt sets Attention, so that the owner soon sends a heartbeat.
func TestOwnersAreAskedForAttention(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w)
	s.submit(s.childOf(l, "c"))
	child := s.win(w)
	for _, c := range []Command{
		s.signal(l.Execution, "go"), s.settle(child, belay.OutcomeSucceeded), s.act(l.Execution, belay.ActionPause),
		s.act(l.Execution, belay.ActionResume), s.act(l.Execution, belay.ActionPreempt),
		s.act(l.Execution, belay.ActionCancel),
	} {
		changes, _ := s.batch(c)
		asked := false
		for _, e := range changes.Executions {
			asked = asked || e.ID == l.Execution && e.Attention
		}
		if !asked {
			t.Errorf("%T asks for no attention", c)
		}
	}
	changes, _ := s.batch(s.save(l, belay.KindStep, "a"))
	if changes.Executions[0].Attention {
		t.Error("an owner's own write asks for its attention")
	}
}

// An execution that is already due keeps its due time when a signal arrives, and therefore its
// position in the lane (the due executions with equal queue, workflow, version, priority and
// labels).
func TestSignalKeepsAnEarlierDueTime(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w)
	s.do(s.settle(l, belay.OutcomeSuspended, func(x *belay.Settlement) { x.Wait = 1 }))
	s.pass(5 * 1e9)
	s.do(s.signal(l.Execution, "go"))
	if got := s.row(l.Execution).DueAt; got >= s.now {
		t.Errorf("due at %d, now %d", got, s.now)
	}
}

// A signal is consumed once, by the checkpoint of the wait that received it.
func TestSignalsAreConsumedOnce(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	first, second := s.do(s.signal(l.Execution, "a")).Seq, s.do(s.signal(l.Execution, "a")).Seq
	take := func(seq int64) *Save {
		c := s.save(l, belay.KindWait, "wait")
		c.Consumes = seq
		return c
	}
	if u := Unconsumed(s.records[l.Execution].history(), 0); len(u) != 2 || u[0].Seq != first || u[1].Seq != second {
		t.Fatalf("unconsumed: %+v", u)
	}
	c := take(first)
	s.do(c)
	s.refused(take(first), belay.CodeConflict)
	s.refused(take(99), belay.CodeNotFound)
	c.Repeat = true
	if r := s.do(c); !r.Replayed {
		t.Errorf("the repetition is answered %+v", r)
	}
	if u := Unconsumed(s.records[l.Execution].history(), 0); len(u) != 1 || u[0].Seq != second {
		t.Errorf("unconsumed: %+v", u)
	}
	if u := Unconsumed(s.records[l.Execution].history(), second); len(u) != 0 {
		t.Errorf("unconsumed after %d: %+v", second, u)
	}
}

// Within one batch, too, only one of two waits consumes a signal, and a wait may consume a signal
// that was delivered earlier in the batch.
func TestSignalsAreConsumedOnceInOneFold(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	next := s.row(l.Execution).Seq + 1
	a, b := s.save(l, belay.KindWait, "a"), s.save(l, belay.KindWait, "b")
	a.Consumes, b.Consumes = next, next
	_, r := s.batch(s.signal(l.Execution, "x"), a, b)
	if r[1].Err != nil || belay.CodeOf(r[2].Err) != belay.CodeConflict {
		t.Errorf("answers %v and %v", r[1].Err, r[2].Err)
	}
	if got := s.records[l.Execution].signals[0].ConsumedBy; got != next+1 {
		t.Errorf("consumed by %d", got)
	}
	// Each execution has its own seqs, so two executions can consume signals with the same seq.
	x, y := s.run(l.Worker), s.run(l.Worker)
	seq := s.row(x.Execution).Seq + 1
	p, q := s.save(x, belay.KindWait, "p"), s.save(y, belay.KindWait, "q")
	p.Consumes, q.Consumes = seq, seq
	_, r = s.batch(s.signal(x.Execution, "x"), s.signal(y.Execution, "y"), p, q)
	if r[2].Err != nil || r[3].Err != nil {
		t.Errorf("answers %v and %v", r[2].Err, r[3].Err)
	}
	s.do(s.signal(x.Execution, "x"))
	s.do(s.signal(y.Execution, "y"))
	p, q = s.save(x, belay.KindWait, "p"), s.save(y, belay.KindWait, "q")
	p.Consumes, q.Consumes = seq+2, seq+2
	if _, r = s.batch(p, q); r[0].Err != nil || r[1].Err != nil {
		t.Errorf("answers %v and %v", r[0].Err, r[1].Err)
	}
}

func TestSignalsAreRefused(t *testing.T) {
	s := newStage(t)
	id := s.submit()
	big := s.signal(id, "big")
	big.Payload = json.RawMessage(`"` + strings.Repeat("x", belay.MaxSignal) + `"`)
	if err := s.refused(big, belay.CodePayloadTooLarge); !strings.Contains(err.Message, "65536") {
		t.Errorf("the limit is not named: %s", err.Message)
	}
	s.refused(s.signal(id, ""), belay.CodeInvalid)
	s.refused(s.signal(id, strings.Repeat("n", belay.MaxName+1)), belay.CodeInvalid)
	s.refused(s.signal(belay.ExecutionID(s.id()), "a"), belay.CodeNotFound)
}

// A signal that its sender repeats after the execution has ended gets its first answer and no
// refusal.
func TestSignalRepeatedAfterTheEnd(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	c := s.signal(l.Execution, "go")
	seq := s.do(c).Seq
	s.do(s.settle(l, belay.OutcomeSucceeded))
	if r := s.do(c); r.Seq != seq || !r.Replayed {
		t.Errorf("answered %+v", r)
	}
	s.refused(s.signal(l.Execution, "go"), belay.CodeConflict)
}

// Rule: the history names the actor of a signal; a repetition by another actor is the same signal. The audit has each
// signal that has an actor once, with its name. A signal without an actor, such as that of a program which needs no
// key, is in no audit.
func TestSignalsNameTheirActors(t *testing.T) {
	s := newStage(t)
	id := s.run(s.worker("w")).Execution
	by := func(actor string, c *Deliver) *Deliver {
		again := *c
		again.Actor = actor
		return &again
	}
	first, none, batched := s.signal(id, "deploy_ok"), s.signal(id, "go"), s.signal(id, "again")
	for i, c := range []*Deliver{by("ann", first), by("eve", first), by("", first)} {
		if r := s.do(c); r.Replayed != (i > 0) || r.Seq != 3 {
			t.Errorf("signal %d: %+v", i, r)
		}
	}
	s.do(none)
	s.do(by("eve", none))
	s.batch(by("ann", batched), by("eve", batched))
	var got []string
	events := Events(s.records[id].history(), 2, 100)
	for _, ev := range events {
		got = append(got, fmt.Sprintf("%d %s %s by %q: %s%s", ev.Seq, ev.Kind, ev.Name, ev.Actor, ev.Text, ev.Data))
	}
	want := []string{`3 signal deploy_ok by "ann": 1`, `4 signal go by "": 1`, `5 signal again by "ann": 1`}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if one := Events(s.records[id].history(), 2, 1); !cmp.Equal(one, events[:1]) {
		t.Errorf("the first event alone is %+v", one)
	}
	got = nil
	for _, a := range s.audit {
		got = append(got, fmt.Sprintf("%s %s %s %d: %s", a.Actor, a.Action, a.Kind, a.Version, a.Reason))
		if a.Name != id.String() || a.At != s.now {
			t.Errorf("%+v", a)
		}
	}
	if d := cmp.Diff([]string{"ann signal execution 3: deploy_ok", "ann signal execution 5: again"}, got); d != "" {
		t.Error(d)
	}
}

// A signal with an actor that is no name is refused, and changes nothing.
func TestActorsOfSignalsAreChecked(t *testing.T) {
	s := newStage(t)
	id := s.run(s.worker("w")).Execution
	for what, actor := range map[string]string{
		"a long name": strings.Repeat("a", belay.MaxName+1), "a control character": "a\x1b[31m", "a NUL": "a\x00",
		"no text": "\xff",
	} {
		t.Log(what)
		c := s.signal(id, "go")
		c.Actor = actor
		s.refused(c, belay.CodeInvalid)
	}
}
