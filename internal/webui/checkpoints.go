package webui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/diff"
)

// Bounds of the page of the checkpoints.
const (
	savedSize    = 100      // events on one page
	savedRead    = 8        // events in one read, each of which may have a megabyte of data
	savedBytes   = 4 << 20  // data of all events that a page reads
	savedShown   = 4 << 10  // of one value
	savedPage    = 96 << 10 // of all values and differences on the page
	savedCompare = 64 << 10 // the largest value that is compared with another
	savedLines   = 120      // of one difference
	mostChildren = 50
)

// savedPageView is the page of the checkpoints, signals and children of an execution.
type savedPageView struct {
	ID, Workflow string
	State        state
	Rows         []savedRow
	Note         string // which part the page shows
	Earlier      string
	Later        string
	Children     []childRow
	AllChildren  string // the address of the list of all children; empty if the page has all
}

// savedRow is one checkpoint or signal.
type savedRow struct {
	Seq        int64
	Kind, Name string
	Time       *moment
	Size       string
	Value      *payload
	Since      int64 // the seq of the earlier checkpoint with the same name, with which Diff compares this one
	Diff       *diffView
	Same       bool // the value is that of Since
	Note       string
}

// childRow is a child of the execution.
type childRow struct {
	Link  exLink
	Key   string
	State state
	About string
	Took  string
}

// checkpoints shows the saved results and states of an execution, each with its difference from the earlier one of the
// same name, and the children.
func (p *pages) checkpoints(ctx context.Context, r *http.Request) (view, error) {
	id, err := belay.ParseExecutionID(r.PathValue("id"))
	if err != nil {
		return view{}, nothingThere()
	}
	e, err := p.backend.Execution(ctx, id)
	if err != nil {
		return view{}, err
	}
	d := &savedPageView{ID: id.String(), Workflow: excerpt(nameOf(&e), maxLine), State: stateOf(&e)}
	if err := p.savedOf(ctx, r.URL.Query().Get("after"), &e, d); err != nil {
		return view{}, err
	}
	if err := p.childrenOf(ctx, &e, d); err != nil {
		return view{}, err
	}
	return view{template: "checkpoints", Title: "Checkpoints · " + d.State.Word, Page: d}, nil
}

// savedOf reads a part of the history with its data: the newest events, or the events after a seq.
func (p *pages) savedOf(ctx context.Context, after string, e *belay.Execution, d *savedPageView) error {
	from := max(0, e.Seq-savedSize)
	if after != "" {
		n, err := strconv.ParseInt(after, 10, 64)
		if err != nil || n < 0 {
			return &belay.Error{Code: belay.CodeMalformed, Message: "after is " + strconv.Quote(excerpt(after, 40)) +
				"; it must be the seq of an event"}
		}
		from = min(n, from)
	}
	all, err := p.withData(ctx, e.ID, from)
	if err != nil {
		return err
	}
	now, room := p.options.Now(), savedPage
	newest := make(map[string]*belay.Event) // by kind and name
	for i := range all {
		ev := &all[i]
		if len(ev.Data) == 0 && !ev.Pruned && ev.Kind != "step" && ev.Kind != "state" {
			continue
		}
		row := savedRowOf(ev, now)
		if key := ev.Kind + " " + ev.Name; ev.Kind == "step" || ev.Kind == "state" {
			row.compare(newest[key], ev)
			if len(ev.Data) > 0 {
				newest[key] = ev
			}
		}
		if room -= row.size(); room < 0 && (row.Value != nil || row.Diff != nil) {
			row.Value, row.Diff, row.Note = nil, nil, "The page has no room for the value; see a later part."
		}
		d.Rows = append(d.Rows, row)
	}
	if len(all) == 0 {
		return nil
	}
	first, last := all[0].Seq, all[len(all)-1].Seq
	to := func(after int64) string {
		return fmt.Sprintf("/executions/%s/checkpoints?after=%d", e.ID, max(0, after))
	}
	if first > 1 {
		d.Earlier = to(first - 1 - savedSize)
	}
	if last < e.Seq {
		d.Later = to(last)
	}
	if d.Earlier != "" || d.Later != "" {
		d.Note = fmt.Sprintf("The checkpoints among the events %d to %d of %d.", first, last, e.Seq)
	}
	return nil
}

