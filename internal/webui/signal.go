package webui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/belaydev/belay"
)

// approval describes the payload of a signal that answers an approval.
var approval = Input{Properties: []Property{
	{"approved", true, map[string]any{
		"enum": []any{true, false}, "description": "With no, the task fails, and what needs it does not start",
	}},
	{"comment", false, map[string]any{
		"type": "string", "description": "The output of the task has it. It may be empty",
	}},
}}

// approving is the value of the field approval in the form of an approval.
const approving = "yes"

// answering is the value of the field approval in the form of an answer to the question of an agent.
const answering = "answer"

// answerPath returns the address of the form that answers the question of an agent with a signal of this name.
func answerPath(id belay.ExecutionID, name string) string {
	q := url.Values{"name": {name}, "approval": {answering}}
	return "/executions/" + id.String() + "/signal?" + q.Encode()
}

// answerOf returns the payload and the operation of an answer to the question of an agent. They are those of POST
// /jobs/{id}/answer, so that the first answer counts, whatever its way.
func answerOf(id belay.ExecutionID, name string, payload json.RawMessage) (json.RawMessage, belay.OpID) {
	var of struct {
		Answer *string `json:"answer"`
	}
	if json.Unmarshal(payload, &of) == nil && of.Answer != nil {
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		if err := e.Encode(*of.Answer); err == nil { // as always
			payload = bytes.TrimSpace(text.Bytes())
		}
	}
	return payload, belay.OpID(belay.ChildID(belay.ExecutionID{}, 0, "op "+id.String()+" "+name))
}

// signalPath returns the address of the form that sends a signal to an execution.
func signalPath(id belay.ExecutionID, name string, approves bool) string {
	q := url.Values{"name": {name}}
	if approves {
		q.Set("approval", approving)
	}
	return "/executions/" + id.String() + "/signal?" + q.Encode()
}

// signal shows the form of a signal, or sends the signal and goes to the page of the execution. form is nil for a GET.
func (p *pages) signal(ctx context.Context, w http.ResponseWriter, r *http.Request, a *action, e *belay.Execution,
	form url.Values) {
	payload := inputForm{json: field{
		Name: "payload", Kind: "text", Label: "Payload", Rows: 6, About: "JSON. It may be empty.",
	}}
	if form == nil {
		q := r.URL.Query()
		form = url.Values{"signal": {q.Get("name")}, "approval": {q.Get("approval")}}
		if q.Get("name") == "" {
			form.Set("signal", p.awaited(ctx, e.ID))
			switch {
			case p.approvalOf(ctx, e, form.Get("signal")) != nil:
				form.Set("approval", approving)
			case isAnswer(e, form.Get("signal")):
				form.Set("approval", answering)
			}
		}
		if payload.approves(form); len(payload.fields) > 0 {
			form = payload.with(form, nil, false)
		}
		p.signalForm(ctx, w, r, a, e, &payload, form, nil, nil)
		return
	}
	payload.approves(form)
	data, problems := payload.read(form)
	switch {
	case len(problems) > 0:
		p.signalForm(ctx, w, r, a, e, &payload, form, problems, invalidInput())
		return
	case form.Get("show") != "":
		p.signalForm(ctx, w, r, a, e, &payload, payload.with(form, data, form.Get("show") == "json"), nil, nil)
		return
	}
	var op belay.OpID
	err := op.UnmarshalText([]byte(form.Get("op")))
	if err != nil || op.IsZero() {
		p.refuse(w, r, incomplete())
		return
	}
	name := strings.TrimSpace(form.Get("signal"))
	answers := isJob(e) && form.Get("approval") == answering
	if answers {
		data, op = answerOf(e.ID, name, data)
	}
	err = p.backend.Signal(ctx, belay.SignalRequest{
		Execution: e.ID, Name: name, Payload: data, Actor: visitorOf(ctx).actor(), Op: op,
	})
	if answers && belay.CodeOf(err) == belay.CodeIdempotencyMismatch {
		err = &belay.Error{Code: belay.CodeConflict, Message: "the question has been answered already, in another way"}
	}
	switch {
	case err == nil:
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, "/executions/"+e.ID.String()+"?done="+a.name, http.StatusSeeOther)
	case repairable(err):
		p.signalForm(ctx, w, r, a, e, &payload, form, nil, err)
	default:
		p.refuse(w, r, err)
	}
}

