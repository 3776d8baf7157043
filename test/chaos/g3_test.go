package chaos

import (
	"encoding/json"

	"github.com/belaydev/belay"
)

// g3: nothing acknowledged is lost. Every ok is there, byte for byte; what nobody
// was told the end of is wholly there or wholly absent; and nothing is there that
// nobody asked for.
func g3(f *finding) {
	asked := make(map[belay.ExecutionID]bool)
	f.answered = make(map[belay.OpID]bool)
	for i := range f.Told {
		if e := &f.Told[i]; e.End == ok || e.End == refused {
			f.answered[e.op()] = true
		}
	}
	for _, end := range []ending{ok, unknown, refused} {
		f.told("submit", end, func(e *entry) { asked[e.Execution] = true; g3submit(f, e) })
		f.told("save", end, func(e *entry) { g3save(f, e) })
		f.told("settle", end, func(e *entry) { g3settle(f, e) })
		f.told("signal", end, func(e *entry) { g3signal(f, e) })
		f.told("control", end, func(e *entry) { g3control(f, e) })
	}
	f.told("rolled back", ok, func(e *entry) {
		f.count("submission rolled back in a transaction")
		if s := f.byID[e.Execution]; s != nil {
			f.violation(s, "it was submitted in a transaction that was rolled back, and is there")
		}
	})
	for _, s := range f.stories {
		if !asked[s.id] && s.isRoot() {
			f.violation(s, "it is there and nobody has submitted it")
		}
		g3output(f, s)
	}
}

// op names what the entry is about, however often it was asked: a submission is
// its execution.
func (e *entry) op() belay.OpID {
	if e.Kind == "submit" {
		return belay.OpID(e.Execution)
	}
	return e.Op
}

// fate notes what became of a call that nobody was ever told the end of.
func (f *finding) fate(e *entry, happened bool) {
	switch {
	case e.End != unknown || f.answered[e.op()]:
	case happened:
		f.count("unknown, and it had happened")
	default:
		f.count("unknown, and it had not")
	}
}

func g3submit(f *finding, e *entry) {
	id := e.Execution
	if e.End == ok {
		id = e.Named
	}
	s := f.byID[id]
	f.fate(e, s != nil)
	if e.End == ok && s == nil {
		f.violation(nil, "%s submitted %s and was told %s at %s, which is not there", e.Who, e.Execution, id, e.To.Format(clock))
	}
	if e.Who == "transaction" && e.End == ok {
		f.count("submission committed in a transaction")
	}
	if s == nil || e.End == refused {
		return
	}
	if !same(s.Execution.Input, e.Data) || s.Execution.Parent != e.Parent || s.Execution.Workflow != e.Name {
		f.violation(s, "it was submitted as %s with %s and is there as %s with %s", e.Name, e.Data, s.Execution.Workflow, s.Execution.Input)
	}
	f.ok()
}

func g3save(f *finding, e *entry) {
	s := f.storyOf(e)
	if s == nil || e.End != ok {
		if s != nil && e.End == unknown {
			f.fate(e, s.find(e.Check.String(), func(ev *belay.Event) bool { return ev.Token == e.Token && ev.Name == e.Name && same(ev.Data, e.Data) }) != nil)
		}
		return
	}
	ev := s.at(e.Seq)
	if ev == nil || ev.Kind != e.Check.String() || ev.Name != e.Name || ev.Token != e.Token || !ev.Pruned && !same(ev.Data, e.Data) {
		f.violation(s, "checkpoint %s was acknowledged to %s at seq %d with %.60s under token %d; there is %s", e.Name, e.Who, e.Seq, e.Data, e.Token, brief(ev))
		return
	}
	if len(e.Data) >= leastLarge {
		f.count("large checkpoint kept")
	}
	f.ok()
}

func g3settle(f *finding, e *entry) {
	s := f.storyOf(e)
	if s == nil || e.End == refused {
		return
	}
	a := s.byToken[e.Token]
	there := a != nil && a.end != nil && (a.end.Kind == e.Outcome.String() || e.Outcome == belay.OutcomeCancelled && a.end.Final)
	f.fate(e, there)
	if e.End != ok {
		return
	}
	if !there {
		f.violation(s, "the run of token %d was acknowledged to %s as %s and is not there so", e.Token, e.Who, e.Outcome)
		return
	}
	if e.Outcome == belay.OutcomeSucceeded && !same(a.end.Data, e.Data) {
		f.violation(s, "the output %s of %s became %s", e.Data, e.Who, a.end.Data)
	}
	f.ok()
}

func g3signal(f *finding, e *entry) {
	s := f.storyOf(e)
	if s == nil || e.End == refused {
		return
	}
	n := 0
	for i := range s.Events {
		if ev := &s.Events[i]; ev.Kind == "signal" && ev.Name == e.Name && same(ev.Data, e.Data) {
			n++
		}
	}
	f.fate(e, n > 0)
	if n > 1 || n == 0 && e.End == ok {
		f.violation(s, "signal %s is there %d times; %s was told %s", e.Data, n, e.Who, e.End)
		return
	}
	f.ok()
}

// g3control looks for an action that was acknowledged. Doing what is already done
// is no error and leaves nothing.
func g3control(f *finding, e *entry) {
	s := f.storyOf(e)
	if s == nil || e.End == refused {
		return
	}
	// A cancel at rest is the action; one that ends a run by force is too.
	there := s.find(e.Name, func(ev *belay.Event) bool { return ev.Text == e.Key }) != nil
	f.fate(e, there)
	if there || e.End == unknown {
		f.ok()
		return
	}
	if !g3already(s, e) {
		f.violation(s, "%s was acknowledged to %s at seq %d and is not there", e.Name, e.Who, e.Seq)
	}
}

// g3already reports whether the action may have been done already when it was
// acknowledged, by the same one before it.
func g3already(s *story, e *entry) bool {
	switch belay.Action(e.Name) {
	case belay.ActionResume: // nothing was paused
		return true
	case belay.ActionPause, belay.ActionCancel, belay.ActionRetry:
		return s.find(e.Name, func(ev *belay.Event) bool { return ev.At.Before(e.To) }) != nil
	default:
		return false
	}
}

// g3output holds the output of a script against the script.
func g3output(f *finding, s *story) {
	if !succeeded(&s.Execution) || s.script == nil {
		return
	}
	var said []string
	if err := json.Unmarshal(s.Execution.Output, &said); err != nil {
		f.violation(s, "the output %.60q cannot be read: %v", s.Execution.Output, err)
		return
	}
	rest, err := expected(s.script, "", said)
	if err != nil || len(rest) > 0 {
		f.violation(s, "the output %q is not that of its script %s: %v, %d too many", said, s.Execution.Input, err, len(rest))
		return
	}
	f.ok()
}
