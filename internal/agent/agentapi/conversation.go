package agentapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/wire"
)

// Reply is the body of a request that continues the conversation of a job.
type Reply struct {
	Prompt         string          `json:"prompt" doc:"The next message to the agent."`
	TimeoutSeconds *float64        `json:"timeout_seconds,omitempty" doc:"The time limit of the agent, from its start, in seconds."`
	Metadata       json.RawMessage `json:"metadata,omitempty" doc:"Data of the caller, returned with the job."`
	Budget         *belay.Budget   `json:"budget,omitempty" doc:"The budget of the new job."`
	Push           *agent.PushTo   `json:"push,omitempty" doc:"Push the work to a branch when the agent has succeeded."`
	MaxCost        *agent.MaxCost  `json:"max_cost,omitempty" doc:"The largest cost of the new job over all its runs: a job that exceeds it ends with an error, and its changes are kept. The default is that of the job that it continues."`
}

// HumanAnswer is the body of a request that answers the question of an agent.
type HumanAnswer struct {
	Answer   string `json:"answer" doc:"The answer, at most 64 KiB as JSON."`
	Question int    `json:"question,omitempty" doc:"The number of the question; the default is the newest."`
	Actor    string `json:"actor,omitempty" maxLength:"200" doc:"The name of the person who answers, if the request needs no key."`
}

// prompt submits a job that continues the conversation and the work of another job. That job must
// have ended, and no other job may continue it: so the messages of a conversation have one order.
func (d *endpoint) prompt(w http.ResponseWriter, r *http.Request) {
	var body Reply
	err := decode(r, true, &body)
	var x belay.Execution
	if err == nil {
		x, err = d.find(r)
	}
	var got belay.Submitted
	if err == nil {
		got, err = d.Reply(r.Context(), &x, &body, r.Header.Get("Idempotency-Key"))
	}
	d.accepted(w, r, got, err)
}

// Reply submits a job that continues the conversation and the work of the job x, which must have ended. A repeated
// call with the same key returns the first continuation. Reply returns CodeConflict if the job cannot be continued,
// or if it was continued before with another key or message.
func (s *Service) Reply(ctx context.Context, x *belay.Execution, body *Reply, key string) (belay.Submitted, error) {
	if len(key) > belay.MaxName {
		return belay.Submitted{}, errLongKey
	}
	var last agent.Prompt
	if err := json.Unmarshal(x.Input, &last); err != nil {
		return belay.Submitted{}, fmt.Errorf("read the prompt of job %s: %w", x.ID, err)
	}
	e := Execute{
		Prompt: body.Prompt, Repo: last.Repo, Ref: last.Ref, TimeoutSeconds: body.TimeoutSeconds,
		Metadata: body.Metadata, Push: body.Push, MaxCost: cmp.Or(body.MaxCost, last.MaxCost),
	}
	p, err := e.prompt(&s.o.Setup)
	if err == nil {
		p.Continues, err = continued(x, &last)
	}
	if err != nil {
		return belay.Submitted{}, err
	}
	if key != "" {
		sum := sha256.Sum256([]byte(key))
		p.Continues.Key = hex.EncodeToString(sum[:16])
	}
	// The idempotency key of the new execution belongs to the job that it continues, so the store
	// accepts only one of two continuations.
	labels := maps.Clone(x.Labels)
	if labels[LabelPrompt] == Title(last.Text) { // the new job has a title of its own
		delete(labels, LabelPrompt)
	}
	got, err := s.accept(ctx, p, ContinuationKey(x.ID), s.o.Policy, body.Budget, labels)
	switch {
	case belay.CodeOf(err) == belay.CodeIdempotencyMismatch, err == nil && got.Replayed && key == "":
		return got, s.continuedBy(ctx, x.ID)
	}
	return got, err
}

// ContinuationKey returns the idempotency key of the job that continues a job.
func ContinuationKey(job belay.ExecutionID) string { return continuing + job.String() }

// continued returns the data with which the next job continues the job x.
func continued(x *belay.Execution, p *agent.Prompt) (*agent.Continued, error) {
	a := answerOf(x)
	refuse := func(why string) (*agent.Continued, error) {
		return nil, &belay.Error{Code: belay.CodeConflict, Message: why}
	}
	switch {
	case !x.State.Terminal():
		return refuse("the job has not ended yet: wait for its end, or answer its question with belay " +
			"agent answer, or with POST /jobs/" + x.ID.String() + "/answer")
	case p.Repo == "":
		return refuse("the job has no repository, so Belay has not kept its work: send the message as a new prompt")
	case a == nil || a.Commit == "":
		return refuse("the job has no result to continue, because it ended while no agent ran: send the message as a " +
			"new prompt; belay workspaces restore " + x.ID.String() + " gets the work that it may have stored")
	}
	c := &agent.Continued{
		Job: x.ID, First: x.ID, Session: a.Session, Commit: a.Commit, Branch: a.Branch, Changes: a.Changes,
		Usage: a.Conversation,
	}
	if p.Continues != nil {
		c.First = p.Continues.First
	}
	return c, nil
}

