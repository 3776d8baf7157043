package agentapi

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net/http"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// Execute asks for a job.
type Execute struct {
	Prompt string `json:"prompt" doc:"What the agent is asked to do."`
	Repo   string `json:"repo,omitempty" doc:"The repository to work on; that of the server, unless given."`
	Ref    string `json:"ref,omitempty" doc:"Its branch, tag or commit; its HEAD, unless given."`
	// TimeoutSeconds counts from when the agent starts.
	TimeoutSeconds *float64        `json:"timeout_seconds,omitempty" doc:"How long the agent may run, counted from when it starts."`
	Metadata       json.RawMessage `json:"metadata,omitempty" doc:"The caller's own; shown with the job."`
}

// Accepted answers an Execute.
type Accepted struct {
	JobID  belay.ExecutionID `json:"job_id"`
	Status string            `json:"status" enum:"queued,running,completed,failed,timeout,error"`
}

// maxTimeout bounds what a caller may ask for.
const maxTimeout = 30 * 24 * time.Hour

func (e *Execute) prompt(s *agent.Setup) (agent.Prompt, error) {
	p := agent.Prompt{Text: e.Prompt, Repo: e.Repo, Ref: e.Ref, Timeout: belay.Duration(s.Timeout)}
	if !bytes.Equal(e.Metadata, []byte("null")) {
		p.Metadata = e.Metadata
	}
	if p.Repo == "" {
		p.Repo = s.Repo
	}
	if t := e.TimeoutSeconds; t != nil {
		if math.IsNaN(*t) || *t <= 0 || *t > maxTimeout.Seconds() {
			return p, &belay.Error{
				Code: belay.CodeInvalid, Message: "timeout_seconds must be more than 0 and at most that of 30 days",
			}
		}
		p.Timeout = belay.Duration(max(time.Millisecond, time.Duration(*t*float64(time.Second))))
	}
	err := s.Check(&p)
	return p, err
}

func (d *door) execute(w http.ResponseWriter, r *http.Request) {
	var e Execute
	err := decode(r, true, &e)
	var p agent.Prompt
	if err == nil {
		p, err = e.prompt(&d.o.Setup)
	}
	var got belay.Submitted
	if err == nil {
		got, err = d.accept(r.Context(), p, r.Header.Get("Idempotency-Key"), d.o.Policy)
	}
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

// accept makes a job of a prompt, or finds the one that was made under the key.
func (s *Service) accept(ctx context.Context, p agent.Prompt, key string, policy belay.Policy) (belay.Submitted,
	error) {
	if len(key) > belay.MaxName {
		return belay.Submitted{}, &belay.Error{
			Code: belay.CodeMalformed, Message: "an Idempotency-Key has 200 bytes at most",
		}
	}
	input, err := json.Marshal(&p)
	if err != nil {
		return belay.Submitted{}, &belay.Error{Code: belay.CodeInvalid, Message: "metadata is no JSON"}
	}
	got, err := s.submit(ctx, belay.Submission{
		Workflow: agent.Prompted, Input: input, IdempotencyKey: key, Policy: policy,
	})
	code := belay.CodeOf(err)
	if key == "" || err == nil || code != belay.CodeQueueFull && code != belay.CodeIdempotencyMismatch {
		return got, err
	}
	// A repeat is answered however full the queue is, and whatever the server's
	// settings were at the time.
	page, lerr := s.b.Executions(ctx, belay.Filter{Workflow: agent.Prompted, Key: key, Children: true, Limit: 1})
	if lerr != nil {
		return got, lerr
	}
	if len(page.Executions) == 0 {
		return got, err
	}
	x, lerr := s.b.Execution(ctx, page.Executions[0].ID)
	if lerr != nil {
		return got, lerr
	}
	if !same(x.Input, input) {
		return got, &belay.Error{
			Code: belay.CodeIdempotencyMismatch, Message: "the Idempotency-Key was used for another prompt",
		}
	}
	return belay.Submitted{ID: x.ID, Replayed: true}, nil
}

// submit stores a job, if there is a place for it.
func (s *Service) submit(ctx context.Context, job belay.Submission) (belay.Submitted, error) {
	stored, err := s.backlog.place(ctx, s.o.QueueDepth)
	if err != nil {
		return belay.Submitted{}, err
	}
	answers, err := s.b.Submit(ctx, job)
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		stored(belay.ExecutionID{})
		return belay.Submitted{}, err
	}
	stored(answers[0].ID)
	return answers[0], nil
}

// Admit judges a job that is submitted by another route than the service's own: it is
// held to the same rules, and takes a place in the same queue. The function is called
// with the id of what was stored, zero for nothing.
func (s *Service) Admit(ctx context.Context, job *belay.Submission) (stored func(belay.ExecutionID), err error) {
	if err := s.o.Setup.Admit(job.Input); err != nil {
		return nil, err
	}
	return s.backlog.place(ctx, s.o.QueueDepth)
}

// same reports whether two inputs ask for the same, in pieces or whole.
func same(a, b json.RawMessage) bool {
	var p, q agent.Prompt
	if json.Unmarshal(a, &p) != nil || json.Unmarshal(b, &q) != nil {
		return false
	}
	p.Timeout, q.Timeout = 0, 0
	p.Stream, q.Stream = false, false
	left, err := json.Marshal(&p)
	right, err2 := json.Marshal(&q)
	return err == nil && err2 == nil && bytes.Equal(left, right)
}
