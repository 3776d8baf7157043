package webui

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/belaydev/belay"
)

// maxForm is the maximum size of a form, in bytes.
const maxForm = 1 << 20

// action is an action on an execution that its page offers. The browser first shows the action's form, which says what
// the action does; this is also the confirmation.
type action struct {
	name   string // part of the address of the form
	scope  belay.Scope
	label  string // on the page of the execution, and on the button of the form
	about  string // what happens
	done   string // the note on the page of the execution afterwards
	danger bool   // it ends or takes away something

	offered func(*belay.Execution) bool
	fields  []field
}

// field is a field of a form. Kind is "line", "text", "check" or "select"; "date" or "time", in UTC; "checks", of which
// a person may choose several; or "hidden". Name is also its id on the page.
type field struct {
	Name, Kind, Label, About string
	Required                 bool
	Rows                     int
	Value                    string
	Choices                  []string // suggestions
	Options                  []option
	Numeric                  bool
	Data                     bool   // the label is a name from a document
	Failed                   string // what is wrong with the value that was sent

	restored bool // the field has the value that was sent
}

var reasonField = field{
	Name: "reason", Kind: "line", Label: "Reason", About: "The history and the audit show it. It may be empty.",
}

func unended(e *belay.Execution) bool { return !e.State.Terminal() }

func stopped(e *belay.Execution) bool { return e.State == belay.Failed || e.State == belay.Cancelled }

func owned(e *belay.Execution) bool { return e.State == belay.Running }

// actions are the actions in the order in which a page offers them.
var actions = []action{
	{
		name: "signal", scope: belay.ScopeSubmit, label: "Send a signal",
		done:    "The signal was sent.",
		about:   "The execution gets the signal when it waits for one of this name. The server keeps it until then.",
		offered: unended, // pages.signal makes the form and carries it out
	},
	{
		name: replying, scope: belay.ScopeSubmit, label: "Reply",
		about: "The agent gets the message in a new job, which continues the conversation and the work of this one. A job " +
			"can be continued once.",
		fields:  []field{{Name: "message", Kind: "text", Label: "Message", Rows: 8, Required: true}},
		offered: canBeContinued,
	},
	{
		name: "resume", scope: belay.ScopeOperate, label: "Resume",
		done:  "The execution goes on.",
		about: "The execution continues where it was paused.", fields: []field{reasonField},
		offered: func(e *belay.Execution) bool {
			spent := e.Reason != nil && e.Reason.Code == "budget" // only another budget helps
			return (e.State == belay.Paused || e.PauseRequested) && !spent
		},
	},
	{
		name: "pause", scope: belay.ScopeOperate, label: "Pause",
		done:   "The execution is paused, or its owner was asked to pause it.",
		about:  "A running execution stops at its next safe point, and keeps the results of its finished steps.",
		fields: []field{reasonField}, offered: func(e *belay.Execution) bool {
			return unended(e) && e.State != belay.Paused && !e.PauseRequested && e.CancelBy.IsZero()
		},
	},
	{
		name: "budget", scope: belay.ScopeOperate, label: "Change the budget",
		done: "The execution has the new budget.",
		about: "The execution and its descendants pause when their cost reaches the budget. Those that are paused because " +
			"the budget is spent continue if the new one is higher than their cost.",
		fields:  []field{{Name: "cost", Kind: "line", Label: "Budget in tokens", Required: true}, reasonField},
		offered: func(e *belay.Execution) bool { return unended(e) && e.Budget != nil },
	},
	{
		name: "retry", scope: belay.ScopeOperate, label: "Retry",
		done:  "The execution runs again.",
		about: "The execution runs again with its present input. Finished steps keep their results.",
		fields: []field{
			{
				Name: "from", Kind: "line", Label: "From the step",
				About: "This step and all that were saved after it run again. Empty: only what did not finish runs.",
			},
			reasonField,
		},
		offered: stopped,
	},
	{
		name: "requeue", scope: belay.ScopeOperate, label: "Run with another input",
		done:  "The execution runs again with the new input.",
		about: "The execution runs again from its beginning with the input below.",
		fields: []field{
			{Name: "input", Kind: "text", Label: "Input", Rows: 14, About: "JSON"},
			{Name: "keep", Kind: "check", Label: "Keep the results of finished steps"}, reasonField,
		},
		offered: stopped,
	},
	{
		name: "fork", scope: belay.ScopeOperate, label: "Fork",
		done:  "This is the fork, a new execution.",
		about: "A new execution begins with the results of this one, which stays as it is.",
		fields: []field{
			{
				Name: "at", Kind: "line", Label: "Before the step",
				About: "The fork begins with the results that were saved before this step. Empty: with all results.",
			},
			reasonField,
		},
		offered: func(e *belay.Execution) bool { return e.Parent.IsZero() && !e.StartedAt.IsZero() },
	},
	{
		name: "preempt", scope: belay.ScopeOperate, label: "Ask the owner to yield",
		done:   "The owner was asked to yield.",
		about:  "The owner gives the execution back at the next safe point, and another worker continues it.",
		fields: []field{reasonField}, offered: owned,
	},
	{
		name: "steal", scope: belay.ScopeOperate, label: "Take from its owner",
		done: "The execution was taken from its owner.",
		about: "The owner's next write is refused, and another worker continues from the last checkpoint. Work " +
			"that the owner has not saved is lost; its effects outside Belay may happen twice.",
		danger: true, fields: []field{reasonField}, offered: owned,
	},
	{
		name: "cancel", scope: belay.ScopeOperate, label: "Cancel",
		done:   "The execution is being cancelled.",
		about:  "The execution ends as cancelled. A running one has a moment to end by itself; then its owner loses it.",
		danger: true, fields: []field{reasonField}, offered: func(e *belay.Execution) bool {
			return unended(e) && e.CancelBy.IsZero()
		},
	},
	{
		name: "quarantine", scope: belay.ScopeOperate, label: "Give up",
		done:   "The execution has failed, with an open dead letter.",
		about:  "The execution fails at once, with an open dead letter. The next write of its owner is refused.",
		danger: true, fields: []field{reasonField}, offered: unended,
	},
	{
		name: "delete", scope: belay.ScopeOperate, label: "Delete",
		done:   "",
		about:  "The execution is deleted with its history, logs and children. This cannot be undone.",
		danger: true, fields: []field{reasonField},
		offered: func(e *belay.Execution) bool { return !unended(e) && e.Parent.IsZero() },
	},
}