// withData reads events with their data, a few at a time.
func (p *pages) withData(ctx context.Context, id belay.ExecutionID, after int64) (all []belay.Event, err error) {
	for size := 0; size < savedBytes && len(all) < savedSize; {
		some, err := p.backend.Events(ctx, belay.EventQuery{
			Execution: id, After: after, Limit: min(savedRead, savedSize-len(all)), Data: true,
		})
		if err != nil || len(some) == 0 {
			return all, err
		}
		for i := range some {
			size += len(some[i].Data)
		}
		all = append(all, some...)
		after = some[len(some)-1].Seq
	}
	return all, nil
}

func savedRowOf(ev *belay.Event, now time.Time) savedRow {
	row := savedRow{
		Seq: ev.Seq, Kind: strings.ReplaceAll(excerpt(ev.Kind, 40), "_", " "), Name: excerpt(ev.Name, maxLine),
		Time: when(ev.At, now),
	}
	switch {
	case ev.Pruned:
		row.Note = "Its data is gone: a newer state replaced it, or a retry from an earlier step discarded it."
	case len(ev.Data) == 0:
		row.Note = "without a value"
	default:
		row.Size, row.Value = bytesOf(len(ev.Data)), shortened(ev.Data)
	}
	return row
}

// shortened prepares a value for the page, indented if it is small.
func shortened(raw json.RawMessage) *payload {
	v := show(raw)
	if v == nil || len(v.Text) <= savedShown {
		return v
	}
	v.Text = excerpt(v.Text, savedShown)
	v.Cut = bytesOf(len(raw))
	return v
}

// compare adds the difference from the earlier checkpoint of the same name.
func (row *savedRow) compare(was, ev *belay.Event) {
	switch {
	case was == nil || len(ev.Data) == 0:
		return
	case bytes.Equal(was.Data, ev.Data):
		row.Since, row.Same, row.Value = was.Seq, true, nil
		return
	case len(was.Data) > savedCompare || len(ev.Data) > savedCompare:
		row.Note = fmt.Sprintf("It is too large for a comparison with seq %d, which has %s.", was.Seq,
			bytesOf(len(was.Data)))
		return
	}
	text := diff.Unified("seq "+strconv.FormatInt(was.Seq, 10), "seq "+strconv.FormatInt(ev.Seq, 10), linesOf(was.Data),
		linesOf(ev.Data))
	row.Since, row.Diff = was.Seq, diffOf(text, savedLines)
}

// linesOf writes a JSON value in lines.
func linesOf(raw json.RawMessage) string {
	var b bytes.Buffer
	if depth(raw) <= maxDepth && json.Indent(&b, raw, "", "  ") == nil {
		return unescape(b.String()) + "\n"
	}
	return string(raw) + "\n"
}

// size is about the number of bytes of the values in the row.
func (row *savedRow) size() (n int) {
	if row.Value != nil {
		n = len(row.Value.Text)
	}
	if row.Diff != nil {
		for _, l := range row.Diff.Lines {
			n += len(l.Text) + 32
		}
	}
	return n
}

// childrenOf reads the newest children.
func (p *pages) childrenOf(ctx context.Context, e *belay.Execution, d *savedPageView) error {
	found, err := p.backend.Executions(ctx, belay.Filter{Parent: e.ID, Limit: mostChildren})
	if err != nil {
		return err
	}
	now := p.options.Now()
	for i := range found.Executions[:min(len(found.Executions), mostChildren)] {
		x := &found.Executions[i]
		d.Children = append(d.Children, childRow{
			Link: linkTo(x.ID, x.Workflow), Key: excerpt(x.ParentKey, maxLine), State: stateOf(x), About: about(x),
			Took: took(x, now),
		})
	}
	if found.Next != "" {
		d.AllChildren = addressOf("/executions", url.Values{}, "parent", d.ID)
	}
	return nil
}
