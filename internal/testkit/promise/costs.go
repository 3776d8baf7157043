package promise

import (
	"slices"

	"github.com/belaydev/belay"
)

// G17 checks that costs count once: the cost of an execution is the sum of the costs that its owners
// reported with writes that were carried out, and of the costs of its children. A repetition, a refused
// write and a lost owner add nothing. The checks of budgets need the rows and are elsewhere.
func G17(f *Finding) {
	if len(f.History.Told) == 0 {
		return
	}
	spent := f.reported()
	children := make(map[belay.ExecutionID][]*Story)
	for _, s := range f.History.Stories {
		children[s.Execution.Parent] = append(children[s.Execution.Parent], s)
	}
	for _, s := range f.History.Stories {
		if s.Deleted { // descendants may have reported costs after it was deleted
			continue
		}
		var all costs
		for tree := []*Story{s}; len(tree) > 0; tree = tree[1:] {
			c := spent[tree[0].ID]
			all.sure, all.open = all.sure.Add(c.sure), append(all.open, c.open...)
			tree = append(tree, children[tree[0].ID]...)
		}
		if got := s.Execution.CostTokens; !all.allow(got) {
			f.Violation(s, "it costs %s, and its owners and those of its descendants reported %s%s", got, all.sure,
				all.doubt())
		}
		if len(children[s.ID]) > 0 && s.Execution.CostTokens > spent[s.ID].sure {
			f.Count("cost of a child charged to its parent")
		}
		f.OK()
	}
}

// costs are the costs that owners of an execution reported.
type costs struct {
	sure belay.Cost
	// open lists the costs of ends whose answer no caller got and that may have been carried out.
	open []belay.Cost
}

// allow reports whether the costs can have this sum.
func (c *costs) allow(sum belay.Cost) bool {
	sums := map[belay.Cost]bool{c.sure: true}
	for _, more := range c.open {
		for had := range sums {
			sums[had.Add(more)] = true
		}
		if len(sums) > 1<<16 {
			return true // too many possibilities to decide
		}
	}
	return sums[sum]
}

func (c *costs) doubt() string {
	if len(c.open) == 0 {
		return ""
	}
	text := ", and perhaps"
	for _, x := range c.open {
		text += " " + x.String()
	}
	return text
}

// report is a write with a cost, and all tries of it. An entry of the kind charge says that a try was about
// to be made; it is needed if the caller may be killed before it can record the answer.
type report struct {
	story *Story
	tries []*Entry
}

// reported adds up, for each execution, the costs of the writes that were carried out.
func (f *Finding) reported() map[belay.ExecutionID]*costs {
	type name struct {
		execution belay.ExecutionID
		op        belay.OpID
	}
	var all []*report
	byName := make(map[name]*report)
	for i := range f.History.Told {
		e := &f.History.Told[i]
		s := f.History.Story(e.Execution)
		if e.Cost == 0 || s == nil || e.Kind != "save" && e.Kind != "settle" && e.Kind != "charge" {
			continue // G3 reports a story that is missing
		}
		r := byName[name{e.Execution, e.Op}]
		if r == nil || e.Op.IsZero() {
			r = &report{story: s}
			all = append(all, r)
			byName[name{e.Execution, e.Op}] = r
		}
		r.tries = append(r.tries, e)
	}
	out := make(map[belay.ExecutionID]*costs)
	for _, s := range f.History.Stories {
		out[s.ID] = new(costs)
	}
	for _, r := range all {
		f.add(r, out[r.story.ID])
	}
	return out
}

// add adds the cost of a write to the costs of its execution if the write was carried out, once.
func (f *Finding) add(r *report, to *costs) {
	cost := r.tries[0].Cost
	calls := slices.DeleteFunc(slices.Clone(r.tries), func(e *Entry) bool { return e.Kind == "charge" })
	ended := func(how Ending) bool {
		return slices.ContainsFunc(calls, func(e *Entry) bool { return e.End == how })
	}
	switch {
	case ended(OK):
		if len(calls) > 1 {
			f.Count("cost reported again")
		}
		to.sure = to.sure.Add(cost)
		return
	case len(calls) > 0 && !ended(Unknown) && !ended(""):
		f.Count("cost of a refused write")
		return // every try was refused
	}
	f.Count("cost of a write without an answer")
	switch e := r.tries[0]; {
	case r.story.Ops != nil && !e.Op.IsZero():
		if len(r.story.Ops[e.Op]) > 0 {
			to.sure = to.sure.Add(cost)
		}
	case e.Check != 0:
		pruned := func(ev *belay.Event) bool { return ev.Pruned && ev.Token == e.Token && ev.Name == e.Name }
		switch {
		case (kept{Finding: f}).save(r.story, e):
			to.sure = to.sure.Add(cost)
		case r.story.Find(e.Check.String(), pruned) != nil: // without its data, the event may be that of another save
			to.open = append(to.open, cost)
		}
	case (kept{Finding: f}).settlement(r.story, e):
		switch e.Outcome {
		case belay.OutcomeSucceeded, belay.OutcomeFailed, belay.OutcomeSuspended: // only an owner ends a run so
			to.sure = to.sure.Add(cost)
		default:
			to.open = append(to.open, cost)
		}
	}
}
