package webui

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belaydev/belay"
)

const (
	pageSize   = 50
	countUpTo  = 1000 // how many executions that wait, or run, a page reads
	listPeriod = 5    // seconds after which a list is read again
	mostLabels = 8    // labels in one filter
)

// listing is the page of executions.
type listing struct {
	Rows     []row
	Filter   filter
	Counts   []count
	More     bool     // the counts are lower bounds
	Names    []string // workflow names for the filter
	Searched *moment  // how far back the search has gone; nil if the search is complete
	Older    string   // the address of the next page; empty on the last one
	Newest   string   // the address of the first page; empty on the first one
	Reload   reload
	Filtered bool
	Offers   []offer
	NoBulk   string // why the list does not offer some bulks
	Missing  string // the id or key that no execution has; empty if none was looked for

	WithChildren string // the address of the list with children; empty if it has them, or if it shows one family
}

// row is one execution in a list.
type row struct {
	ID       string
	Workflow string
	Relation []span // what a delivery of a notification reports, or of which execution it is a child; often empty
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
	More    bool // there may be more
	Address string
	Current bool
}

// filter is the query of a list's address.
type filter struct {
	State    string // a state, or "active"; empty for all states
	Workflow string
	Queue    string
	Labels   []string // each as name=value
	Error    string   // a part of the text of the error
	Key      string   // an idempotency key that several executions have
	Children bool     // the children of all executions, too
	Parent   string
	Cursor   string
	Live     string
	States   []string // the states from which the reader can choose
	states   []belay.State
	parent   belay.ExecutionID
	labels   map[string]string
}

const active = "active"

var activeStates = belay.ActiveStates()

func (p *pages) executions(ctx context.Context, r *http.Request) (view, error) {
	f, err := parseFilter(r.URL.Query())
	if err != nil {
		return view{}, err
	}
	missing := strings.TrimSpace(r.URL.Query().Get("find"))
	if missing != "" {
		if to, err := p.lookUp(ctx, missing); err != nil || to != "" {
			return view{redirect: to}, err
		}
	}
	page, err := p.backend.Executions(ctx, belay.Filter{
		States: f.states, Workflow: f.Workflow, Queue: f.Queue, Labels: f.labels, Error: f.Error, Key: f.Key,
		Children: f.Children || f.Key != "", Parent: f.parent, Cursor: f.Cursor, Limit: pageSize, Count: true,
	})
	if err != nil {
		return view{}, err
	}
	now := p.options.Now()
	l := listing{Filter: f, Names: workflows(page.Executions), Reload: reload{Period: listPeriod},
		Missing: excerpt(missing, maxLine)}
	l.Counts, l.More = countStates(&f, &page)
	l.Filtered = f.Key != "" || f.with(func(f *filter) { f.Cursor, f.Live = "", "" }) != "/executions"
	if visitorOf(ctx).allows(belay.ScopeSubmit) {
		l.Offers = []offer{{startPath, "Start an execution", false}}
	}
	bulks, why := bulkOffers(ctx, &f)
	l.Offers, l.NoBulk = append(l.Offers, bulks...), why
	for i := range page.Executions {
		l.Rows = append(l.Rows, rowOf(&page.Executions[i], now))
		if e := &page.Executions[i]; f.Parent == "" && !e.Parent.IsZero() {
			l.Rows[i].Relation = spans("child of " + e.Parent.String())
		}
	}
	if !f.Children && f.Key == "" && f.Parent == "" {
		l.WithChildren = f.with(func(f *filter) { f.Children, f.Cursor = true, "" })
	}
	l.Searched = when(page.SearchedUntil, now)
	if page.Next != "" {
		l.Older = f.with(func(f *filter) { f.Cursor = page.Next })
	}
	if f.Cursor != "" {
		l.Newest = f.with(func(f *filter) { f.Cursor = "" })
	}
	l.Reload = l.Reload.reading(f.Live)
	l.Reload.Start = f.with(func(f *filter) { f.Live = "on" })
	l.Reload.Stop = f.with(func(f *filter) { f.Live = "off" })
	return view{template: "executions", Title: "Executions", Page: l, Refresh: l.Reload.seconds(),
		Live: l.Reload.live(changesPath)}, nil
}