// Form is an address to which a page sends a form, as a pattern of http.ServeMux, and the scope that a request needs.
type Form struct {
	Path  string
	Scope belay.Scope
}

// Forms returns the addresses of all forms. The caller of the handler must check the scope of each request.
func Forms() []Form {
	all := []Form{
		{deedPath, belay.ScopeOperate}, {startPath, belay.ScopeSubmit}, {newBulkPath, belay.ScopeOperate},
		{keyCreate, belay.ScopeAdmin}, {keyRevoke, belay.ScopeAdmin},
	}
	for i := range actions {
		all = append(all, Form{"/executions/{id}/" + actions[i].name, actions[i].scope})
	}
	return all
}

// offer is an action as the page of an execution shows it.
type offer struct {
	Address, Label string
	Danger         bool
}

// bulkActions are the names of the actions on the execution of a bulk.
var bulkActions = []string{"resume", "pause", "retry", "cancel", "delete"}

// offers returns the actions that the visitor may take in the execution's state.
func (p *pages) offers(ctx context.Context, e *belay.Execution) []offer {
	var all []offer
	for i := range actions {
		a := &actions[i]
		if a.name == replying && p.options.Conversations == nil {
			continue
		}
		forbidden := e.Workflow == belay.BulkWorkflow && !slices.Contains(bulkActions, a.name) // by the server
		if visitorOf(ctx).allows(a.scope) && a.offered(e) && !forbidden {
			all = append(all, offer{"/executions/" + e.ID.String() + "/" + a.name, a.label, a.danger})
		}
	}
	if visitorOf(ctx).allows(belay.ScopeSubmit) && againPossible(e) {
		all = append(all, offer{startPath + "?again=" + e.ID.String(), "Start again", false})
	}
	return all
}

// actionForm is the page of an action's form.
type actionForm struct {
	ID, Workflow           string
	Up, UpName, Back, Post string // addresses: of the list, of the page, and to which the form is sent
	Heading, About, Button string
	Question               *payload // what a person is asked; nil for most forms
	Notes                  []string
	State                  *state
	Fields, Hidden         []field
	More                   []field // fields that most people leave empty
	MoreOpen               bool
	Switch                 *option // a button that shows the form in another way, and sends nothing
	Op                     string
	Danger                 bool
	Failed                 string
	Review                 *bulkReview // what the form would do; nil for most forms
	Change                 *inputDiff  // how the form would change an input; nil for most forms
}

