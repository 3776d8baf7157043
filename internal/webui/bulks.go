package webui

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/belaydev/belay"
)

const bulksSize = 50 // bulks on one page

// bulkList is the page of the bulks.
type bulkList struct {
	Rows   []bulkRow
	Pager  pager
	Offers []offer
}

// bulkRow is one bulk in the list.
type bulkRow struct {
	Address, Name string
	ID            string
	State         state
	About         string
	By            string
	At            *moment
	Took          string
}

// bulkPage is the page of one bulk.
type bulkPage struct {
	ID, Execution string
	Name          string
	State         state
	Stage         string
	About         []string
	Counts        []term
	Bar           []bulkPart
	Failures      []bulkFailure
	More          string
	Stopped       string
	Terms         []term
	Patch         *payload
	PatchName     string
	Offers        []offer
	Done          string
	Ended         bool
	Period        int
}

// bulkPart is a part of the bar that shows the ends of the executions; X and Width are in thousandths.
type bulkPart struct {
	Class, Title string
	X, Width     int
}

type bulkFailure struct {
	Execution exLink
	Message   string
}

func bulkPath(id belay.ExecutionID) string { return "/bulks/" + id.String() }

// newBulkAddress returns the address of the form that starts a bulk with a filter.
func newBulkAddress(action belay.BulkAction, filter url.Values) string {
	return addressOf(newBulkPath, filter, "action", string(action))
}

// bulks lists the bulks, the newest first.
func (p *pages) bulks(ctx context.Context, r *http.Request) (view, error) {
	q := chosen(r.URL.Query(), "cursor")
	found, err := p.backend.Executions(ctx, belay.Filter{
		Workflow: belay.BulkWorkflow, Cursor: q.Get("cursor"), Limit: bulksSize,
	})
	if err != nil {
		return view{}, err
	}
	d, now := bulkList{Pager: pagerOf("/bulks", q, found.Next)}, p.options.Now()
	for i := range found.Executions[:min(len(found.Executions), bulksSize)] {
		e := &found.Executions[i]
		row := bulkRow{
			Address: bulkPath(e.ID), Name: bulkName(belay.BulkAction(e.Labels["action"])), ID: e.ID.String(),
			State: stateOf(e), By: line(e.CreatedBy), At: when(e.CreatedAt, now), Took: took(e, now),
		}
		if w := e.Labels["workflow"]; w != "" {
			row.About = "of the workflow " + excerpt(w, maxLine)
		}
		if e.Error != nil {
			row.About = joined(row.About, line(e.Error.Message))
		}
		d.Rows = append(d.Rows, row)
	}
	return view{template: "bulks", Title: "Bulk actions", Page: d}, nil
}

// bulkName returns the name of an action; the action itself if it is not known.
func bulkName(a belay.BulkAction) string {
	if text, ok := bulkTexts[a]; ok {
		return text.label
	}
	return "Bulk " + excerpt(string(a), 40)
}

// bulk makes the page of one bulk, with its progress.
func (p *pages) bulk(ctx context.Context, r *http.Request) (view, error) {
	id, err := belay.ParseExecutionID(r.PathValue("id"))
	if err != nil {
		return view{}, nothingThere()
	}
	e, err := p.backend.Execution(ctx, id)
	switch {
	case err != nil:
		return view{}, err
	case e.Workflow != belay.BulkWorkflow:
		return view{}, &belay.Error{Code: belay.CodeNotFound, Message: "This execution is no bulk."}
	}
	progress, err := p.progress(ctx, &e)
	if err != nil {
		return view{}, err
	}
	d := bulkPageFor(&e)
	d.Done, d.Ended, d.Period = doneNote(r.URL.Query()), e.State.Terminal(), livePeriod
	d.Offers = p.offers(ctx, &e)
	d.show(progress)
	now := p.options.Now()
	d.Terms = append(d.Terms, term{Name: "Started", Time: when(e.CreatedAt, now)})
	if e.CreatedBy != "" {
		d.Terms = append(d.Terms, term{Name: "Started by", Value: line(e.CreatedBy)})
	}
	if m := when(e.FinishedAt, now); m != nil {
		d.Terms = append(d.Terms, term{Name: "Ended", Time: m})
	}
	v := view{template: "bulk", Title: d.Name + " · " + d.State.Word, Page: d}
	if !d.Ended {
		v.Refresh, v.Live = livePeriod, &live{Every: livePeriod}
		if d.Done != "" {
			v.Next = bulkPath(id)
		}
	}
	return v, nil
}

