package webui

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

const (
	pageSize   = 50
	countUpTo  = 1000 // how many of the newest executions are counted by state
	listPeriod = 5    // seconds until a list with live=on reloads
)

// listing is the page of executions.
type listing struct {
	Rows     []row
	Filter   filter
	Counts   []count
	Counted  string   // which executions were counted; empty for all
	Names    []string // workflow names for the filter
	Searched *moment  // how far back the search has gone; nil if the search is complete
	Older    string   // the address of the next page; empty on the last one
	Newest   string   // the address of the first page; empty on the first one
	Live     string   // the address that turns reloading on or off
	IsLive   bool
	Period   int
	Filtered bool
}

// row is one execution in a list.
type row struct {
	ID       string
	Workflow string
	State    state
	About    string
	Attempt  int
	Age      *moment
	Took     string
}

// state is the word and the CSS class of an execution's state.
type state struct {
	Word  string
	Class string
}

// count is the number of executions in a state, with the address of the list of these executions.
type count struct {
	State   state
	N       int
	Address string
	Current bool
}

// filter is the query of a list's address.
type filter struct {
	State    string // a state, or "active"; empty for all states
	Workflow string
	Parent   string
	Cursor   string
	Live     string
	States   []string // the states from which the reader can choose
	states   []belay.State
	parent   belay.ExecutionID
}

const active = "active"

var activeStates = belay.ActiveStates()

func (p *pages) executions(ctx context.Context, r *http.Request) (view, error) {
	f, err := parseFilter(r.URL.Query())
	if err != nil {
		return view{}, err
	}
	query := belay.Filter{States: f.states, Workflow: f.Workflow, Parent: f.parent, Cursor: f.Cursor, Limit: pageSize}
	page, err := p.backend.Executions(ctx, query)
	if err != nil {
		return view{}, err
	}
	all, err := p.backend.Executions(ctx, belay.Filter{Workflow: f.Workflow, Parent: f.parent, Limit: countUpTo})
	if err != nil {
		return view{}, err
	}
	now := p.options.Now()
	l := listing{Filter: f, Counts: countStates(&f, all.Executions), Names: workflows(all.Executions),
		Period: listPeriod, IsLive: f.Live == "on"}
	l.Filtered = f.State != "" || f.Workflow != "" || f.Parent != ""
	for i := range page.Executions {
		l.Rows = append(l.Rows, rowOf(&page.Executions[i], now))
	}
	if all.Next != "" {
		l.Counted = fmt.Sprintf("Counted: the newest %d.", countUpTo)
	}
	l.Searched = when(page.SearchedUntil, now)
	if page.Next != "" {
		l.Older = f.with(func(f *filter) { f.Cursor = page.Next })
	}
	if f.Cursor != "" {
		l.Newest = f.with(func(f *filter) { f.Cursor = "" })
	}
	l.Live = f.with(func(f *filter) {
		if f.Live = "on"; l.IsLive {
			f.Live = ""
		}
	})
	v := view{template: "executions", Title: "Executions", Page: l}
	if l.IsLive {
		v.Refresh = listPeriod
	}
	return v, nil
}

// parseFilter reads the query of an address. It refuses unknown states and malformed ids, because a
// list that ignores a filter would show other executions than the reader expects.
func parseFilter(q url.Values) (filter, error) {
	f := filter{
		State: q.Get("state"), Workflow: q.Get("workflow"), Parent: q.Get("parent"), Cursor: q.Get("cursor"),
		Live: q.Get("live"),
	}
	f.States = append(f.States, active)
	for s := belay.Pending; s <= belay.Cancelled; s++ {
		f.States = append(f.States, s.String())
	}
	switch f.State {
	case "":
	case active:
		f.states = activeStates
	default:
		var s belay.State
		if err := s.UnmarshalText([]byte(f.State)); err != nil {
			return f, err
		}
		f.states = []belay.State{s}
	}
	if f.Live != "on" {
		f.Live = ""
	}
	if f.Parent == "" {
		return f, nil
	}
	var err error
	f.parent, err = belay.ParseExecutionID(f.Parent)
	return f, err
}

// with returns the address of the list with a changed filter. change gets a copy of f and may
// change it.
func (f filter) with(change func(*filter)) string {
	change(&f)
	q := url.Values{}
	for name, value := range map[string]string{
		"state": f.State, "workflow": f.Workflow, "parent": f.Parent, "cursor": f.Cursor, "live": f.Live,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if len(q) == 0 {
		return "/executions"
	}
	return "/executions?" + q.Encode()
}

// countStates counts executions by state. A state without executions is left out, unless the list
// shows only this state.
func countStates(f *filter, all []belay.Execution) []count {
	n := make(map[belay.State]int)
	for i := range all {
		n[all[i].State]++
	}
	to := func(s string) string { return f.with(func(f *filter) { f.State, f.Cursor = s, "" }) }
	counts := []count{{State: state{"all", "all"}, N: len(all), Address: to(""), Current: f.State == ""}}
	for s := belay.Pending; s <= belay.Cancelled; s++ {
		if current := f.State == s.String(); n[s] > 0 || current {
			counts = append(counts, count{
				State: state{s.String(), s.String()}, N: n[s], Address: to(s.String()), Current: current,
			})
		}
	}
	return counts
}

// workflows returns up to fifty names of workflows for the filter.
func workflows(all []belay.Execution) []string {
	names := make(map[string]bool)
	for i := range all {
		if len(names) < 50 {
			names[all[i].Workflow] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func rowOf(e *belay.Execution, now time.Time) row {
	return row{
		ID: e.ID.String(), Workflow: nameOf(e), State: stateOf(e), About: about(e), Attempt: e.Attempt,
		Age: when(e.CreatedAt, now), Took: took(e, now),
	}
}