// act shows the form of an action, or carries the action out and goes to the page of the execution.
func (p *pages) act(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	a, e, err := p.find(ctx, r)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	form, ok := p.posted(w, r)
	switch {
	case !ok:
		return
	case a.name == "signal":
		p.signal(ctx, w, r, a, e, form)
		return
	case form == nil:
		p.form(w, r, a, e, nil, nil)
		return
	case a.name == "requeue" && form.Get("show") != "":
		p.form(w, r, a, e, form, nil)
		return
	case a.name == "requeue" && form.Get("step") != "start":
		p.reviewInput(w, r, a, e, form)
		return
	}
	to, err := p.carryOut(ctx, a, e, form)
	switch {
	case err == nil:
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, to, http.StatusSeeOther)
	case repairable(err):
		p.form(w, r, a, e, form, err)
	default:
		p.refuse(w, r, err)
	}
}

// repairable reports whether the visitor may change the form after an error and send it again.
func repairable(err error) bool {
	switch belay.CodeOf(err) {
	case belay.CodeConflict, belay.CodeInvalid, belay.CodeMalformed, belay.CodePayloadTooLarge, belay.CodeQueueFull,
		belay.CodeIdempotencyMismatch:
		return true
	default:
		return false
	}
}

func lacks(s belay.Scope) error {
	return &belay.Error{
		Code: belay.CodeForbidden, Message: "Your key does not have the scope " + string(s) + ", which this needs.",
	}
}

func incomplete() error {
	return &belay.Error{Code: belay.CodeMalformed, Message: "the form is not complete; open it again"}
}

// actionNamed returns the action of a name; nil if there is none.
func actionNamed(name string) *action {
	i := slices.IndexFunc(actions, func(a action) bool { return a.name == name })
	if i < 0 {
		return nil
	}
	return &actions[i]
}

// find returns the action that an address names, and its execution.
func (p *pages) find(ctx context.Context, r *http.Request) (*action, *belay.Execution, error) {
	a := actionNamed(r.PathValue("action"))
	id, err := belay.ParseExecutionID(r.PathValue("id"))
	if a == nil || err != nil {
		return nil, nil, nothingThere()
	}
	if !visitorOf(ctx).allows(a.scope) {
		return nil, nil, lacks(a.scope)
	}
	e, err := p.backend.Execution(ctx, id)
	return a, &e, err
}

// form shows the form of an action. sent and failed are set after the action was refused.
func (p *pages) form(w http.ResponseWriter, r *http.Request, a *action, e *belay.Execution, sent url.Values,
	failed error) {
	f := actionFormOf(a, e)
	if a.name == "requeue" {
		f.Button, f.Notes = "Review", []string{"Nothing happens yet: the next page shows how the input changes."}
	}
	f.Fields = slices.Clone(a.fields)
	for i := range f.Fields {
		x := &f.Fields[i]
		x.Value, x.Choices = p.preset(r, e, x.Name)
		if sent != nil {
			x.Value = sent.Get(x.Name)
		}
	}
	p.showForm(w, r, f, failed)
}

// newOp returns the id of the operation that a form asks for. A form that is sent twice has the same id.
func newOp() string {
	var op belay.OpID
	_, _ = rand.Read(op[:]) // never fails
	return op.String()
}

// showForm shows a form, with an error if failed is set.
func (p *pages) showForm(w http.ResponseWriter, r *http.Request, f actionForm, failed error) {
	status := http.StatusOK
	if failed != nil {
		f.Failed, status = excerpt(sentence(failed), maxMessage), belay.CodeOf(failed).Status()
	}
	p.render(w, r, status, view{template: "action", Title: f.Heading, Page: f})
}

