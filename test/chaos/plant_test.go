package chaos

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// planted is the result of planting all bugs.
type planted struct {
	caught  int
	escaped []string
	without []string // bugs for which the history has no place
}

// plant plants every bug into a copy of a part of the history, one bug after the other. A bug is
// caught if its checker reports a violation that it does not report without the bug.
func plant(r *record) planted {
	part, err := json.Marshal(excerpt(r))
	if err != nil {
		panic(err) // the text was just made by Marshal
	}
	before := found(part, nil, checks...)
	var p planted
	for _, m := range mutantsOn(r.Store) {
		done := false
		after := found(part, func(p *planting) { done = m.plant(p) }, checkOf(m.meant))
		switch {
		case !done:
			p.without = append(p.without, m.name)
		case slices.ContainsFunc(after[m.meant], func(s string) bool { return !slices.Contains(before[m.meant], s) }):
			p.caught++
		default:
			p.escaped = append(p.escaped, fmt.Sprintf("%s: the planted bug %q was not caught", m.meant, m.name))
		}
	}
	return p
}

// checkOf returns the checker of a promise.
func checkOf(promise string) check {
	return checks[slices.IndexFunc(checks, func(c check) bool { return c.promise == promise })]
}

// found returns the violations that the given checkers find in a history, by promise.
func found(text []byte, change func(*planting), by ...check) map[string][]string {
	r := &record{}
	if err := json.Unmarshal(text, r); err != nil {
		panic(err)
	}
	if change != nil {
		change(&planting{r, newBook(r)})
	}
	out := make(map[string][]string)
	for _, f := range newBook(r).inspect(by...) {
		out[f.Promise] = f.Violated
	}
	return out
}

// each is the number of executions of each kind that an excerpt has.
const each = 12

// excerpt returns a part of a history that the checkers can check alone: some executions of each
// kind, with their parents and children, and all entries about these executions.
func excerpt(r *record) *record {
	b := newBook(r)
	in, kinds := make(map[belay.ExecutionID]bool), make(map[string]int)
	for _, s := range b.stories {
		take := s.Execution.Workflow == swapWorkflow // the other checks of G13 need all changes of the mode
		for _, k := range b.kindsOf(s) {
			take = take || kinds[k] < each
			kinds[k]++
		}
		if take {
			in[b.rootOf(s).ID] = true
		}
	}
	also := func(kind string, id belay.ExecutionID) {
		if s := b.byID[id]; s != nil && kinds[kind] < each && !in[b.rootOf(s).ID] {
			in[b.rootOf(s).ID] = true
			kinds[kind]++
		}
	}
	for i := range r.Seen {
		also("watched", r.Seen[i].Execution)
	}
	for i := range r.Told {
		e := &r.Told[i]
		switch {
		case !e.Named.IsZero() && e.Named != e.Execution:
			also("named by another", e.Named)
		case e.End == refused && e.Why != "":
			also("refused "+e.Kind, e.Execution)
		case e.Replayed && e.Name != "":
			also("repeated "+e.Kind+" "+e.Name[:1], e.Execution)
		}
	}
	for i := range r.Looks {
		for k := range r.Looks[i].Open {
			x := &r.Looks[i].Open[k]
			if x.State == belay.Waiting {
				also("found waiting", x.ID)
			}
			if x.Budget != nil && x.CostTokens >= x.Budget.Cost {
				also("found paused for its budget", x.ID)
			}
		}
	}
	return r.only(func(id belay.ExecutionID) bool { return b.byID[id] != nil && in[b.rootOf(b.byID[id]).ID] })
}