// progress returns the progress that the bulk has saved last; nil if it has saved none.
func (p *pages) progress(ctx context.Context, e *belay.Execution) (*belay.BulkProgress, error) {
	data := e.Output
	if len(data) == 0 && e.StateSeq > 0 {
		found, err := p.backend.Events(ctx, belay.EventQuery{
			Execution: e.ID, After: e.StateSeq - 1, Limit: 1, Data: true,
		})
		if err != nil {
			return nil, err
		}
		if len(found) == 1 && found[0].Kind == "state" {
			data = found[0].Data
		}
	}
	var progress belay.BulkProgress
	if len(data) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(data, &progress); err != nil || progress.Stage == "" {
		return nil, nil //nolint:nilerr // the state of a bulk of another version; the page shows no progress
	}
	return &progress, nil
}

// bulkPageFor describes the request of a bulk.
func bulkPageFor(e *belay.Execution) *bulkPage {
	d := &bulkPage{ID: e.ID.String(), Execution: "/executions/" + e.ID.String(), State: stateOf(e)}
	var b belay.Bulk
	if json.Unmarshal(e.Input, &b) != nil {
		d.Name = bulkName(belay.BulkAction(e.Labels["action"]))
		return d
	}
	d.Name = bulkName(b.Action)
	if _, known := bulkTexts[b.Action]; known {
		d.About = []string{selects(b.Action, &b.Filter), paceOf(&b)}
	}
	if b.Notes != "" {
		d.Terms = append(d.Terms, term{Name: "Reason", Value: excerpt(b.Notes, maxLine)})
	}
	switch {
	case len(b.Input) > 0:
		d.PatchName, d.Patch = "New input", show(b.Input)
	case len(b.InputPatch) > 0:
		d.PatchName, d.Patch = "Patch of the input", show(b.InputPatch)
	}
	if e.Error != nil && len(e.Output) == 0 {
		d.Stopped = excerpt(e.Error.Message, maxMessage)
	}
	return d
}

// stageTexts describe the stages of bulks.
var stageTexts = map[string]string{
	"canary": "It acts on its canary.", "all": "The canary is over; it acts on all others.",
	"done": "It has acted on everything that it selected.", "stopped": "It has stopped by itself.",
}

// show adds the progress.
func (d *bulkPage) show(x *belay.BulkProgress) {
	if x == nil {
		if !d.State.ended() {
			d.Stage = "It has not acted yet."
		}
		return
	}
	d.Stage = stageTexts[x.Stage]
	d.Stopped = excerpt(x.Stopped, maxMessage)
	at := 0
	sum := max(1, x.Succeeded+x.Failed+x.Conflicts+x.Running)
	for _, c := range []struct {
		name, class string
		n           int
	}{
		{"Succeeded", "succeeded", x.Succeeded}, {"Failed", "failed", x.Failed},
		{"Changed by others", "waiting", x.Conflicts}, {"Under way", "running", x.Running},
	} {
		d.Counts = append(d.Counts, term{Name: c.name, Value: strconv.Itoa(c.n)})
		if width := 1000 * c.n / sum; width > 0 {
			d.Bar = append(d.Bar, bulkPart{c.class, fmt.Sprintf("%s: %d", c.name, c.n), at, width})
			at += width
		}
	}
	d.Counts = append(d.Counts, term{Name: "Reached so far", Value: strconv.Itoa(x.Selected)})
	for i := range x.Failures[:min(len(x.Failures), 10)] {
		f := &x.Failures[i]
		d.Failures = append(d.Failures, bulkFailure{linkTo(f.Execution, shortID(f.Execution)), excerpt(f.Message, 600)})
	}
	if x.Failed > len(d.Failures) {
		d.More = fmt.Sprintf("These are the first %d of %d failures.", len(d.Failures), x.Failed)
	}
	if x.More {
		d.About = append(d.About, fmt.Sprintf("The filter selects more than %d executions; start another bulk for the "+
			"rest.", belay.MaxBulk))
	}
}

