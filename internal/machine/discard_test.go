package machine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// script plays a run of an execution and lets it fail. Each line is the kind and the name of what
// happens: a step, a state or a wait that is saved, a signal that is delivered, a wait that consumes
// the signal or the child with the number after "<", or a child that ends.
func script(t *testing.T, lines ...string) (*stage, belay.WorkerID, belay.ExecutionID, map[string]int64) {
	t.Helper()
	s := newStage(t)
	w := s.worker("w", ttl(hour))
	l := s.run(w, policy(belay.Policy{MaxAttempts: 1}))
	seqs := s.play(w, l, lines...)
	s.do(s.settle(l, belay.OutcomeFailed, failing))
	return s, w, l.Execution, seqs
}

func (s *stage) play(w belay.WorkerID, l belay.Lease, lines ...string) map[string]int64 {
	s.t.Helper()
	seqs := make(map[string]int64)
	for _, line := range lines {
		kind, name, _ := strings.Cut(line, " ")
		name, consumes, _ := strings.Cut(name, " < ")
		switch kind {
		case "signal":
			c := s.signal(l.Execution, name)
			c.Payload = json.RawMessage(`"poison"`)
			seqs[line] = s.do(c).Seq
			continue
		case "child":
			s.do(s.submission(s.childOf(l, name)))
			kid := s.win(w)
			s.do(s.settle(kid, belay.OutcomeSucceeded))
			seqs[line] = s.row(l.Execution).Seq
			continue
		}
		c := s.save(l, map[string]belay.CheckpointKind{
			"step": belay.KindStep, "state": belay.KindState, "wait": belay.KindWait,
		}[kind], name)
		c.Data = json.RawMessage(fmt.Sprintf("%q", line))
		if consumes != "" {
			c.Consumes = seqs[consumes]
		}
		seqs[line] = s.do(c).Seq
	}
	return seqs
}

// from makes a retry discard a step.
func from(step string) func(*belay.Control) { return func(c *belay.Control) { c.From = step } }

// left describes what the next run of an execution gets: checkpoints by their data, and signals.
func (s *stage) left(id belay.ExecutionID) string {
	var out []string
	r := Resume(s.records[id].history(), s.now)
	for _, k := range r.Checkpoints {
		var line string
		if err := json.Unmarshal(k.Data, &line); err != nil {
			line = string(k.Data)
		}
		out = append(out, line)
	}
	for _, x := range r.Signals {
		if x.Child.IsZero() {
			out = append(out, "signal "+x.Name)
		} else {
			out = append(out, "child "+x.Name)
		}
	}
	return strings.Join(out, ", ")
}