// kindsOf returns the kinds to which an execution belongs: its workflow, its state and its special
// properties.
func (b *book) kindsOf(s *story) []string {
	kinds := []string{s.Execution.Workflow, s.Execution.State.String()}
	if len(s.Runs) > 1 {
		kinds = append(kinds, "several runs")
	}
	if isPoison(s) {
		kinds = append(kinds, "poison")
	}
	if due, claimed, first := pickedUp(s); first && b.idle(s, due.Add(-pickedUpBy-pickedUpBy/1000), claimed) {
		kinds = append(kinds, "picked up long after the last fault")
	}
	switch {
	case s.Gates == nil:
	case s.Gates.Requires != nil:
		kinds = append(kinds, "in a mode")
	default:
		kinds = append(kinds, "under a gate")
	}
	if retried(s) != nil {
		kinds = append(kinds, "claimed after its failure")
	}
	for _, a := range s.Runs {
		if w := b.sessions[a.Worker]; w != nil {
			kinds = append(kinds, "worker "+w.State.String())
		}
		if b.offeredCalmly(a) {
			kinds = append(kinds, "offered calmly")
		}
	}
	for i := range s.Events {
		kinds = append(kinds, s.Events[i].Kind)
	}
	return kinds
}

func (b *book) rootOf(s *story) *story {
	for p := b.byID[s.Execution.Parent]; p != nil; p = b.byID[s.Execution.Parent] {
		s = p
	}
	return s
}

// only returns the part of the record that is about the executions that wanted accepts.
func (r *record) only(wanted func(belay.ExecutionID) bool) *record {
	p := *r
	p.Tales = slices.DeleteFunc(slices.Clone(r.Tales), func(t *tale) bool { return !wanted(t.Execution.ID) })
	p.Letters = slices.DeleteFunc(slices.Clone(r.Letters), func(l promise.Letter) bool { return !wanted(l.Execution) })
	p.Seen = slices.DeleteFunc(slices.Clone(r.Seen), func(s promise.Sighting) bool { return !wanted(s.Execution) })
	keys := make(map[string]bool)
	for i := range r.Told {
		if e := &r.Told[i]; wanted(e.Named) {
			keys[e.Key] = true
		}
	}
	p.Told = slices.DeleteFunc(slices.Clone(r.Told), func(e entry) bool {
		mismatch := e.Code == belay.CodeIdempotencyMismatch && keys[e.Key]
		return e.Kind != "rolled back" && !e.Execution.IsZero() && !wanted(e.Execution) && !wanted(e.Named) && !mismatch
	})
	p.Looks = nil
	for _, l := range r.Looks {
		l.Open = slices.DeleteFunc(slices.Clone(l.Open), func(x belay.Execution) bool { return !wanted(x.ID) })
		p.Looks = append(p.Looks, l)
	}
	p.States = make(map[belay.State]int64)
	for _, t := range p.Tales {
		p.States[t.Execution.State]++
	}
	p.Times = maps.Clone(r.Times)
	return &p
}

// event changes the first event for which the function fits returns true.
func (p *planting) event(fits func(*story, *belay.Event) bool, change func(*belay.Event)) bool {
	for _, s := range p.stories {
		for i := range s.Events {
			if ev := &s.Events[i]; len(s.Runs) > 0 && fits(s, ev) {
				change(ev)
				return true
			}
		}
	}
	return false
}

// tale changes the story (the record of one execution) of the first execution for which the
// function fits returns true.
func (p *planting) tale(fits func(*story) bool, change func(*story)) bool {
	for _, s := range p.stories {
		if fits(s) {
			change(s)
			return true
		}
	}
	return false
}

// entry changes the first entry whose execution exists and for which the function fits returns
// true.
func (p *planting) entry(fits func(*entry) bool, change func(*entry)) bool {
	for i := range p.record.Told {
		e := &p.record.Told[i]
		if p.byID[e.Execution] == nil && p.byID[e.Named] == nil && e.Code != belay.CodeIdempotencyMismatch {
			continue
		}
		if p.byID[e.Execution] == nil && e.Kind != "submit" {
			continue
		}
		if fits(e) {
			change(e)
			return true
		}
	}
	return false
}

// session changes the first session for which the function fits returns true.
func (p *planting) session(fits func(*belay.Worker) bool, change func(*belay.Worker)) bool {
	for i := range p.record.Sessions {
		if w := &p.record.Sessions[i]; fits(w) {
			change(w)
			return true
		}
	}
	return false
}

// tree changes the first process of the first command.
func (p *planting) tree(change func(*agentTale, *ticks)) bool {
	if len(p.record.Agents) == 0 || len(p.record.Agents[0].Trees) == 0 {
		return false
	}
	change(p.record.Agents[0], &p.record.Agents[0].Trees[0])
	return true
}
