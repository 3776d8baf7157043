package webui

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/belaydev/belay"
)

// startPath is the address of the form that starts an execution: of a stored document (document=NAME@VERSION), of a
// workflow (workflow=NAME), or again with the input of an execution (again=ID).
const startPath = "/start"

// documentWorkflow is the workflow that runs documents.
const documentWorkflow = "document"

// starting is what a form starts.
type starting struct {
	hidden   []field // the parameters of the address
	base     belay.Submission
	input    json.RawMessage // the input that the form shows first
	form     inputForm
	wrapper  *documentInput // the text of the document if it is not stored
	named    bool           // the form has a field for the name of the workflow
	heading  string
	about    string
	notes    []string
	up, name string // the address and the name of the section
	back     string
	id       string // of the page to which back leads
}

// documentInput is the input of an execution of a document.
type documentInput struct {
	Document string          `json:"document"`
	Hash     string          `json:"hash,omitempty"`
	File     string          `json:"file,omitempty"`
	Input    json.RawMessage `json:"input,omitempty"`
}

// start shows the form that starts an execution, or starts it and goes to its page.
func (p *pages) start(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	form, ok := p.posted(w, r)
	if !ok {
		return
	}
	if !visitorOf(ctx).allows(belay.ScopeSubmit) {
		p.refuse(w, r, lacks(belay.ScopeSubmit))
		return
	}
	from := form
	if form == nil {
		from = r.URL.Query()
	}
	s, err := p.starting(ctx, from)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	if form == nil {
		p.startForm(w, r, s, s.firstForm(), nil, nil)
		return
	}
	input, problems := s.form.read(form)
	switch {
	case len(problems) > 0:
		p.startForm(w, r, s, form, problems, invalidInput())
		return
	case form.Get("show") != "":
		p.startForm(w, r, s, s.form.with(form, input, form.Get("show") == "json"), nil, nil)
		return
	}
	to, err := p.submit(ctx, s, form, input)
	switch {
	case err == nil:
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, to, http.StatusSeeOther)
	case repairable(err) || belay.CodeOf(err) == belay.CodeNotFound:
		problems = s.form.mismatches(form, input)
		if len(problems) > 0 {
			err = invalidInput()
		}
		p.startForm(w, r, s, form, problems, err)
	default:
		p.refuse(w, r, err)
	}
}

// posted reads the form of a request; nil for a GET. It answers a request whose form cannot be read, and returns false.
func (p *pages) posted(w http.ResponseWriter, r *http.Request) (url.Values, bool) {
	if r.Method != http.MethodPost {
		return nil, true
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		p.refuse(w, r, &belay.Error{Code: belay.CodeMalformed, Message: "The form cannot be read, or it is too large."})
		return nil, false
	}
	if !r.PostForm.Has("op") {
		p.refuse(w, r, incomplete())
		return nil, false
	}
	return r.PostForm, true
}

func invalidInput() error {
	return &belay.Error{Code: belay.CodeInvalid, Message: "some fields need another value"}
}

// starting finds out what the parameters of an address, or the hidden fields of a form, name.
func (p *pages) starting(ctx context.Context, q url.Values) (*starting, error) {
	s := &starting{up: "/executions", name: "Executions", back: "/executions"}
	s.form = inputForm{json: field{Name: "input", Kind: "text", Label: "Input", Rows: 12, About: "JSON."}}
	for _, name := range []string{"document", "workflow", "again"} {
		if v := q.Get(name); v != "" && name != "workflow" {
			s.hidden = append(s.hidden, field{Name: name, Value: v})
		}
	}
	switch {
	case q.Get("again") != "":
		return s, p.startAgain(ctx, s, q.Get("again"))
	case q.Get("document") != "":
		return s, p.startDocument(ctx, s, q.Get("document"))
	}
	s.named = true
	s.heading, s.base.Workflow = "Start an execution", q.Get("workflow")
	s.about = "A new execution of a workflow that workers have registered begins as soon as one of them has a free slot."
	return s, nil
}

func (p *pages) startDocument(ctx context.Context, s *starting, text string) error {
	ref, err := belay.ParseDocumentRef(text)
	if err != nil {
		return nothingThere()
	}
	d, err := p.backend.Document(ctx, ref.Name, ref.Version)
	if err != nil {
		return err
	}
	s.stored(&d)
	s.hidden = []field{{Name: "document", Value: d.String()}} // the version that the person has seen
	s.heading, s.about = "Run "+excerpt(d.Name, 60), "A new execution of "+d.String()+" begins."
	s.up, s.name, s.id = "/workflows", "Workflows", d.String()
	s.back = addressOf("/workflows/"+d.Name, url.Values{}, "version", strconv.Itoa(d.Version))
	p.describe(s, d.Text)
	return nil
}

