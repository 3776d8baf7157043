package webui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/diff"
	"github.com/belaydev/belay/internal/machine"
)

// newBulkPath is the address of the form that starts a bulk. The form has two pages: the terms, and then a review with
// the result of a dry run, from which the bulk is started. The parameters of the address are the action and the filter.
const newBulkPath = "/bulks/new"

const (
	mostDiffs = 3         // executions whose changed input a review shows
	mostDiff  = 64 << 10  // the largest input that a review compares, in bytes
	mostWhole = 200 << 10 // the largest indented input that a review compares
	// mostInputLines is how many lines of the difference of an input a review shows.
	mostInputLines = 500
)

// bulkFilterFields are the parameters that select executions or dead letters.
var bulkFilterFields = []string{
	"workflow", "fingerprint", "reason", "class", "text", "queue", "labels", "state", "since", "until",
}

// bulkTexts describe the actions of bulks.
var bulkTexts = map[belay.BulkAction]struct{ label, about, things string }{
	belay.BulkRequeue: {
		"Requeue dead letters", "The executions of open dead letters run again.", "dead letter",
	},
	belay.BulkDiscard: {
		"Discard dead letters",
		"Open dead letters are resolved: the work is not needed. The executions stay as they ended.", "dead letter",
	},
	belay.BulkCancel: {
		"Cancel executions",
		"The executions end as cancelled. A running one has a moment to end by itself; then its owner loses it.",
		"execution",
	},
	belay.BulkRetry: {
		"Retry executions",
		"The executions run again with their present input. Finished steps keep their results.", "execution",
	},
}

// bulkReview is the result of a dry run.
type bulkReview struct {
	Sum   string
	Rows  []bulkItem
	More  string
	Diffs []inputDiff
	Note  string
}

// bulkItem is an execution on which a bulk would act.
type bulkItem struct {
	Execution exLink
	Workflow  string
	State     *state
	Message   string
	At        *moment
}

// inputDiff is the change of the input of one execution.
type inputDiff struct {
	Execution exLink
	Diff      *diffView // nil if Note says why there is none
	Note      string
}

// newBulk shows the form of a bulk, its review, or starts the bulk and goes to its page.
func (p *pages) newBulk(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	form, ok := p.posted(w, r)
	if !ok {
		return
	}
	if !visitorOf(ctx).allows(belay.ScopeOperate) {
		p.refuse(w, r, lacks(belay.ScopeOperate))
		return
	}
	first := form == nil
	if first {
		form = chosen(r.URL.Query(), append([]string{"action"}, bulkFilterFields...)...)
		form.Set("canary", "1, 10")
		form.Set("rate", strconv.Itoa(belay.DefaultBulkRate))
		form.Set("failures", "10")
	}
	action := belay.BulkAction(form.Get("action"))
	filter, err := bulkFilterOf(action, form)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	if first || form.Get("show") != "" {
		p.bulkForm(w, r, action, &filter, form, nil, nil)
		return
	}
	b, problems := bulkOf(action, filter, form)
	if len(problems) > 0 {
		p.bulkForm(w, r, action, &filter, form, problems, invalidInput())
		return
	}
	b.Actor = visitorOf(ctx).actor()
	to := ""
	if form.Get("step") == "start" {
		to, err = p.startBulk(ctx, b, form)
	} else if err = p.reviewBulk(ctx, w, r, b, form); err == nil {
		return
	}
	switch {
	case err == nil:
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, to, http.StatusSeeOther)
	case repairable(err):
		p.bulkForm(w, r, action, &filter, form, nil, err)
	default:
		p.refuse(w, r, err)
	}
}

// bulkFilterOf reads the filter of a bulk.
func bulkFilterOf(action belay.BulkAction, q url.Values) (belay.BulkFilter, error) {
	f := belay.BulkFilter{
		Workflow: q.Get("workflow"), Fingerprint: q.Get("fingerprint"), Reason: q.Get("reason"), Text: q.Get("text"),
		Queue: q.Get("queue"),
	}
	malformed := func(what string) (belay.BulkFilter, error) {
		return f, &belay.Error{Code: belay.CodeMalformed, Message: what}
	}
	if _, known := bulkTexts[action]; !known {
		return malformed("there is no such bulk action")
	}
	if word := q.Get("class"); word != "" && f.Class.UnmarshalText([]byte(word)) != nil {
		return malformed("there is no such class of errors")
	}
	switch word := q.Get("state"); word {
	case "", active:
	default:
		var s belay.State
		if s.UnmarshalText([]byte(word)) != nil {
			return malformed("there is no such state")
		}
		f.States = []belay.State{s}
	}
	for name, to := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		text := q.Get(name)
		if text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return malformed(name + " is a time as in 2026-11-20T08:00:00Z")
		}
		*to = at
	}
	labels, err := labelLines(q.Get("labels"))
	f.Labels = labels
	return f, err
}