// ended reports whether the state is that of an ended execution.
func (s state) ended() bool {
	return s.Class == "succeeded" || s.Class == "failed" || s.Class == "cancelled"
}

// bulkOffers returns the bulks that act on the executions of a list, or says why a list with a filter has none. It
// offers none whose filter differs from that of the list, so that no bulk acts on more executions than the list shows.
func bulkOffers(ctx context.Context, f *filter) (all []offer, why string) {
	plain := f.with(func(f *filter) { f.Cursor, f.Live = "", "" })
	if !visitorOf(ctx).allows(belay.ScopeOperate) || plain == "/executions" || f.Workflow == belay.BulkWorkflow {
		return nil, ""
	}
	labels := labelText(f.labels)
	read, err := labelLines(labels) // spaces or lines in a label would make other labels of it
	switch {
	case f.Parent != "" || f.Children:
		return nil, "A bulk never acts on children, so this list offers none."
	case f.Key != "":
		return nil, "A bulk does not select by an idempotency key, so this list offers none."
	case err != nil || !maps.Equal(read, f.labels):
		return nil, "A bulk does not select by a label with such spaces, so this list offers none."
	case f.Error != "":
		return errorBulks(f)
	}
	q := chosen(url.Values{"state": {f.State}, "workflow": {f.Workflow}, "queue": {f.Queue}, "labels": {labels}},
		"state", "workflow", "queue", "labels")
	switch f.State {
	case "":
		all = append(all, offer{newBulkAddress(belay.BulkRetry, q), "Retry those that failed", false},
			offer{newBulkAddress(belay.BulkCancel, q), "Cancel those that have not ended", true})
	case belay.Failed.String(), belay.Cancelled.String():
		all = append(all, offer{newBulkAddress(belay.BulkRetry, q), "Retry all of these", false})
	case belay.Succeeded.String():
	default:
		all = append(all, offer{newBulkAddress(belay.BulkCancel, q), "Cancel all of these", true})
	}
	return all, ""
}

// errorBulks offers the bulks for a list whose executions have a text in their errors. Only bulks of dead letters
// select by a text; they do not select by queues and labels.
func errorBulks(f *filter) (all []offer, why string) {
	why = "Retry all and Cancel all do not select by the text of an error."
	switch f.State {
	case "", belay.Failed.String():
	default:
		return nil, why
	}
	if f.Queue != "" || len(f.labels) > 0 {
		return nil, why + " A bulk of dead letters does, but not together with a queue or a label."
	}
	q := chosen(url.Values{"text": {f.Error}, "workflow": {f.Workflow}}, "text", "workflow")
	return []offer{
		{newBulkAddress(belay.BulkRequeue, q), "Requeue open dead letters with this text", false},
		{newBulkAddress(belay.BulkDiscard, q), "Discard open dead letters with this text", true},
	}, why + " Bulks of dead letters do."
}

// letterBulks returns the bulks that act on the open dead letters of a workflow, of a group, or on all.
func letterBulks(ctx context.Context, q url.Values) []offer {
	if !visitorOf(ctx).allows(belay.ScopeOperate) {
		return nil
	}
	q = chosen(q, "workflow", "fingerprint")
	return []offer{
		{newBulkAddress(belay.BulkRequeue, q), "Requeue all of these", false},
		{newBulkAddress(belay.BulkDiscard, q), "Discard all of these", true},
	}
}