// stored makes the form start a version of a stored document.
func (s *starting) stored(d *belay.Document) {
	s.base.Document, s.base.Workflow = d.String(), ""
	if d.Deprecated != nil {
		s.notes = append(s.notes, byOperator("This version is deprecated", d.Deprecated.By, d.Deprecated.Reason))
	}
}

// describe finds the fields for the input of the text of a document.
func (p *pages) describe(s *starting, text string) {
	if p.options.Input == nil {
		return
	}
	in, err := p.options.Input(text)
	if err != nil {
		s.notes = append(s.notes, "The text of the document cannot be read, so that its input has no fields here.")
		return
	}
	s.form.schema, s.form.fields = in, inputFields(in)
	if in.About != "" {
		s.notes = append(s.notes, excerpt(in.About, maxMessage))
	}
}

// givenLabels are the labels that Belay itself sets on what a trigger starts.
var givenLabels = []string{
	belay.LabelSchedule, belay.LabelWebhook, belay.LabelNotification, belay.LabelNotificationTarget,
}

// startAgain makes the form start a new execution like another one.
func (p *pages) startAgain(ctx context.Context, s *starting, text string) error {
	id, err := belay.ParseExecutionID(text)
	if err != nil {
		return nothingThere()
	}
	e, err := p.backend.Execution(ctx, id)
	switch {
	case err != nil:
		return err
	case !againPossible(&e):
		return &belay.Error{Code: belay.CodeConflict, Message: "This execution cannot be started again."}
	}
	s.base = belay.Submission{
		Workflow: e.Workflow, Version: e.Version, Queue: e.Queue, Priority: e.Priority,
		Labels: maps.Clone(e.Labels), WorkerLabels: e.WorkerLabels, External: e.External, Budget: e.Budget,
	}
	for _, name := range givenLabels {
		delete(s.base.Labels, name)
	}
	if e.Policy != nil {
		s.base.Policy = *e.Policy
	}
	s.heading, s.input = "Start again", e.Input
	s.about = "A new execution begins with the same workflow, policy and labels, and with the input below. This one stays " +
		"as it is. Limits, rates, required resources and notifications of its submission are not repeated."
	s.back, s.id = "/executions/"+e.ID.String(), e.ID.String()
	if e.Workflow != documentWorkflow {
		return nil
	}
	var in documentInput
	if err := json.Unmarshal(e.Input, &in); err != nil || in.Document == "" {
		return nil //nolint:nilerr // no input of a document: the form shows it as JSON
	}
	s.input = in.Input
	version, _ := strconv.Atoi(e.Labels[belay.LabelDocumentVersion])
	if name := e.Labels[belay.LabelDocument]; version > 0 && belay.CheckDocumentName("start", name) == nil {
		switch d, err := p.backend.Document(ctx, name, version); {
		case err == nil && d.Text == in.Document:
			s.stored(&d)
		case err != nil && belay.CodeOf(err) != belay.CodeNotFound:
			return err
		}
	}
	if s.base.Document == "" {
		in.Input = nil
		s.wrapper = &in
	}
	delete(s.base.Labels, belay.LabelDocumentVersion)
	if s.wrapper == nil {
		delete(s.base.Labels, belay.LabelDocument)
	}
	p.describe(s, in.Document)
	return nil
}

// againPossible reports whether an execution can be started again: Belay's own workflows, and commands of belay run,
// which belong to a process, cannot.
func againPossible(e *belay.Execution) bool {
	return !strings.HasPrefix(e.Workflow, "belay.") && !ofBelayRun(e) && e.Trigger != belay.TriggerSwap
}

// firstForm returns the values of the form when it is opened.
func (s *starting) firstForm() url.Values {
	form := url.Values{"workflow": {s.base.Workflow}, "version": {s.base.Version}, "queue": {s.base.Queue}}
	if s.base.Priority != 0 {
		form.Set("priority", strconv.Itoa(s.base.Priority))
	}
	form.Set("labels", labelText(s.base.Labels))
	return s.form.with(form, s.input, false)
}