// bulkOf reads the terms of a bulk, with problems by the names of fields.
func bulkOf(action belay.BulkAction, filter belay.BulkFilter, form url.Values) (belay.Bulk, map[string]string) {
	problems := make(map[string]string)
	b := belay.Bulk{
		Action: action, Filter: filter, All: form.Get("all") != "", Canary: []int{},
		Notes: excerpt(strings.TrimSpace(form.Get("note")), belay.MaxBulkNotes-len("…")),
	}
	if !filter.Narrow() && !b.All {
		problems["all"] = "Confirm that the bulk acts on all of them."
	}
	for word := range strings.FieldsFuncSeq(form.Get("canary"), func(r rune) bool { return r == ',' || r == ' ' }) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > belay.MaxBulkStage || len(b.Canary) == belay.MaxBulkStages {
			problems["canary"] = fmt.Sprintf("Write up to %d numbers from 1 to %d, as in 1, 10.", belay.MaxBulkStages,
				belay.MaxBulkStage)
			break
		}
		b.Canary = append(b.Canary, n)
	}
	rate, err := strconv.ParseFloat(strings.TrimSpace(form.Get("rate")), 64)
	if b.Rate = rate; err != nil || !(rate >= 0.001 && rate <= belay.MaxBulkRate) {
		problems["rate"] = fmt.Sprintf("Write a number from 0.001 to %d.", belay.MaxBulkRate)
	}
	share, err := strconv.ParseFloat(strings.TrimSpace(form.Get("failures")), 64)
	if err != nil || !(share >= 0 && share <= 100) {
		problems["failures"] = "Write a number from 0 to 100."
	}
	share /= 100
	b.MaxFailures = &share
	edit := form.Get("edit")
	if action != belay.BulkRequeue || edit == "" {
		return b, problems
	}
	input, err := jsonOf(form.Get("input"))
	switch {
	case err != nil:
		problems["input"] = sentence(err)
	case input == nil:
		problems["input"] = needed
	case edit == "replace":
		b.Input = input
	default:
		b.InputPatch = input
	}
	return b, problems
}

// bulkForm shows the terms of a bulk.
func (p *pages) bulkForm(w http.ResponseWriter, r *http.Request, action belay.BulkAction, filter *belay.BulkFilter,
	form url.Values, problems map[string]string, failed error) {
	f := bulkPageOf(action, form)
	f.Button = "Review"
	f.Notes = []string{selects(action, filter), "Nothing happens yet: the next page counts what this selects."}
	f.Hidden = append(f.Hidden, field{Name: "step", Value: "review"})
	if action == belay.BulkRequeue {
		f.Fields = append(f.Fields, field{
			Name: "edit", Kind: "select", Label: "Input", Options: []option{
				{"", "each keeps its input; finished steps keep their results", false},
				{"patch", "change each input with a patch; all steps run again", false},
				{"replace", "give each the same new input; all steps run again", false},
			},
		}, field{
			Name: "input", Kind: "text", Label: "Patch, or new input", Rows: 6,
			About: "JSON. A patch is a JSON Merge Patch: its members replace those of the input, and null removes one. " +
				"For executions of documents it changes the input of the document.",
		})
	}
	f.Fields = append(f.Fields, field{
		Name: "canary", Kind: "line", Label: "Canary",
		About: "The bulk first acts on so many executions, and goes on when they have ended well. Empty: on all at once.",
	})
	if !filter.Narrow() {
		label := "Act on everything: the filter is empty"
		if len(filter.States) > 0 {
			label = "Act on all of them: the filter names nothing but a state"
		}
		f.Fields = append(f.Fields, field{Name: "all", Kind: "check", Label: label})
	}
	f.More = []field{
		{
			Name: "rate", Kind: "line", Label: "Rate", Numeric: true, Required: true,
			About: "Actions per second, at most.",
		},
		{
			Name: "failures", Kind: "line", Label: "Most failures", Numeric: true, Required: true,
			About: "In per cent of the ended executions. The bulk stops by itself if more have failed.",
		},
	}
	for _, list := range [][]field{f.Fields, f.More} {
		for i := range list {
			list[i].restore(form)
			list[i].Failed = problems[list[i].Name]
		}
	}
	f.MoreOpen = problems["rate"]+problems["failures"] != ""
	p.showForm(w, r, f, failed)
}