// approvalOf returns the task of a document that waits for an approval by a signal of this name; nil if there is none.
func (p *pages) approvalOf(ctx context.Context, e *belay.Execution, name string) *belay.Task {
	if name == "" || p.options.Tasks == nil || e.Workflow != documentWorkflow {
		return nil
	}
	const most = 100
	page, err := p.options.Tasks(ctx, belay.TaskQuery{Execution: e.ID, State: belay.TaskWaiting, Limit: most})
	if err != nil {
		return nil // the person can answer without the question
	}
	i := slices.IndexFunc(page.Tasks, func(t belay.Task) bool {
		return t.Question != nil && t.Question.Approval && t.Question.Signal == name
	})
	if i < 0 {
		return nil
	}
	return &page.Tasks[i]
}

// isAnswer reports whether a signal of this name answers the question of an agent.
func isAnswer(e *belay.Execution, name string) bool {
	return isJob(e) && strings.HasPrefix(name, "answer-")
}

// approves gives the form the fields of an approval, or of an answer to an agent, if it is one.
func (f *inputForm) approves(form url.Values) {
	switch form.Get("approval") {
	case approving:
		f.fields = inputFields(&approval)
	case answering:
		f.fields = inputFields(&Input{Properties: []Property{{"answer", true, map[string]any{
			"type": "string", "description": "The agent gets this text and continues",
		}}}})
	}
}

// ask gives the form of an approval, or of an answer to an agent, its title and the question.
func (p *pages) ask(ctx context.Context, f *actionForm, e *belay.Execution, kind, name string) {
	if kind == answering {
		f.Heading, f.Button, f.About = "Answer the agent", "Answer", "The job continues with the answer."
		if !isJob(e) || name == "" {
			return
		}
		if q, err := p.asked(ctx, e.ID, name); err == nil { // the person can answer without the question
			f.Question = block(q.Text)
		}
		return
	}
	f.Heading, f.Button, f.About = "Approve or refuse", "Send the answer", "The task that asks gets the answer."
	if t := p.approvalOf(ctx, e, name); t != nil {
		f.Question = block(cmp.Or(t.Question.Message, t.Description))
	}
}

// signalForm shows the form of a signal.
func (p *pages) signalForm(ctx context.Context, w http.ResponseWriter, r *http.Request, a *action, e *belay.Execution,
	payload *inputForm, form url.Values, problems map[string]string, failed error) {
	f := actionFormOf(a, e)
	list, other, mode := payload.view(form, problems)
	name := field{Name: "signal", Kind: "line", Label: "Name", Required: true}
	name.restore(form)
	f.Fields, f.Switch = append([]field{name}, list...), other
	f.Hidden = append(f.Hidden, field{Name: "mode", Value: mode})
	if len(payload.fields) > 0 {
		kind := approving
		if form.Get("approval") == answering {
			kind = answering
		}
		p.ask(ctx, &f, e, kind, strings.TrimSpace(form.Get("signal")))
		f.Hidden = append(f.Hidden, field{Name: "approval", Value: kind})
	}
	p.showForm(w, r, f, failed)
}

// actionFormOf returns the form of an action without its fields.
func actionFormOf(a *action, e *belay.Execution) actionForm {
	at, now := "/executions/"+e.ID.String(), stateOf(e)
	return actionForm{
		ID: e.ID.String(), Workflow: nameOf(e), Up: "/executions", UpName: "Executions", Back: homeOf(e),
		Post: at + "/" + a.name, Heading: a.label, Button: a.label, About: a.about, State: &now, Danger: a.danger,
		Hidden: []field{{Name: "generation", Value: strconv.Itoa(e.Generation)}}, Op: newOp(),
	}
}

// homeOf returns the address of the page of an execution, or of the bulk that it carries out.
func homeOf(e *belay.Execution) string {
	if e.Workflow == belay.BulkWorkflow {
		return bulkPath(e.ID)
	}
	return "/executions/" + e.ID.String()
}
