package promise

import (
	"encoding/json"
	"strings"

	"github.com/belaydev/belay"
)

// LeastLarge is the size in bytes from which a checkpoint counts as large.
const LeastLarge = 128 << 10

// G3 checks that nothing acknowledged is lost. Every acknowledged write is in the store, byte for
// byte. If the answer to a write never reached its caller, the write is in the store completely and
// once, or not at all. The store has no write that was never requested. An execution whose input is
// a script has the output that can be computed from the script.
func G3(f *Finding) {
	if len(f.History.Told) == 0 {
		return
	}
	f.once()
	k := kept{f, make(map[belay.OpID]bool)}
	asked := make(map[belay.ExecutionID]bool)
	for i := range f.History.Told {
		e := &f.History.Told[i]
		if e.End == OK || e.End == Refused {
			k.answered[e.op()] = true
		}
		switch e.Kind {
		case "submit":
			asked[e.Execution], asked[e.Named] = true, true
		case "control": // an action that forks an execution
			asked[e.Named] = true
		}
	}
	for i := range f.History.Told {
		k.check(&f.History.Told[i])
	}
	for _, s := range f.History.Stories {
		own := s.Execution.Trigger == belay.TriggerSwap || s.Execution.Trigger == belay.TriggerCron ||
			s.Execution.Trigger == belay.TriggerNotification
		if !asked[s.ID] && s.IsRoot() && !own { // Belay itself submits swaps, slots of schedules and deliveries
			f.Violation(s, "it exists and was never submitted")
		}
		f.output(s)
	}
}

// once finds operations that were carried out more than once.
func (f *Finding) once() {
	first := make(map[belay.OpID]*Story)
	for _, s := range f.History.Stories {
		for op, seqs := range s.Ops {
			if old := first[op]; !op.IsZero() && (old != nil || len(seqs) > 1) {
				f.Violation(s, "operation %s was carried out again: seqs %d", op, seqs)
			}
			first[op] = s
		}
	}
}

// kept checks that the store has the writes that callers requested.
type kept struct {
	*Finding
	answered map[belay.OpID]bool // operations whose answer reached a caller
}

func (k kept) check(e *Entry) {
	if e.Kind == "submit" {
		k.submission(e)
		return
	}
	check := map[string]func(*Story, *Entry) bool{
		"save": k.save, "settle": k.settlement, "signal": k.signal, "control": k.control,
	}[e.Kind]
	if check == nil || e.End == Refused {
		return
	}
	if s := k.storyOf(e); s != nil {
		there := check(s, e)
		k.countUnknown(e, there)
		if e.End == OK {
			k.OK()
		}
	}
}

// countUnknown counts a call whose answer never reached a caller, separately for calls that the
// store carried out and calls that it did not.
func (k kept) countUnknown(e *Entry, happened bool) {
	switch {
	case e.End != Unknown || k.answered[e.op()]:
	case happened:
		k.Count("unknown, and it had happened")
	default:
		k.Count("unknown, and it had not")
	}
}

func (k kept) submission(e *Entry) {
	id := e.Execution
	if e.End == OK {
		id = e.Named
	}
	s := k.History.Story(id)
	k.countUnknown(e, s != nil)
	if e.End == OK && s == nil {
		k.Violation(nil, "%s submitted %s and was answered with %s at %s, which does not exist", e.Who, e.Execution, id,
			e.To.Format(clock))
	}
	if s == nil || e.End == Refused {
		return
	}
	input := s.Execution.Input
	if s.Submitted != nil {
		input = s.Submitted
	}
	if !Same(input, e.Data) || s.Execution.Parent != e.Parent || s.Execution.Workflow != e.Name {
		k.Violation(s, "it was submitted as %s with %s and is stored as %s with %s", e.Name, e.Data,
			s.Execution.Workflow, input)
	}
	k.OK()
}

func (k kept) save(s *Story, e *Entry) bool {
	ev := s.At(e.Seq)
	if e.End == Unknown {
		ev = s.Find(e.Check.String(), func(ev *belay.Event) bool {
			return ev.Token == e.Token && ev.Name == e.Name && Same(ev.Data, e.Data)
		})
		return ev != nil
	}
	if ev == nil || ev.Kind != e.Check.String() || ev.Name != e.Name || ev.Token != e.Token || !ev.Pruned &&
		!Same(ev.Data, e.Data) || !s.wrote(e.Op, e.Seq) {
		k.Violation(s, "checkpoint %s was acknowledged to %s at seq %d with %.60s under token %d; stored is %s", e.Name,
			e.Who, e.Seq, e.Data, e.Token, format(ev))
		return false
	}
	if len(e.Data) >= LeastLarge {
		k.Count("large checkpoint kept")
	}
	return true
}