// bulkPageOf returns what both pages of the form of a bulk have.
func bulkPageOf(action belay.BulkAction, form url.Values) actionForm {
	text := bulkTexts[action]
	f := actionForm{
		Up: "/dead", UpName: "Dead letters", Post: newBulkPath, Heading: text.label, About: text.about, Op: newOp(),
		Danger: action == belay.BulkCancel || action == belay.BulkDiscard,
		Hidden: []field{{Name: "action", Value: string(action)}},
	}
	f.Back = f.Up
	if back := chosen(form, "workflow", "fingerprint"); len(back) > 0 {
		f.Back += "?" + back.Encode()
	}
	if text.things == "execution" {
		f.Up, f.UpName = "/executions", "Executions"
		list := filter{State: form.Get("state"), Workflow: form.Get("workflow"), Queue: form.Get("queue")}
		if labels, err := labelLines(form.Get("labels")); err == nil && len(labels) > 0 {
			list.Labels = strings.Split(labelText(labels), "\n")
		}
		f.Back = list.with(func(*filter) {})
	} else if form.Get("text") != "" {
		f.Back = filter{Error: form.Get("text"), Workflow: form.Get("workflow")}.with(func(*filter) {})
	}
	for _, name := range bulkFilterFields {
		if v := form.Get(name); v != "" {
			f.Hidden = append(f.Hidden, field{Name: name, Value: v})
		}
	}
	return f
}

// selects describes the filter of a bulk in a sentence.
func selects(action belay.BulkAction, f *belay.BulkFilter) string {
	text := "It selects all " + bulkTexts[action].things + "s"
	if f.Workflow != "" {
		text += " of the workflow " + f.Workflow
	}
	var with []string
	add := func(name, value string) {
		if value != "" {
			with = append(with, name+" "+excerpt(value, 80))
		}
	}
	add("the fingerprint", f.Fingerprint)
	add("the reason", f.Reason)
	if f.Class != 0 {
		add("errors of the class", f.Class.String())
	}
	add("the text", f.Text)
	add("the queue", f.Queue)
	for _, l := range pairs(f.Labels).Shown {
		add("the label", l)
	}
	for _, s := range f.States {
		add("the state", s.String())
	}
	if len(with) > 0 {
		text += " with " + strings.Join(with, ", ")
	}
	if !f.Since.IsZero() {
		text += ", since " + f.Since.UTC().Format(time.RFC3339)
	}
	if !f.Until.IsZero() {
		text += ", until " + f.Until.UTC().Format(time.RFC3339)
	}
	return excerpt(text, maxMessage) + "."
}

// reviewBulk shows the result of a dry run, and the button that starts the bulk.
func (p *pages) reviewBulk(ctx context.Context, w http.ResponseWriter, r *http.Request, b belay.Bulk,
	form url.Values) error {
	dry := b
	dry.DryRun = true
	reply, err := p.backend.Bulk(ctx, dry)
	if err != nil {
		return err
	}
	found := cmp.Or(reply.Preview, new(belay.BulkPreview))
	text := bulkTexts[b.Action]
	if found.Count == 0 && !found.More {
		return &belay.Error{Code: belay.CodeConflict, Message: "no " + text.things + " matches the filter now"}
	}
	view := &bulkReview{Sum: several(found.Count, text.things)}
	if found.More {
		view.Sum = "at least " + view.Sum
	}
	now := p.options.Now()
	for i := range found.First {
		view.Rows = append(view.Rows, bulkItemOf(&found.First[i], now))
	}
	if found.Count > len(found.First) {
		view.More = fmt.Sprintf("These are the first %d on which it acts.", len(found.First))
	}
	whole := documentsOnly(&b, found.First)
	f := bulkPageOf(b.Action, form)
	if len(b.Input)+len(b.InputPatch) > 0 {
		if whole && len(b.Input) > 0 {
			return &belay.Error{Code: belay.CodeInvalid, Message: "these executions run documents, whose inputs " +
				"contain their text; change their inputs with a patch"}
		}
		if view.Diffs, err = p.diffs(ctx, &b, found.First, whole); err != nil {
			return err
		}
	}
	f.Review, f.Danger = view, true
	f.Button = strings.Fields(text.label)[0] + " " + view.Sum
	f.Notes = []string{selects(b.Action, &b.Filter), paceOf(&b)}
	for _, name := range []string{"edit", "input", "canary", "all", "rate", "failures"} {
		if form.Has(name) {
			f.Hidden = append(f.Hidden, field{Name: name, Value: escapeSteering(form.Get(name))})
		}
	}
	f.Hidden = append(f.Hidden, field{Name: "step", Value: "start"})
	if whole {
		f.Hidden = append(f.Hidden, field{Name: "documents", Value: "yes"})
	}
	reason := reasonField
	reason.Name = "note" // since a filter has a reason, too
	reason.About = "Each dead letter or history shows it, with the id of the bulk. It may be empty."
	reason.restore(form)
	f.Fields, f.Switch = []field{reason}, &option{Value: "terms", Label: "Change the terms"}
	p.showForm(w, r, f, nil)
	return nil
}