// continuedBy returns the error for a second continuation of a job.
func (s *Service) continuedBy(ctx context.Context, id belay.ExecutionID) error {
	page, err := s.b.Executions(ctx, belay.Filter{
		Workflow: agent.Prompted, Key: ContinuationKey(id), Children: true, Limit: 1,
	})
	if err != nil {
		return err
	}
	by := "another job"
	if len(page.Executions) > 0 {
		by = "job " + page.Executions[0].ID.String()
	}
	return &belay.Error{
		Code:    belay.CodeConflict,
		Message: "the conversation has already been continued by " + by + ": reply to that job",
	}
}

var errLongKey = &belay.Error{Code: belay.CodeMalformed, Message: "an Idempotency-Key has 200 bytes at most"}

// answer delivers the answer of a person to the question of an agent. The first answer counts: the
// same answer again changes nothing, and another answer is refused.
func (d *endpoint) answer(w http.ResponseWriter, r *http.Request) {
	var body HumanAnswer
	err := decode(r, true, &body)
	var x belay.Execution
	if err == nil {
		x, err = d.find(r)
	}
	if err == nil {
		err = d.deliver(r.Context(), &x, &body)
	}
	d.accepted(w, r, belay.Submitted{ID: x.ID, Replayed: true}, err)
}

func (d *endpoint) deliver(ctx context.Context, x *belay.Execution, body *HumanAnswer) error {
	text := bytes.TrimSpace(jsonOf(body.Answer).Bytes())
	switch {
	case strings.TrimSpace(body.Answer) == "":
		return wrongField("answer", "the answer is empty")
	case strings.ContainsRune(body.Answer, 0) || !utf8.ValidString(body.Answer):
		return wrongField("answer", "the answer is not valid text")
	case len(text) > agent.MaxAnswer:
		return &belay.Error{
			Code:    belay.CodePayloadTooLarge,
			Message: fmt.Sprintf("the answer has %d bytes as JSON; the limit is %d", len(text), agent.MaxAnswer),
		}
	case x.State.Terminal():
		return &belay.Error{Code: belay.CodeConflict, Message: "the job has ended: reply to it with belay agent " +
			"reply, or with POST /jobs/" + x.ID.String() + "/prompt"}
	}
	q, err := d.question(ctx, x.ID)
	if err != nil {
		return err
	}
	if q == nil || body.Question != 0 && body.Question != q.Number {
		return &belay.Error{Code: belay.CodeConflict, Message: "the agent does not ask this question"}
	}
	err = d.b.Signal(ctx, belay.SignalRequest{
		Execution: x.ID, Name: q.Signal(), Payload: text, Actor: httpapi.Actor(ctx, body.Actor),
		Op: wire.OpOf(x.ID.String() + " " + q.Signal()),
	})
	if belay.CodeOf(err) == belay.CodeIdempotencyMismatch {
		return &belay.Error{Code: belay.CodeConflict, Message: "the question has been answered already, in another way"}
	}
	return err
}

// question returns the newest question of a job; nil if the agent has not asked any.
func (s *Service) question(ctx context.Context, id belay.ExecutionID) (newest *agent.Question, err error) {
	err = s.chunks(ctx, id, agent.QuestionLog, 0, func(c belay.StoredChunk) bool {
		for line := range bytes.Lines(c.Data) {
			var q agent.Question
			if json.Unmarshal(line, &q) == nil && q.Number > 0 {
				newest = &q
			}
		}
		return true
	})
	return newest, err
}

// accepted answers a request that was accepted, or refuses it.
func (d *endpoint) accepted(w http.ResponseWriter, r *http.Request, got belay.Submitted, err error) {
	status := Queued
	if err == nil && got.Replayed {
		w.Header().Set("Idempotency-Replayed", "true")
		var x belay.Execution
		if x, err = d.b.Execution(r.Context(), got.ID); err == nil {
			status = Status(&x, answerOf(&x))
		}
	}
	if err != nil {
		d.refuse(w, r, err)
		return
	}
	w.Header().Set("Location", "/jobs/"+got.ID.String())
	reply(w, http.StatusAccepted, Accepted{got.ID, status})
}

// errContinues refuses a submission that forges the data of a continuation.
var errContinues = &belay.Error{
	Code: belay.CodeInvalid, Message: "a prompt continues a job only by POST /jobs/{id}/prompt",
}

// forges reports whether an input names a job to continue that the input before does not name. Only the server does
// so. before is the input of the execution that runs again; nil for a new execution.
func forges(input, before json.RawMessage) bool {
	var p, was agent.Prompt
	if json.Unmarshal(input, &p) != nil || p.Continues == nil {
		return false
	}
	return json.Unmarshal(before, &was) != nil || !reflect.DeepEqual(p.Continues, was.Continues)
}

// continuing begins the idempotency keys of jobs that continue others.
const continuing = "continues "

// checkKey returns an error for a key of a caller that is the key of a continuation: with it, another job would take
// the place of the reply.
func checkKey(key string) error {
	if id, ok := strings.CutPrefix(key, continuing); ok {
		if _, err := belay.ParseExecutionID(id); err == nil {
			return &belay.Error{
				Code: belay.CodeInvalid, Message: "this Idempotency-Key is reserved for the reply to a job",
			}
		}
	}
	return nil
}