// wrote reports whether the operation op wrote the event seq. If the history has no operation ids, it
// returns true.
func (s *Story) wrote(op belay.OpID, seq int64) bool {
	return s.Ops == nil || op.IsZero() || len(s.Ops[op]) > 0 && s.Ops[op][0] == seq
}

func (k kept) settlement(s *Story, e *Entry) bool {
	r := s.Run(e.Token)
	there := r != nil && r.End != nil && s.wrote(e.Op, r.End.Seq) && (r.End.Kind == e.Outcome.String() ||
		e.Outcome == belay.OutcomeCancelled && r.End.Final)
	if e.End == OK && !there {
		k.Violation(s, "the run of token %d was acknowledged to %s as %s and is not stored so", e.Token, e.Who,
			e.Outcome)
	} else if e.End == OK && !Same(r.End.Data, e.Data) {
		k.Violation(s, "the output %s of %s became %s", e.Data, e.Who, r.End.Data)
	}
	return there
}

func (k kept) signal(s *Story, e *Entry) bool {
	n := 0
	for i := range s.Events {
		if ev := &s.Events[i]; ev.Kind == "signal" && ev.Name == e.Name && Same(ev.Data, e.Data) &&
			s.wrote(e.Op, ev.Seq) {
			n++
		}
	}
	if n > 1 || n == 0 && e.End == OK {
		k.Violation(s, "signal %s is stored %d times; the call of %s ended as %s", e.Data, n, e.Who, e.End)
	}
	return n > 0
}

// control finds the event of an operator's action. An action without effect, such as the pause of a
// paused execution, succeeds and leaves no event.
func (k kept) control(s *Story, e *Entry) bool {
	why := e.Key
	if e.Name == string(belay.ActionBudget) {
		why = "to " + e.Cost.String() + ": " + e.Key
	}
	// The kind of the event is the name of the action, even for a cancel that ended a run by force.
	there := s.Find(e.Name, func(ev *belay.Event) bool {
		return s.Ops != nil && s.wrote(e.Op, ev.Seq) || s.Ops == nil && ev.Text == why
	}) != nil
	if !there && e.End == OK && !k.already(s, e) {
		k.Violation(s, "%s was acknowledged to %s at seq %d and is not stored", e.Name, e.Who, e.Seq)
	}
	return there
}

// already reports whether at some time during the call the execution already was in the state that
// the action requests, so that the action had no effect.
func (k kept) already(s *Story, e *Entry) bool {
	const cancel, pause, resume, preempt = string(belay.ActionCancel), string(belay.ActionPause),
		string(belay.ActionResume), string(belay.ActionPreempt)
	switch e.Name {
	case string(belay.ActionBudget): // the execution had that budget already
		for i := range k.History.Told {
			if first := &k.History.Told[i]; first.Kind == "submit" && first.Execution == s.ID && first.Cost == e.Cost {
				return true
			}
		}
		return s.Find(e.Name, func(ev *belay.Event) bool {
			return strings.HasPrefix(ev.Text+":", "to "+e.Cost.String()+":")
		}) != nil
	case string(belay.ActionFork):
		return k.History.Story(e.Named) != nil
	case string(belay.ActionDelete): // it was being deleted already
		return s.Find("forget", func(*belay.Event) bool { return true }) != nil ||
			s.Find(string(belay.ActionDelete), func(*belay.Event) bool { return true }) != nil
	case cancel, pause, resume, preempt:
	default:
		return false
	}
	done := make(map[string]bool)
	from, to := e.At.Add(-k.History.Skew), e.To.Add(k.History.Skew)
	for i := range s.Events {
		ev := &s.Events[i]
		switch {
		case reopens(ev):
			clear(done)
		case ev.Kind == resume:
			done[pause] = false
		default:
			done[ev.Kind] = true
		}
		if ev.Token != 0 && !IsSave(ev) && !begins(ev) {
			done[preempt] = false
		}
		if ev.Final {
			done[pause] = false
		}
		done[resume] = !done[pause]
		over := i+1 < len(s.Events) && s.when(&s.Events[i+1]).Before(from)
		if done[e.Name] && !over && !s.when(ev).After(to) {
			return true
		}
	}
	return false
}

// output compares the output of an execution with the output that its script must have.
func (f *Finding) output(s *Story) {
	if s.Execution.State != belay.Succeeded || s.Script == nil {
		return
	}
	var said []string
	if err := json.Unmarshal(s.Execution.Output, &said); err != nil {
		f.Violation(s, "the output %.60q cannot be read: %v", s.Execution.Output, err)
		return
	}
	rest, err := expected(s.Script, "", said)
	if err != nil || len(rest) > 0 {
		f.Violation(s, "the output %q is not that of its script %s: %v, %d too many", said, s.Execution.Input, err,
			len(rest))
		return
	}
	f.OK()
}