func bulkItemOf(x *belay.BulkItem, now time.Time) bulkItem {
	row := bulkItem{
		Execution: linkTo(x.Execution, shortID(x.Execution)), Workflow: excerpt(x.Workflow, maxLine),
		Message: line(x.Message), At: when(x.At, now),
	}
	if x.State != 0 {
		row.State = &state{x.State.String(), x.State.String()}
	}
	return row
}

// paceOf describes the canary, the rate and the largest share of failures.
func paceOf(b *belay.Bulk) string {
	text := "It acts on all at once"
	if len(b.Canary) > 0 {
		text = "It begins with " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(b.Canary)), ", then "), "[]") +
			", and goes on when they have ended well"
	}
	text += fmt.Sprintf("; at most %s per second.", strconv.FormatFloat(b.Rate, 'f', -1, 64))
	if b.MaxFailures != nil {
		text += " It stops if more than " + strconv.FormatFloat(*b.MaxFailures*100, 'g', 6, 64) + " % have failed."
	}
	return text
}

// documentsOnly reports whether a bulk changes the inputs of executions of documents only, so that a patch concerns the
// input of the document.
func documentsOnly(b *belay.Bulk, first []belay.BulkItem) bool {
	if b.Filter.Workflow != "" {
		return b.Filter.Workflow == documentWorkflow
	}
	return b.Filter.Fingerprint != "" && len(first) > 0 &&
		!slices.ContainsFunc(first, func(x belay.BulkItem) bool { return x.Workflow != documentWorkflow })
}

// diffs shows how the bulk changes the inputs of the first executions.
func (p *pages) diffs(ctx context.Context, b *belay.Bulk, first []belay.BulkItem, whole bool) ([]inputDiff, error) {
	var all []inputDiff
	for _, x := range first[:min(len(first), mostDiffs)] {
		l, err := p.backend.DeadLetter(ctx, x.Execution, x.Generation)
		if belay.CodeOf(err) == belay.CodeNotFound {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		d := inputDiff{Execution: linkTo(x.Execution, shortID(x.Execution))}
		before := l.Input
		var in documentInput
		if whole && json.Unmarshal(before, &in) == nil {
			before = in.Input
		}
		d.Diff, d.Note = inputDiffOf(before, b.Input, b.InputPatch)
		all = append(all, d)
	}
	return all, nil
}

// inputDiffOf returns the difference between an input and the same input after a change, or a note instead.
func inputDiffOf(before, replace, patch json.RawMessage) (d *diffView, note string) {
	after := replace
	if len(patch) > 0 {
		var err error
		if after, err = machine.MergePatch(before, patch); err != nil {
			return nil, "The input is no JSON, so the patch will be refused."
		}
	}
	if len(before)+len(after) > mostDiff || depth(before) > maxDepth || depth(after) > maxDepth {
		return nil, "The input is too large to compare here."
	}
	x, y := indented(before), indented(after)
	if len(x)+len(y) > mostWhole {
		return nil, "The input is too large to compare here."
	}
	text := diff.Unified("before", "after", x, y)
	if text == "" {
		return nil, "The input stays as it is."
	}
	return diffOf(excerpt(text, maxPayload), mostInputLines), ""
}

// indented returns JSON with sorted members, one in each line.
func indented(v json.RawMessage) string {
	if len(v) == 0 {
		return "null\n"
	}
	var b bytes.Buffer
	if json.Indent(&b, canonical(v), "", "  ") != nil {
		return string(v)
	}
	return b.String() + "\n"
}

// startBulk starts the bulk and returns the address of its page.
func (p *pages) startBulk(ctx context.Context, b belay.Bulk, form url.Values) (string, error) {
	if err := b.Op.UnmarshalText([]byte(form.Get("op"))); err != nil || b.Op.IsZero() {
		return "", incomplete()
	}
	if form.Get("documents") == "yes" && len(b.InputPatch) > 0 {
		b.InputPatch = compact(map[string]json.RawMessage{"input": b.InputPatch})
	}
	reply, err := p.backend.Bulk(ctx, b)
	if err != nil {
		return "", err
	}
	if reply.Execution == nil {
		return "", fmt.Errorf("bulk: the answer has no execution")
	}
	return bulkPath(reply.Execution.ID), nil
}
