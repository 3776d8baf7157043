package webui

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

const (
	historySize = 200 // events on one page
	livePeriod  = 3   // seconds until the page of an execution that has not ended reloads
)

// detail is the page of one execution.
type detail struct {
	ID, Workflow, Version string
	State                 state
	Ended                 bool
	Summary               []span
	Facts                 [][]span
	Owner                 *owner
	Terms                 []term
	Parent, ParentKey     string
	Children              string // the address of the list of its open children; empty if it has none
	OpenChildren          int

	Input, Output, Stack *payload
	Error                *payload
	Text                 *payload // of the stored document that it runs
	ErrorClass           string

	Tasks    *taskList // nil if it does not run a document
	Timeline *timeline
	Events   []eventRow
	Shown    string // which events the page shows; empty for all
	Earlier  string
	Later    string
	Log      *logTail

	IsJob    bool       // there is a page with its transcript and changes
	Letter   *ownLetter // nil if it has no dead letter
	Remedies []remedy
	Offers   []offer
	Done     string // a note about the action that was carried out

	Reload *reload // nil if the execution has ended, or the page shows an older part of the history
}

// term is one line of a list of names and values.
type term struct {
	Name, Value string
	Time        *moment
	Mono        bool
}

func (p *pages) execution(ctx context.Context, r *http.Request) (view, error) {
	id, err := belay.ParseExecutionID(r.PathValue("id"))
	if err != nil {
		return view{}, &belay.Error{
			Code: belay.CodeNotFound, Message: "No execution has this id: " + excerpt(r.PathValue("id"), 60),
		}
	}
	e, err := p.backend.Execution(ctx, id)
	if err != nil {
		return view{}, err
	}
	why, err := p.backend.Explain(ctx, id)
	if err != nil {
		return view{}, err
	}
	sessions, err := p.backend.Workers(ctx)
	if err != nil {
		return view{}, err
	}
	now := p.options.Now()
	d := detailOf(&e, &why, now)
	d.Owner = ownerOf(&e, sessions, now)
	d.Remedies = remediesFor(ctx, &e, &why)
	d.Offers, d.Done = unlike(p.offers(ctx, &e), d.Remedies), doneNote(r.URL.Query())
	if d.Tasks, err = p.tasks(ctx, &e, now); err != nil {
		return view{}, err
	}
	if err := p.history(ctx, r.URL.Query(), &e, sessions, d); err != nil {
		return view{}, err
	}
	if d.Letter, err = p.letter(ctx, &e, now); err != nil {
		return view{}, err
	}
	if d.Log, err = p.tail(ctx, id); err != nil {
		return view{}, err
	}
	d.Timeline.output(d.Log)
	title := excerpt(nameOf(&e), 60) + " · " + d.State.Word
	v := view{template: "execution", Title: title, Page: d}
	d.renewal(r.URL)
	if d.Reload != nil && !d.Reload.Off {
		v.Refresh, v.Live = livePeriod, d.Reload.live(ofExecution(id, e.Seq))
		if d.Done != "" {
			v.Next = "/executions/" + d.ID // without the note, which is out of date soon
			v.Live.Page = v.Next
		}
	}
	return v, nil
}

func detailOf(e *belay.Execution, why *belay.Explanation, now time.Time) *detail {
	d := &detail{
		ID: e.ID.String(), Workflow: nameOf(e), Version: e.Version,
		State: stateOf(e), Ended: e.State.Terminal(),
		Summary: spans(why.Summary), Terms: terms(e, now), ParentKey: e.ParentKey, OpenChildren: e.OpenChildren,
		IsJob: isJob(e), Input: show(e.Input), Output: show(e.Output),
	}
	if e.Document() != "" {
		d.Version = e.Workflow
		d.Input, d.Text = inputAndText(e.Input)
	}
	for _, f := range why.Facts {
		d.Facts = append(d.Facts, spans(f))
	}
	if !e.Parent.IsZero() {
		d.Parent = e.Parent.String()
	}
	if e.OpenChildren > 0 {
		d.Children = "/executions?" + url.Values{"parent": {d.ID}}.Encode()
	}
	if e.Error != nil {
		d.Error, d.Stack, d.ErrorClass = block(e.Error.Message), block(e.Error.Stack), e.Error.Class.String()
	}
	return d
}

// inputAndText returns the input that the submitter of a stored document gave, and the text of the document. The
// input of the execution has both.
func inputAndText(raw json.RawMessage) (input, text *payload) {
	var parts struct {
		Input    json.RawMessage
		Document string
	}
	if json.Unmarshal(raw, &parts) != nil || parts.Document == "" {
		return show(raw), nil
	}
	return show(parts.Input), block(parts.Document)
}

// terms returns the names and values that the page lists for an execution.
func terms(e *belay.Execution, now time.Time) []term {
	all := []term{
		{Name: "Attempt", Value: strconv.Itoa(e.Attempt)},
		{Name: "Token", Value: strconv.FormatInt(int64(e.Token), 10), Mono: true},
	}
	add := func(name, value string) {
		if value != "" {
			all = append(all, term{Name: name, Value: value})
		}
	}
	if !ofBelayRun(e) {
		add("Queue", e.Queue)
	}
	all = append(all, term{Name: "Submitted", Time: when(e.CreatedAt, now)})
	at := func(name string, t time.Time) {
		if m := when(t, now); m != nil {
			all = append(all, term{Name: name, Time: m})
		}
	}
	at("First run", e.StartedAt)
	if !e.State.Terminal() {
		at("Last progress", e.ProgressAt)
		at("Ended by force at", e.CancelBy)
		at("Deadline", e.Deadline)
	}
	at("Ended", e.FinishedAt)
	add("Took", took(e, now))
	if e.Losses > 0 {
		add("Owners lost in a row", strconv.Itoa(e.Losses))
	}
	add("Gate", string(e.Gate))
	if e.External {
		add("Owner", "only a program that locks it")
	}
	add("Idempotency key", e.Key)
	add("Started by", string(e.Trigger))
	add("Submitted by", line(e.CreatedBy))
	if e.CostTokens > 0 {
		add("Cost in tokens", e.CostTokens.String())
	}
	for _, k := range slices.Sorted(maps.Keys(e.Labels)) {
		if k != "line" || !ofBelayRun(e) {
			add("Label "+k, e.Labels[k])
		}
	}
	for _, k := range slices.Sorted(maps.Keys(e.WorkerLabels)) {
		add("Needs worker label "+k, e.WorkerLabels[k])
	}
	return all
}

// ofBelayRun reports whether the command belay run has submitted the execution. The queue and the
// label "line" of such an execution are internal to belay run, and the page does not show them.
func ofBelayRun(e *belay.Execution) bool { return strings.HasPrefix(e.Queue, "run:") }

// place describes a process by its number and host.
func place(p belay.Process) string {
	var parts []string
	if p.PID != 0 {
		parts = append(parts, fmt.Sprintf("process %d", p.PID))
	}
	if p.Host != "" {
		parts = append(parts, "on "+excerpt(p.Host, maxLine))
	}
	return strings.Join(parts, " ")
}

// renewal decides whether the page is kept up to date. It is not if the execution has ended, or if the address contains
// live=off or requests an older part of the history.
func (d *detail) renewal(u *url.URL) {
	q := u.Query()
	if d.Ended || q.Get("after") != "" {
		return
	}
	at := "/executions/" + d.ID
	off := q.Get("live") == "off"
	d.Reload = &reload{Start: at, Stop: at + "?live=off", Off: off, On: !off, Period: livePeriod}
}
