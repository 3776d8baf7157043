package agentapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/wire"
)

// responses is the format of responses.
type responses struct {
	agent string // the model of a request that names none
	req   ResponseRequest
	next  int64 // the number of the next event of the stream
}

func (f *responses) read(s *Service, r *http.Request) (inquiry, error) {
	if err := decode(r, false, &f.req); err != nil {
		return inquiry{}, err
	}
	if err := f.req.check(); err != nil {
		return inquiry{}, err
	}
	messages, err := s.messagesOf(r.Context(), &f.req)
	if err != nil {
		return inquiry{}, err
	}
	q := inquiry{stream: f.req.Stream}
	if q.prompt, err = promptOf("input", messages); err != nil {
		return inquiry{}, err
	}
	if len(f.req.Metadata) > 0 {
		q.metadata, err = json.Marshal(f.req.Metadata)
	}
	return q, err
}

// check refuses the parts of a request that Belay cannot carry out, if ignoring them would give a wrong answer.
func (q *ResponseRequest) check() error {
	choice := ""
	_ = json.Unmarshal(q.ToolChoice, &choice)
	switch {
	case q.Previous != "":
		return wrongField("previous_response_id",
			"previous_response_id is not supported; send the earlier messages in input, or continue the job with "+
				"POST /jobs/{id}/prompt")
	case given(q.Conversation):
		return wrongField("conversation", "conversations are not supported; send the earlier messages in input")
	case given(q.Prompt):
		return wrongField("prompt", "prompt templates are not supported; send the text in input")
	case q.Background:
		return wrongField("background", "background is not supported; POST /execute starts a job in the background")
	case len(q.Tools) > 0 && choice != "none":
		return wrongField("tools", "the agent has its own tools and cannot call those of a client; leave tools out")
	case q.Text != nil && q.Text.Format != nil && q.Text.Format.Type != "text":
		return wrongField("text.format", "the only format is text; ask for another form in input")
	}
	return cmp.Or(checkModel(q.Model), checkMetadata(q.Metadata))
}

// checkMetadata checks the metadata of a request against the limits of OpenAI's API.
func checkMetadata(pairs map[string]string) error {
	const most, longestKey, longestValue = 16, 64, 512
	if len(pairs) > most {
		return wrongField("metadata", "metadata has 16 pairs at most")
	}
	for key, value := range pairs {
		if utf8.RuneCountInString(key) > longestKey || utf8.RuneCountInString(value) > longestValue {
			return wrongField("metadata", "metadata has keys of 64 characters and values of 512 characters at most")
		}
	}
	return nil
}

// maxReferences is the maximum number of references in the input of one request, because each is read from the store.
const maxReferences = 32