// preset returns the value that a field has at first, and suggestions.
func (p *pages) preset(r *http.Request, e *belay.Execution, name string) (string, []string) {
	switch {
	case name == "input":
		return inputText(e.Input), nil
	case name == "cost" && e.Budget != nil:
		return e.Budget.Cost.String(), nil
	case name == "from" || name == "at":
		events, err := p.backend.Events(r.Context(), belay.EventQuery{
			Execution: e.ID, After: max(0, e.Seq-historySize), Limit: historySize,
		})
		var names []string
		for i := range events {
			ev := &events[i]
			if err == nil && (ev.Kind == "step" || ev.Kind == "wait") && !slices.Contains(names, ev.Name) {
				names = append(names, ev.Name)
			}
		}
		return "", names
	}
	return "", nil
}

// awaited returns the name of the signal for which an execution waits; empty if it waits for none.
func (p *pages) awaited(ctx context.Context, id belay.ExecutionID) string {
	why, err := p.backend.Explain(ctx, id)
	if err != nil {
		return "" // the person can enter the name
	}
	i := slices.IndexFunc(why.Remedies, func(r belay.Remedy) bool { return r.Do == belay.RemedySignal })
	if i < 0 {
		return ""
	}
	return why.Remedies[i].Signal
}

// carryOut carries an action out, and returns the address of the page to which the browser goes.
func (p *pages) carryOut(ctx context.Context, a *action, e *belay.Execution, form url.Values) (string, error) {
	var op belay.OpID
	if err := op.UnmarshalText([]byte(form.Get("op"))); err != nil || op.IsZero() {
		return "", incomplete()
	}
	if a.name == replying {
		return p.reply(ctx, e, form.Get("message"), op)
	}
	to := homeOf(e) + "?done=" + a.name
	c := belay.Control{
		Execution: e.ID, Action: belay.Action(a.name), Actor: visitorOf(ctx).actor(), Op: op,
		Reason: formReason(form),
		From:   strings.TrimSpace(form.Get("from")), At: strings.TrimSpace(form.Get("at")),
	}
	switch c.Action {
	case belay.ActionRequeue:
		input, err := jsonOf(form.Get("input"))
		if err != nil {
			return "", err
		}
		c.Input, c.KeepResults = input, form.Get("keep") != ""
	case belay.ActionBudget:
		cost, err := belay.ParseCost(strings.TrimSpace(form.Get("cost")))
		if err != nil {
			return "", &belay.Error{Code: belay.CodeInvalid, Message: "this is no budget: " + err.Error()}
		}
		c.Budget = &belay.Budget{Cost: cost}
	default:
	}
	if c.Action == belay.ActionRequeue || c.Action == belay.ActionRetry {
		n, err := strconv.Atoi(form.Get("generation"))
		if err != nil || n < 1 {
			return "", incomplete()
		}
		c.Generation = n // somebody else may have reopened the execution since the person saw it
	}
	x, err := p.backend.Control(ctx, c)
	switch {
	case err != nil:
		return "", err
	case c.Action == belay.ActionDelete:
		return "/executions", nil
	case c.Action == belay.ActionFork:
		return "/executions/" + x.ID.String() + "?done=fork", nil
	}
	return to, nil
}

// escapeSteering writes the characters of a JSON text that a page would replace as escapes, so that a form that is sent
// back unchanged has the same value.
func escapeSteering(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\n' || r == '\t' || r >= ' ' && r != 0x7f && !steers(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// jsonOf checks that a text is JSON or empty.
func jsonOf(text string) (json.RawMessage, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	var value json.RawMessage
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		var at *json.SyntaxError
		where := ""
		if errors.As(err, &at) {
			where = " near the character " + strconv.FormatInt(at.Offset, 10)
		}
		return nil, &belay.Error{Code: belay.CodeInvalid, Message: "the text is no JSON" + where + ": " + err.Error()}
	}
	return value, nil
}

// doneNote returns the note about the action that an address says was carried out.
func doneNote(q url.Values) string {
	switch q.Get("done") {
	case "start":
		return "The execution was started."
	case "started":
		return "A form or submission with the same idempotency key has started this execution before."
	}
	if a := actionNamed(q.Get("done")); a != nil {
		return a.done
	}
	of, name, _ := strings.Cut(q.Get("done"), ".")
	if d := deedNamed(of, name); d != nil {
		return "Done: " + d.label + "."
	}
	return ""
}

// refuse shows the page of an error.
func (p *pages) refuse(w http.ResponseWriter, r *http.Request, err error) {
	v, status := p.failed(r, err)
	p.render(w, r, status, v)
}