// submit starts the execution and returns the address of its page.
func (p *pages) submit(ctx context.Context, s *starting, form url.Values, input json.RawMessage) (string, error) {
	var op belay.OpID
	if err := op.UnmarshalText([]byte(form.Get("op"))); err != nil || op.IsZero() {
		return "", incomplete()
	}
	x, err := s.submission(form)
	if err != nil {
		return "", err
	}
	if x.Input = input; s.wrapper != nil {
		whole := *s.wrapper
		whole.Input = input
		x.Input = compact(whole)
	}
	x.Actor = visitorOf(ctx).actor()
	x.IdempotencyKey = cmp.Or(strings.TrimSpace(form.Get("key")), "form-"+op.String())
	answers, err := p.backend.Submit(ctx, x)
	switch {
	case err != nil:
		return "", err
	case len(answers) != 1:
		return "", fmt.Errorf("submit: %d answers", len(answers))
	case answers[0].Err != nil:
		return "", answers[0].Err
	}
	note := "start"
	if answers[0].Replayed {
		note = "started"
	}
	return "/executions/" + answers[0].ID.String() + "?done=" + note, nil
}

// submission reads the fields of a form beside the input.
func (s *starting) submission(form url.Values) (belay.Submission, error) {
	x := s.base
	refuse := func(text string) (belay.Submission, error) {
		return x, &belay.Error{Code: belay.CodeInvalid, Message: text}
	}
	get := func(name string) string { return strings.TrimSpace(form.Get(name)) }
	if s.named {
		x.Workflow, x.Version = get("workflow"), get("version")
		if x.Workflow == "" {
			return refuse("name the workflow")
		}
	}
	x.Queue, x.Priority, x.Labels = get("queue"), 0, nil
	if text := get("priority"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return refuse("the priority is a whole number")
		}
		x.Priority = n
	}
	var err error
	if x.Labels, err = labelLines(form.Get("labels")); err != nil {
		return x, err
	}
	x.DueAt, err = momentOf(form, "due")
	return x, err
}

// labelText returns labels, one in each line.
func labelText(labels map[string]string) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		lines = append(lines, name+"="+labels[name])
	}
	return strings.Join(lines, "\n")
}

// labelLines reads labels, one in each line.
func labelLines(text string) (map[string]string, error) {
	var labels map[string]string
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l == "" {
			continue
		}
		name, value, ok := strings.Cut(l, "=")
		if _, twice := labels[name]; !ok || name == "" || twice {
			return nil, &belay.Error{Code: belay.CodeInvalid, Message: "a label is NAME=VALUE, each name once, one " +
				"in each line; " + excerpt(strconv.Quote(l), 80) + " is not"}
		}
		if labels == nil {
			labels = make(map[string]string)
		}
		labels[name] = value
	}
	return labels, nil
}

// startForm shows the form with the values that it has, or has had when it was refused.
func (p *pages) startForm(w http.ResponseWriter, r *http.Request, s *starting, form url.Values,
	problems map[string]string, failed error) {
	f := actionForm{
		ID: s.id, Up: s.up, UpName: s.name, Back: s.back, Post: startPath, Heading: s.heading, Button: "Start",
		About: s.about, Notes: s.notes, Hidden: s.hidden, Op: newOp(),
	}
	if s.named {
		f.Fields = []field{{Name: "workflow", Kind: "line", Label: "Workflow", Required: true}}
	}
	mode := "json"
	if s.form.schema != nil && s.form.schema.None {
		f.Notes = append(slices.Clone(f.Notes), "The document has no input.")
	} else {
		var list []field
		list, f.Switch, mode = s.form.view(form, problems)
		f.Fields = append(f.Fields, list...)
	}
	f.More = s.more()
	for _, list := range [][]field{f.Fields, f.More} {
		for i := range list {
			if x := &list[i]; !x.restored {
				x.restore(form)
			}
		}
	}
	for i := range f.More {
		f.MoreOpen = f.MoreOpen || f.More[i].Value != "" && failed != nil
	}
	f.Hidden = append(slices.Clone(f.Hidden), field{Name: "mode", Value: mode})
	p.showForm(w, r, f, failed)
}

// more are the fields that most people leave empty.
func (s *starting) more() []field {
	var all []field
	if s.named {
		all = append(all, field{
			Name: "version", Kind: "line", Label: "Version", About: "Of the workflow, if it has versions.",
		})
	}
	return append(all,
		field{Name: "queue", Kind: "line", Label: "Queue", About: "Empty: the queue default."},
		field{Name: "labels", Kind: "text", Label: "Labels", Rows: 3, About: "NAME=VALUE, one in each line."},
		field{
			Name: "priority", Kind: "line", Label: "Priority", Numeric: true,
			About: fmt.Sprintf("From -%d to %d. Empty: 0.", belay.MaxPriority, belay.MaxPriority),
		},
		field{Name: "due", Kind: "time", Label: "Earliest start", About: "In UTC. Empty: now."},
		field{
			Name: "key", Kind: "line", Label: "Idempotency key",
			About: "If an execution of this workflow has the key already, no other one starts. Empty: the form has a key of " +
				"its own, so that it starts one execution however often it is sent.",
		},
	)
}