// lookUp returns the address for a text that a reader has pasted: the page of the execution with this id or
// idempotency key, or the list of the executions of several workflows with this key. It returns no
// address if no execution has the key.
func (p *pages) lookUp(ctx context.Context, text string) (string, error) {
	if id, err := belay.ParseExecutionID(text); err == nil {
		return "/executions/" + id.String(), nil
	}
	if len(text) > belay.MaxName || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return "", nil
	}
	page, err := p.backend.Executions(ctx, belay.Filter{Key: text, Children: true, Limit: 2})
	switch {
	case err != nil || len(page.Executions) == 0:
		return "", err
	case len(page.Executions) == 1:
		return "/executions/" + page.Executions[0].ID.String(), nil
	}
	return filter{Key: text}.with(func(*filter) {}), nil
}

// parseFilter reads the query of an address. It refuses unknown states, malformed labels and malformed
// ids, because a list that ignores a filter would show other executions than the reader expects.
func parseFilter(q url.Values) (filter, error) {
	f := filter{
		State: q.Get("state"), Workflow: q.Get("workflow"), Queue: q.Get("queue"),
		Error: strings.TrimSpace(q.Get("error")), Key: q.Get("key"), Parent: q.Get("parent"),
		Cursor: q.Get("cursor"), Live: q.Get("live"), Children: q.Get("children") == "yes",
	}
	if err := parseLabels(&f, q["label"]); err != nil {
		return f, err
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
	if f.Live != "on" && f.Live != "off" {
		f.Live = ""
	}
	if f.Parent == "" {
		return f, nil
	}
	var err error
	f.parent, err = belay.ParseExecutionID(f.Parent)
	return f, err
}

// parseLabels sets the labels of a filter from texts in the form name=value. It ignores empty fields of the form.
func parseLabels(f *filter, all []string) error {
	for _, text := range all {
		if strings.TrimSpace(text) == "" {
			continue
		}
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" || len(f.labels) == mostLabels {
			return &belay.Error{Code: belay.CodeMalformed, Message: fmt.Sprintf("%q is no label in the form "+
				"name=value, or there are more than %d labels", excerpt(text, 60), mostLabels)}
		}
		if f.labels == nil {
			f.labels = make(map[string]string)
		}
		f.labels[name] = value
	}
	for _, name := range slices.Sorted(maps.Keys(f.labels)) {
		f.Labels = append(f.Labels, name+"="+f.labels[name])
	}
	return nil
}

// with returns the address of the list with a changed filter. change gets a copy of f and may
// change it.
func (f filter) with(change func(*filter)) string {
	change(&f)
	q := url.Values{}
	if len(f.Labels) > 0 {
		q["label"] = f.Labels
	}
	if f.Children {
		q.Set("children", "yes")
	}
	for name, value := range map[string]string{
		"state": f.State, "workflow": f.Workflow, "queue": f.Queue, "error": f.Error, "key": f.Key,
		"parent": f.Parent, "cursor": f.Cursor, "live": f.Live,
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

// countStates returns the counts of a page by state, and whether there may be more executions than they say. A
// state without executions is left out, unless there may be some, or the list shows only this state.
func countStates(f *filter, page *belay.Page) (counts []count, more bool) {
	n := page.Counts
	if n == nil { // a list of few executions with one key
		n = &belay.StateCounts{States: make(map[belay.State]int), More: page.Next != ""}
		for i := range page.Executions {
			n.States[page.Executions[i].State]++
		}
	}
	all := 0
	for _, m := range n.States {
		all += m
	}
	to := func(s string) string { return f.with(func(f *filter) { f.State, f.Cursor = s, "" }) }
	counts = []count{{State: state{"all", "all"}, N: all, More: n.More, Address: to(""), Current: f.State == ""}}
	for s := belay.Pending; s <= belay.Cancelled; s++ {
		if current := f.State == s.String(); n.States[s] > 0 || n.More || current {
			counts = append(counts, count{State: state{s.String(), s.String()}, N: n.States[s], More: n.More,
				Address: to(s.String()), Current: current})
		}
	}
	return counts, n.More
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
	r := row{
		ID: e.ID.String(), Workflow: nameOf(e), State: stateOf(e), About: about(e), Attempt: e.Attempt,
		Age: when(e.CreatedAt, now), Took: took(e, now),
	}
	if name, reports := newsOf(e); name != "" {
		r.Workflow, r.Relation = name, reports
	}
	return r
}