// A retry from a step discards that step and everything that was saved after it, and nothing else.
func TestRetryFromAStep(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		from  string
		left  string
	}{
		"the newest step": {[]string{"step a", "step b"}, "b", "step a"},
		"the first step":  {[]string{"step a", "step b"}, "a", ""},
		"a step between":  {[]string{"step a", "step b", "step c"}, "b", "step a"},
		"a keyed step":    {[]string{"step a[1]", "step a[2]", "step a[3]"}, "a[2]", "step a[1]"},
		"a branch's step": {[]string{"step x/a", "step y/a", "step x/b", "step y/b"}, "y/a", "step x/a"},
		"a step saved twice": {
			[]string{"step a", "step b", "step c", "step b"}, "b", "step a",
		},
		"a hostile name":    {[]string{"step a", "step ' OR seq > 0 --"}, "' OR seq > 0 --", "step a"},
		"a name of a state": {[]string{"state state", "step state", "step b"}, "state", "state state"},
		"a wait and its own signal, which came before it": {
			[]string{"step a", "signal go", "wait go < signal go"}, "go", "step a",
		},
		"a wait with a beginning": {
			[]string{"step a", "wait go", "signal go", "wait go < signal go", "step b"}, "go", "step a",
		},
		"a wait that began before the step and ended after it": {
			[]string{"wait go", "step a", "signal go", "wait go < signal go"}, "a", "wait go",
		},
		"a signal that came before the step": {
			[]string{"signal go", "step a", "wait go < signal go"}, "a", "signal go",
		},
		"a signal that came after the step": {
			[]string{"step a", "signal go", "wait go < signal go"}, "a", "",
		},
		"a signal that no wait has consumed": {
			[]string{"step a", "wait go", "signal go", "signal again", "wait go < signal go", "signal more"}, "go",
			"step a, signal again, signal more",
		},
		"a sleep":                    {[]string{"step a", "wait nap", "step b"}, "nap", "step a"},
		"a sleep before the step":    {[]string{"wait nap", "step b"}, "b", "wait nap"},
		"a child":                    {[]string{"step a", "child kid", "wait kid < child kid"}, "kid", "step a"},
		"a child that ended before":  {[]string{"child kid", "step a", "wait kid < child kid"}, "a", "child kid"},
		"a child that ended after":   {[]string{"step a", "child kid", "wait kid < child kid"}, "a", ""},
		"an end that was not waited": {[]string{"step a", "child kid"}, "a", ""},
		"an earlier end that was not waited": {
			[]string{"child kid", "step a", "child two"}, "a", "child kid",
		},
		"a state before the step": {[]string{"state s", "step a", "step b"}, "a", "state s"},
		"a state after the step":  {[]string{"step a", "state s", "step b"}, "a", ""},
	} {
		s, _, id, _ := script(t, c.lines...)
		before := *s.row(id)
		r := s.do(s.act(id, belay.ActionRetry, from(c.from)))
		if got := s.left(id); got != c.left {
			t.Errorf("%s: the next run gets %q, want %q", name, got, c.left)
		}
		e := s.row(id)
		if e.State != belay.Pending || e.Generation != 2 || e.BaseSeq != before.BaseSeq || r.Seq < before.Seq {
			t.Errorf("%s: %+v", name, *e)
		}
		signals, bytes := 0, int64(0)
		for _, x := range s.records[id].signals {
			if x.ConsumedBy == 0 && x.Child.IsZero() {
				signals, bytes = signals+1, bytes+int64(len(x.Payload))
			}
		}
		if e.Signals != signals || e.SignalBytes != bytes {
			t.Errorf("%s: %d signals of %d bytes are counted, %d of %d are kept", name, e.Signals, e.SignalBytes,
				signals, bytes)
		}
	}
}

// The history shows which step the action named, and the discarded checkpoints without their data.
func TestTheHistoryShowsADiscard(t *testing.T) {
	s, _, id, seqs := script(t, "step a", "step b")
	s.do(s.act(id, belay.ActionRetry, from("b")))
	events := Events(s.records[id].history(), 0, 100)
	if last := events[len(events)-1]; last.Kind != "retry" || !strings.HasPrefix(last.Text, `from "b" on`) {
		t.Errorf("the last event is %+v", last)
	}
	for _, ev := range events {
		if ev.Pruned != (ev.Seq == seqs["step b"]) {
			t.Errorf("%+v", ev)
		}
	}
	if e := s.row(id); !strings.HasSuffix(e.ReasonText, `from "b" on`) {
		t.Errorf("the reason is %q", e.ReasonText)
	}
}

// A step that was discarded is saved again, and can be discarded again. Its first result and the
// signal of its first wait do not come back.
func TestDiscardTwice(t *testing.T) {
	s, w, id, _ := script(t, "step a", "signal go", "step b", "wait go < signal go", "state s")
	s.do(s.act(id, belay.ActionRetry, from("go")))
	l := s.win(w)
	s.play(w, l, "state t", "step c")
	s.do(s.settle(l, belay.OutcomeFailed, failing))
	s.refused(s.act(id, belay.ActionRetry, from("go")), belay.CodeInvalid) // the discarded wait was not saved again
	s.do(s.act(id, belay.ActionRetry, from("c")))
	if got := s.left(id); got != "step a, step b, state t" {
		t.Errorf("the next run gets %q", got)
	}
	l = s.win(w)
	s.play(w, l, "step c")
	s.do(s.settle(l, belay.OutcomeFailed, failing))
	s.do(s.act(id, belay.ActionRetry, from("b")))
	if got := s.left(id); got != "step a" {
		t.Errorf("the next run gets %q", got)
	}
	l = s.win(w)
	s.play(w, l, "step b", "state u")
	f := s.do(s.act(id, belay.ActionFork, func(c *belay.Control) { c.At = "b" })).ID
	if got := s.left(f); got != "step a" {
		t.Errorf("the fork gets %q", got)
	}
}