// messagesOf returns the messages of a request: its instructions and its input.
func (s *Service) messagesOf(ctx context.Context, q *ResponseRequest) (all []message, err error) {
	if q.Instructions != "" {
		all = append(all, message{"system", q.Instructions})
	}
	if !given(q.Input) {
		return nil, wrongField("input", "a response needs an input")
	}
	var text string
	if json.Unmarshal(q.Input, &text) == nil {
		return append(all, message{"user", text}), nil
	}
	var items []struct {
		Type    string          `json:"type"`
		ID      string          `json:"id"`
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(q.Input, &items) != nil || len(items) == 0 {
		return nil, wrongField("input", "the input must be a string or a list of messages")
	}
	references, size := 0, 0
	for _, item := range items {
		m := message{role: item.Role}
		switch item.Type {
		case "", "message":
			m.text, err = textOf("input", item.Content)
		case "item_reference":
			if references++; references > maxReferences {
				return nil, wrongField("input", fmt.Sprintf("the input has %d references at most", maxReferences))
			}
			m.role = "assistant"
			m.text, err = s.referred(ctx, item.ID)
		default:
			err = wrongField("input", fmt.Sprintf("an item of type %.40q; only messages are supported", item.Type))
		}
		if err != nil {
			return nil, err
		}
		if size += len(m.text); size > belay.MaxPayload {
			return nil, &belay.Error{Code: belay.CodePayloadTooLarge, Message: "the input is too large"}
		}
		all = append(all, m)
	}
	return all, nil
}

// referred returns the text of the message of an earlier response. A caller that may send a request may read all jobs.
func (s *Service) referred(ctx context.Context, id string) (string, error) {
	var x belay.Execution
	job, err := belay.ParseExecutionID(strings.TrimPrefix(id, messagePrefix))
	if err == nil && strings.HasPrefix(id, messagePrefix) {
		x, err = s.read(ctx, job)
	} else {
		err = errNoJob
	}
	if err != nil && belay.CodeOf(err) != belay.CodeNotFound {
		return "", err
	}
	a := answerOf(&x)
	if err != nil || a == nil || Status(&x, a) != Completed {
		return "", wrongField("input", fmt.Sprintf("there is no item %.80q; send the text of the message instead", id))
	}
	return a.Text, nil
}

func (f *responses) model() string { return cmp.Or(f.req.Model, f.agent) }

func (f *responses) whole(x *belay.Execution, a *agent.Answer) any {
	return answered(x, a, f.model(), a.Text, a.Cut)
}

// begin returns the beginning of a stream, up to its first text. Some clients repeat a request by themselves if an
// error comes before the message is announced, so the message is announced before the agent starts.
func (f *responses) begin(x *belay.Execution) []event {
	r := responseTo(x, f.model(), responseInProgress)
	return []event{
		f.about(r, "response.created"),
		f.about(r, "response.in_progress"),
		f.aboutItem("response.output_item.added", messageOf(x, responseInProgress)),
		f.aboutPart(x, "response.content_part.added", partOf("")),
	}
}

func (f *responses) say(x *belay.Execution, text string) []event {
	const name = "response.output_text.delta"
	return []event{{name: name, data: ResponseDeltaEvent{f.place(x, name), text, []json.RawMessage{}}}}
}

func (f *responses) end(x *belay.Execution, a *agent.Answer, t told) []event {
	const name = "response.output_text.done"
	r := answered(x, a, f.model(), t.text, t.cut || t.long)
	item := &r.Output[0]
	return []event{
		{name: name, data: ResponseTextEvent{f.place(x, name), t.text, []json.RawMessage{}}},
		f.aboutPart(x, "response.content_part.done", &item.Content[0]),
		f.aboutItem("response.output_item.done", item),
		f.about(r, "response."+r.Status),
	}
}

func (f *responses) fail(x *belay.Execution, fault ChatFault) []event {
	r := responseTo(x, f.model(), responseFailed)
	r.Error = &ResponseFault{fault.Code, fault.Message}
	return []event{f.about(r, "response.failed")}
}

func (f *responses) number() int64 {
	f.next++
	return f.next - 1
}

func (f *responses) about(r *Response, name string) event {
	return event{name: name, data: ResponseEvent{name, f.number(), r}}
}

func (f *responses) aboutItem(name string, item *ResponseMessage) event {
	return event{name: name, data: ResponseItemEvent{name, f.number(), 0, item}}
}

func (f *responses) aboutPart(x *belay.Execution, name string, part *ResponsePart) event {
	return event{name: name, data: ResponsePartEvent{f.place(x, name), part}}
}

// place returns the place of the only text of a response.
func (f *responses) place(x *belay.Execution, name string) ResponsePlace {
	return ResponsePlace{Type: name, Sequence: f.number(), ItemID: messagePrefix + x.ID.String()}
}

// stored returns the response of a job as it is now.
func stored(x *belay.Execution, model string) *Response {
	a := answerOf(x)
	status := Status(x, a)
	switch status {
	case Queued:
		return responseTo(x, model, responseQueued)
	case Running, Waiting:
		return responseTo(x, model, responseInProgress)
	case Completed:
		a = said(x)
		return answered(x, a, model, a.Text, a.Cut)
	}
	if x.State == belay.Cancelled {
		return responseTo(x, model, responseCancelled)
	}
	r := responseTo(x, model, responseFailed)
	r.Error = &ResponseFault{string(agentFailed), "the agent did not answer (" + status + "): " + reason(x)}
	return r
}

// response responds with the response of a job.
func (d *endpoint) response(w http.ResponseWriter, r *http.Request) {
	var field *string
	x, err := d.findResponse(r)
	if name := "stream"; err == nil && r.URL.Query().Get(name) == "true" {
		field, err = &name, &belay.Error{
			Code: belay.CodeInvalid, Message: "a response cannot be streamed again; repeat its request with the same " +
				"Idempotency-Key",
		}
	}
	d.showResponse(w, r, &x, err, field)
}

// cancelResponse cancels the job of a response.
func (d *endpoint) cancelResponse(w http.ResponseWriter, r *http.Request) {
	x, err := d.findResponse(r)
	if err == nil && !x.State.Terminal() {
		x, err = d.b.Control(r.Context(), belay.Control{
			Execution: x.ID, Action: belay.ActionCancel, Actor: httpapi.Actor(r.Context(), ""),
			Reason: "asked for at /v1/responses", Op: wire.OpOf(r.Header.Get("Idempotency-Key")),
		})
	}
	d.showResponse(w, r, &x, err, nil)
}

func (d *endpoint) showResponse(w http.ResponseWriter, r *http.Request, x *belay.Execution, err error, field *string) {
	if err != nil {
		refuseField(w, d.problem(r, err), field)
		return
	}
	reply(w, http.StatusOK, stored(x, d.o.Model))
}

// findResponse reads the execution of the response that a request names.
func (d *endpoint) findResponse(r *http.Request) (belay.Execution, error) {
	name, is := strings.CutPrefix(r.PathValue("id"), responsePrefix)
	id, err := belay.ParseExecutionID(name)
	if err != nil || !is {
		return belay.Execution{}, errNoResponse
	}
	x, err := d.read(r.Context(), id)
	if belay.CodeOf(err) == belay.CodeNotFound {
		err = errNoResponse
	}
	return x, err
}

var errNoResponse = &belay.Error{
	Code: belay.CodeNotFound, Message: "there is no such response, or it ended too long ago",
}
