package chaos

import (
	"cmp"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// resourceWork is a period in which an owner worked on the resource: it used it in a mode, or changed its
// mode. The worker itself noted when it began and ended.
type resourceWork struct {
	*entry
	story    *story
	from, to time.Time
	ended    bool // the worker noted the end, while its run had not ended
}

// changes reports whether the work is a part of a change of the mode.
func (w *resourceWork) changes() bool { return w.Kind != "use" }

// g13 checks G13 where package promise cannot: in the notes that workers made while they worked on the
// resource, and in what the servers showed of it.
func g13(f *finding) {
	all := g13works(f)
	g13exclusive(f, all)
	g13loaded(f, all)
	for i := range f.Modes {
		g13look(f, &f.Modes[i])
	}
	ends := f.Noted["swapped"] + f.Noted["swap_failed"] + f.Noted["swap_cancelled"] + f.Noted["swap_orphan_cleared"]
	if f.Noted["swap"] != ends || f.Noted["swap_orphan_cleared"] > 0 {
		f.Violation(nil, "%d changes of the mode began, and %d ended: %s", f.Noted["swap"], ends,
			promise.List(f.Noted))
	}
}

// g13works returns all works on the resource, in the order in which they began. The work of an owner ends
// at the latest when its run ends: what a worker does afterwards does not count, because it has lost its
// lease. If a worker was killed, its work ends with its run too.
func g13works(f *finding) (all []resourceWork) {
	type key struct {
		run  belay.RunID
		step string
	}
	of := func(e *entry) key { return key{belay.RunID{Execution: e.Execution, Token: e.Token}, e.Key} }
	ends := make(map[key]time.Time)
	for i := range f.Told {
		if e := &f.Told[i]; e.Kind == worked {
			ends[of(e)] = e.At
		}
	}
	for i := range f.Told {
		e := &f.Told[i]
		if e.Kind != "use" && e.Kind != "unload" && e.Kind != "load" {
			continue
		}
		s := f.byID[e.Execution]
		if s == nil || s.Run(e.Token) == nil {
			f.Violation(s, "%s worked on the resource under token %d, which no claim was given", e.Who, e.Token)
			continue
		}
		w := resourceWork{entry: e, story: s, from: e.At, to: f.Settled}
		if end := s.Run(e.Token).End; end != nil {
			w.to = end.At
		}
		if at, noted := ends[of(e)]; noted && !at.After(w.to) {
			w.to, w.ended = at, true
		} else if noted {
			f.Count("work on the resource after the lease was lost")
		}
		if w.to.After(w.from) {
			all = append(all, w)
		}
	}
	return all
}

// g13exclusive checks that works at the same time use the same mode, and that no other work goes on during a
// change of the mode.
func g13exclusive(f *finding, all []resourceWork) {
	var open []resourceWork
	for _, w := range all {
		open = slices.DeleteFunc(open, func(o resourceWork) bool { return !o.to.After(w.from.Add(skew)) })
		f.OK()
		for _, o := range open {
			if o.changes() || w.changes() || o.Name != w.Name {
				f.Violation(w.story, "at %s %s began to %s %s, while %s of %s was not over: to %s %s, until %s",
					w.from.Format(clock), w.Who, w.Kind, w.Name, o.Who, o.story.ID, o.Kind, o.Name, o.to.Format(clock))
			}
		}
		open = append(open, w)
	}
}

// g13loaded checks that each use finds the mode that was loaded last, and that a change is always newer than
// all changes before it, so that a resource can refuse a former owner.
func g13loaded(f *finding, all []resourceWork) {
	var newest *entry
	last := make([]*resourceWork, 0, len(all)) // in the order of their ends
	for i := range all {
		if w := &all[i]; w.changes() {
			if newest != nil && cmp.Or(cmp.Compare(w.Number, newest.Number), cmp.Compare(w.Token, newest.Token)) < 0 {
				f.Violation(w.story, "the change number %d under token %d came after number %d under token %d",
					w.Number, w.Token, newest.Number, newest.Token)
			}
			newest = w.entry
			if w.Kind == "load" && w.ended {
				last = append(last, w)
			}
		}
	}
	slices.SortFunc(last, func(a, b *resourceWork) int { return a.to.Compare(b.to) })
	for _, w := range all {
		if w.changes() {
			continue
		}
		mode := ""
		for _, l := range last {
			if l.to.After(w.from) {
				break
			}
			mode = l.Name
		}
		if mode != w.Name {
			f.Violation(w.story, "at %s %s used the mode %s, and the mode %q was loaded", w.from.Format(clock), w.Who,
				w.Name, mode)
		}
	}
	for _, s := range f.stories {
		if promise.SwapOf(s) != nil && len(s.Runs) > 1 && s.Runs[0].End.Kind == belay.OutcomeLost.String() {
			f.Count("change of the mode run again")
		}
	}
}

// g13look checks one look at the resource: no run uses it while its mode changes; the execution that changes
// the mode exists, and the resource does not wait for one that has ended; and when all executions have
// ended, nothing uses the resource or waits for it.
func g13look(f *finding, l *modeLook) {
	f.OK()
	if l.Waiting > 0 {
		f.Count("execution found waiting for a mode")
	}
	if l.At.After(f.Settled) && (l.Held > 0 || l.Waiting > 0 || !l.Swapping.IsZero()) {
		f.Violation(nil, "after all executions had ended, the resource was %s (%s), used by %d and awaited by %d",
			l.State, l.Swapping, l.Held, l.Waiting)
	}
	if l.Swapping.IsZero() {
		return
	}
	f.Count("resource found while its mode changed")
	s := f.byID[l.Swapping]
	switch {
	case s == nil:
		f.Violation(nil, "at %s the resource waited for %s, which does not exist", l.At.Format(clock), l.Swapping)
	case l.Held > 0:
		f.Violation(s, "at %s it changed the mode, and %d runs used the resource", l.At.Format(clock), l.Held)
	case s.Execution.State.Terminal() && l.At.After(f.deadline(s.Execution.FinishedAt).Add(catchingUp)):
		f.Violation(s, "at %s the resource still waited for it, and it had ended at %s", l.At.Format(clock),
			s.Execution.FinishedAt.Format(clock))
	}
}

// modeMutants are the planted bugs of resources.
var modeMutants = []mutant{
	{"two runs in different modes at the same time", "G13", func(p *planting) bool {
		return p.tale(func(a *story) bool {
			return slices.ContainsFunc(p.stories, func(b *story) bool { return a != b && useTogether(a, b) })
		}, func(a *story) {
			for i := range p.record.Told { // the submission may have been repeated
				if e := &p.record.Told[i]; e.Kind == "submit" && e.Execution == a.ID {
					e.Gates.Requires.Mode = "D"
				}
			}
		})
	}, ""},
	{"run during a change of the mode", "G13", func(p *planting) bool {
		return p.tale(func(s *story) bool { return promise.SwapOf(s) != nil && p.useBefore(s) != nil }, func(s *story) {
			s.Execution.CreatedAt = p.useBefore(s).At.Add(time.Microsecond)
		})
	}, ""},
	{"two changes of the mode at once", "G13", func(p *planting) bool {
		n := 0
		return p.event(func(s *story, ev *belay.Event) bool {
			if promise.SwapOf(s) != nil && ev.Final {
				n++
			}
			return n == 1 && ev.Final && promise.SwapOf(s) != nil
		}, func(ev *belay.Event) { ev.At = p.Settled })
	}, ""},
	{"work in another mode than the loaded one", "G13", func(p *planting) bool {
		return p.entry(func(e *entry) bool { return e.Kind == "use" }, func(e *entry) { e.Name = "D" })
	}, ""},
	{"change of the mode while a worker uses the resource", "G13", func(p *planting) bool {
		return p.entry(func(e *entry) bool { return e.Kind == "unload" && p.usedBefore(e) != nil }, func(e *entry) {
			e.At = p.usedBefore(e).At.Add(time.Microsecond)
		})
	}, ""},
	{"change of the mode under an older number", "G13", func(p *planting) bool {
		n := 0
		return p.entry(func(e *entry) bool {
			if e.Kind == "unload" {
				n++
			}
			return n > 1 && e.Kind == "unload"
		}, func(e *entry) { e.Number = 1 })
	}, ""},
	{"change of the mode that is never over", "G13", func(p *planting) bool {
		return p.look(func(l *modeLook) bool { return l.At.After(p.Settled) }, func(l *modeLook) {
			l.Swapping = p.stories[0].ID
		})
	}, ""},
	{"change of the mode without an execution", "G13", func(p *planting) bool {
		return p.look(func(l *modeLook) bool { return !l.Swapping.IsZero() }, func(l *modeLook) {
			l.Swapping = newExecutionID()
		})
	}, ""},
	{"change of the mode that ended twice", "G13", func(p *planting) bool {
		if p.record.Noted["swapped"] == 0 {
			return false
		}
		p.record.Noted["swapped"]++
		return true
	}, ""},
}

// useTogether reports whether two executions used the resource in the same mode at the same time.
func useTogether(a, b *story) bool {
	return a.Gates != nil && b.Gates != nil && a.Gates.Requires != nil && b.Gates.Requires != nil &&
		slices.ContainsFunc(a.Runs, func(x *attempt) bool {
			return x.End != nil && slices.ContainsFunc(b.Runs, func(y *attempt) bool {
				return y.End != nil && x.At.Before(y.End.At) && y.At.Before(x.End.At)
			})
		})
}

// useBefore returns a run that used the resource and ended before a change of its mode began, nil if there is
// none.
func (p *planting) useBefore(swap *story) *attempt {
	for _, s := range p.stories {
		for _, a := range s.Runs {
			if s.Execution.Workflow == useWorkflow && a.End != nil && !a.End.At.After(swap.Execution.CreatedAt) &&
				a.End.At.Sub(a.At) > time.Millisecond {
				return a
			}
		}
	}
	return nil
}

// usedBefore returns the beginning of a use that was over when a change of the mode began, nil if there is
// none.
func (p *planting) usedBefore(e *entry) *entry {
	for i := range p.record.Told {
		end := &p.record.Told[i]
		if end.Kind != worked || !end.At.Before(e.At) {
			continue
		}
		for k := range i {
			u := &p.record.Told[k]
			if u.Kind == "use" && u.Key == end.Key && u.Token == end.Token && end.At.Sub(u.At) > 2*skew {
				return u
			}
		}
	}
	return nil
}

// look changes the first look at the resource for which the function fits returns true.
func (p *planting) look(fits func(*modeLook) bool, change func(*modeLook)) bool {
	i := slices.IndexFunc(p.record.Modes, func(l modeLook) bool { return fits(&l) })
	if i >= 0 {
		change(&p.record.Modes[i])
	}
	return i >= 0
}