// A step cannot be discarded if the state before it was replaced by a newer one, because the older
// state is gone.
func TestDiscardRefusesAStateThatIsGone(t *testing.T) {
	s, _, id, _ := script(t, "state s", "step a", "state t")
	s.refused(s.act(id, belay.ActionRetry, from("a")), belay.CodeConflict)
	s.refused(s.act(id, belay.ActionFork, func(c *belay.Control) { c.At = "a" }), belay.CodeConflict)
	s.do(s.act(id, belay.ActionRetry))
	if got := s.left(id); got != "step a, state t" {
		t.Errorf("the next run gets %q", got)
	}
}

// A retry from a step is refused, and changes nothing, while the execution runs or waits, after it
// has succeeded, of a child, with another input, and if there is no such step. Then the error lists
// the newest steps.
func TestRetryFromIsRefused(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(hour))
	l := s.run(w)
	s.play(w, l, "step a")
	s.refused(s.act(l.Execution, belay.ActionRetry, from("a")), belay.CodeConflict)
	s.submit(s.childOf(l, "kid"), policy(belay.Policy{MaxAttempts: 1}))
	kid := s.win(w)
	s.play(w, kid, "step a")
	s.do(s.settle(kid, belay.OutcomeFailed, failing))
	s.do(s.settle(l, belay.OutcomeSucceeded))
	s.refused(s.act(l.Execution, belay.ActionRetry, from("a")), belay.CodeConflict)
	s.refused(s.act(kid.Execution, belay.ActionRetry, from("a")), belay.CodeConflict)

	s, _, id, _ := script(t, "step a", "state st", "step 2", "step 3", "step 4", "step 5", "step 6", "step 7",
		"step 8", "step 9", "step 10", "wait 11", "wait 11", "step \u202efdp")
	err := s.refused(s.act(id, belay.ActionRetry, from("b")), belay.CodeInvalid)
	want := `"b"; the newest 10 of its 12 are "3", "4", "5", "6", "7", "8", "9", "10", "11", "\u202efdp"`
	if !strings.HasSuffix(err.Message, want) {
		t.Errorf("%s\nwant %s", err.Message, want)
	}
	for name, c := range map[string]*Act{
		"a state": s.act(id, belay.ActionRetry, from("st")),
		"another input": s.act(id, belay.ActionRequeue, from("a"), func(c *belay.Control) {
			c.Input = []byte("2")
		}),
		"a cancel":         s.act(id, belay.ActionCancel, from("a")),
		"a fork":           s.act(id, belay.ActionFork, from("a")),
		"at":               s.act(id, belay.ActionRetry, func(c *belay.Control) { c.At = "a" }),
		"at and up_to":     s.act(id, belay.ActionFork, func(c *belay.Control) { c.At, c.UpTo = "a", 3 }),
		"an unknown at":    s.act(id, belay.ActionFork, func(c *belay.Control) { c.At = "b" }),
		"a control":        s.act(id, belay.ActionRetry, from("a\x1b[2J")),
		"too long":         s.act(id, belay.ActionRetry, from(strings.Repeat("a", belay.MaxName+1))),
		"not UTF-8":        s.act(id, belay.ActionRetry, from("a\xff")),
		"half of the name": s.act(id, belay.ActionRetry, from("1")),
	} {
		t.Log(name)
		s.refused(c, belay.CodeInvalid)
	}
	empty, _, none, _ := script(t)
	err = empty.refused(empty.act(none, belay.ActionRetry, from("a")), belay.CodeInvalid)
	if !strings.HasSuffix(err.Message, "it has saved none") {
		t.Error(err.Message)
	}
}

// A retry cannot name a step that was saved for an earlier input, and does not discard such steps.
func TestDiscardIgnoresAnEarlierInput(t *testing.T) {
	s, w, id, _ := script(t, "step a", "signal go")
	s.do(s.act(id, belay.ActionRequeue, func(c *belay.Control) { c.Input = json.RawMessage(`2`) }))
	l := s.win(w)
	s.play(w, l, "step b", "step c")
	s.do(s.settle(l, belay.OutcomeFailed, failing))
	s.refused(s.act(id, belay.ActionRetry, from("a")), belay.CodeInvalid)
	s.do(s.act(id, belay.ActionRetry, from("b")))
	if got := s.left(id); got != "" {
		t.Errorf("the next run gets %q", got)
	}
	if k := s.records[id].checkpoints[0]; k.Pruned || k.Data == nil {
		t.Errorf("the step of the earlier input is %+v", *k)
	}
}

// A fork at a step has the results that were saved before that step. The source does not change.
func TestForkAtAStep(t *testing.T) {
	s, _, id, _ := script(t, "step a", "wait go", "signal go", "step b", "wait go < signal go", "step c")
	before := s.left(id)
	for at, want := range map[string]string{
		"a": "", "go": "step a", "b": "step a, wait go", "c": "step a, step b, wait go < signal go",
	} {
		f := s.do(s.act(id, belay.ActionFork, func(c *belay.Control) { c.At = at }))
		got, because := s.left(f.ID), f.Execution.ReasonText
		if got != want || !strings.HasSuffix(because, fmt.Sprintf("before %q", at)) {
			t.Errorf("at %s: %q because %q, want %q", at, got, because, want)
		}
	}
	if after := s.left(id); after != before {
		t.Errorf("the source has %q, had %q", after, before)
	}
}

// A repeated action is answered as before and discards nothing. The same operation id with another
// step is refused.
func TestARepeatedDiscardDiscardsNothing(t *testing.T) {
	s, _, id, _ := script(t, "step a", "step b", "step c")
	c := s.act(id, belay.ActionRetry, from("c"))
	s.do(c)
	if r := s.do(c); !r.Replayed || s.left(id) != "step a, step b" {
		t.Errorf("%+v, %s", r, s.left(id))
	}
	other := *c
	other.From = "b"
	s.refused(&other, belay.CodeIdempotencyMismatch)
	f := s.act(id, belay.ActionFork, func(c *belay.Control) { c.At = "b" })
	s.do(f)
	other = *f
	other.At = "a"
	s.refused(&other, belay.CodeIdempotencyMismatch)
}

// The end of a child that discarded work has started is not delivered, even if it comes after the
// retry.
func TestADiscardedChildIsNotDelivered(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(hour))
	l := s.run(w, policy(belay.Policy{MaxAttempts: 1}))
	s.play(w, l, "step a")
	s.submit(s.childOf(l, "kid"), policy(belay.Policy{Abandon: true}))
	kid := s.win(w)
	s.do(s.settle(l, belay.OutcomeFailed, failing))
	s.do(s.act(l.Execution, belay.ActionRetry, from("a")))
	s.do(s.settle(kid, belay.OutcomeSucceeded))
	if got := s.left(l.Execution); got != "" || s.row(l.Execution).Open != 0 {
		t.Errorf("the next run gets %q, %d children are open", got, s.row(l.Execution).Open)
	}
}

// The save of a wait, the failure and the retry from that wait may be in one batch.
func TestDiscardInOneFold(t *testing.T) {
	apart, together := discardInFolds(t, false), discardInFolds(t, true)
	if apart != together || apart != "step a, b, signal two" {
		t.Errorf("apart %q, together %q", apart, together)
	}
}

func discardInFolds(t *testing.T, together bool) string {
	s := newStage(t)
	w := s.worker("w", ttl(hour))
	l := s.run(w, policy(belay.Policy{MaxAttempts: 1}))
	seqs := s.play(w, l, "step a", "signal one", "signal two")
	one, two := s.save(l, belay.KindWait, "one"), s.save(l, belay.KindWait, "two")
	one.Consumes, two.Consumes = seqs["signal one"], seqs["signal two"]
	all := []Command{
		s.save(l, belay.KindStep, "b"), one, s.save(l, belay.KindState, "s"), two,
		s.settle(l, belay.OutcomeFailed, failing), s.act(l.Execution, belay.ActionRetry, from("missing")),
		s.act(l.Execution, belay.ActionRetry, from("one")),
	}
	if together {
		s.batch(all...)
	} else {
		for _, c := range all {
			s.batch(c)
		}
	}
	if e := s.row(l.Execution); e.State != belay.Pending {
		t.Fatalf("%+v", *e)
	}
	return s.left(l.Execution)
}
