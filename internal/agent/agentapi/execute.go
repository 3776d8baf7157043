package agentapi

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net/http"
	"reflect"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/httpapi"
)

// Execute is the body of a request for a job.
type Execute struct {
	Prompt string `json:"prompt" doc:"The task for the agent."`
	Repo   string `json:"repo,omitempty" doc:"The repository to work on; the default is the server's repository."`
	Ref    string `json:"ref,omitempty" doc:"The branch, tag or commit of the repository; the default is its HEAD."`
	// TimeoutSeconds is the time limit of the agent, from its start; nil means the server's time
	// limit.
	TimeoutSeconds *float64          `json:"timeout_seconds,omitempty" doc:"The time limit of the agent, from its start, in seconds."`
	Metadata       json.RawMessage   `json:"metadata,omitempty" doc:"Data of the caller, returned with the job."`
	Labels         map[string]string `json:"labels,omitempty" doc:"The labels of the job's execution, for lists and for GET /v1/usage."`
	// MaxCost can only lower the limit of the server.
	MaxCost *agent.MaxCost `json:"max_cost,omitempty" doc:"The largest cost of the job over all its runs: a job that exceeds it ends with an error, and its changes are kept."`
	Push    *agent.PushTo  `json:"push,omitempty" doc:"Pushes the work to a branch when the agent has succeeded, if the server allows it."`
	Budget  *belay.Budget  `json:"budget,omitempty" doc:"The budget: when the cost of the job and the executions that it starts reaches it, they are paused until it is raised."`
}

// Accepted is the response to a request for a job.
type Accepted struct {
	JobID  belay.ExecutionID `json:"job_id"`
	Status string            `json:"status" enum:"queued,waiting,running,completed,failed,timeout,error"`
}

// maxTimeout is the largest timeout that a request may set.
const maxTimeout = 30 * 24 * time.Hour

func (e *Execute) prompt(s *agent.Setup) (agent.Prompt, error) {
	p := agent.Prompt{
		Text: e.Prompt, Repo: e.Repo, Ref: e.Ref, Timeout: belay.Duration(s.Timeout), Push: e.Push, MaxCost: e.MaxCost,
	}
	if !bytes.Equal(e.Metadata, []byte("null")) {
		p.Metadata = e.Metadata
	}
	if p.Repo == "" {
		p.Repo = s.Repo
	}
	if t := e.TimeoutSeconds; t != nil {
		if math.IsNaN(*t) || *t <= 0 || *t > maxTimeout.Seconds() {
			return p, &belay.Error{
				Code: belay.CodeInvalid, Message: "timeout_seconds must be more than 0 and at most 2592000 (30 days)",
			}
		}
		p.Timeout = belay.Duration(max(time.Millisecond, time.Duration(*t*float64(time.Second))))
	}
	err := s.Check(&p)
	return p, err
}

func (d *endpoint) execute(w http.ResponseWriter, r *http.Request) {
	var e Execute
	err := decode(r, true, &e)
	var p agent.Prompt
	if err == nil {
		p, err = e.prompt(&d.o.Setup)
	}
	key := r.Header.Get("Idempotency-Key")
	if err == nil {
		err = checkKey(key)
	}
	var got belay.Submitted
	if err == nil {
		got, err = d.accept(r.Context(), p, key, d.o.Policy, e.Budget, e.Labels)
	}
	d.accepted(w, r, got, err)
}

// accept stores a job for a prompt, with a budget unless it is nil. If a job with the same key is already
// stored, accept returns that job.
func (s *Service) accept(ctx context.Context, p agent.Prompt, key string, policy belay.Policy,
	budget *belay.Budget, labels map[string]string) (belay.Submitted, error) {
	if len(key) > belay.MaxName {
		return belay.Submitted{}, errLongKey
	}
	input, err := json.Marshal(&p)
	if err != nil {
		return belay.Submitted{}, &belay.Error{Code: belay.CodeInvalid, Message: "metadata is not valid JSON"}
	}
	got, err := s.submit(ctx, belay.Submission{
		Workflow: agent.Prompted, Input: input, IdempotencyKey: key, Policy: policy, Budget: budget,
		Labels: labelled(&p, labels),
	})
	code := belay.CodeOf(err)
	if key == "" || err == nil || code != belay.CodeQueueFull && code != belay.CodeIdempotencyMismatch {
		return got, err
	}
	// A repeated request gets its job even if the queue is full, and even if the server's settings
	// have changed since the first request.
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
	if !same(x.Input, input) || !sameBudget(x.Budget, budget) {
		return got, &belay.Error{
			Code: belay.CodeIdempotencyMismatch, Message: "the Idempotency-Key was used for another prompt or budget",
		}
	}
	return belay.Submitted{ID: x.ID, Replayed: true}, nil
}

// submit stores a job, if the queue has a place for it.
func (s *Service) submit(ctx context.Context, job belay.Submission) (belay.Submitted, error) {
	stored, err := s.backlog.place(ctx, s.o.QueueDepth)
	if err != nil {
		return belay.Submitted{}, err
	}
	job.Actor, job.Trace = httpapi.Actor(ctx, ""), httpapi.Trace(ctx)
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

// Admit checks a job that a client submits by a route outside this service, and reserves a place
// for the job in the same queue, with the same limit. The caller must then call stored with the id
// of the stored job, or with the zero id if it stored no job.
func (s *Service) Admit(ctx context.Context, job *belay.Submission) (stored func(belay.ExecutionID), err error) {
	if err := s.o.Setup.Admit(job.Input); err != nil {
		return nil, err
	}
	before, _, _ := httpapi.Reopened(ctx)
	if forges(job.Input, before) {
		return nil, errContinues
	}
	if err := checkKey(job.IdempotencyKey); err != nil {
		return nil, err
	}
	return s.backlog.place(ctx, s.o.QueueDepth)
}

// same reports whether a and b are the inputs of the same request. It ignores the timeout, and
// whether the answer is streamed.
func same(a, b json.RawMessage) bool {
	var p, q agent.Prompt
	if json.Unmarshal(a, &p) != nil || json.Unmarshal(b, &q) != nil {
		return false
	}
	if !sameValue(p.Metadata, q.Metadata) {
		return false
	}
	p.Metadata, q.Metadata = nil, nil
	p.Timeout, q.Timeout = 0, 0
	p.Stream, q.Stream = false, false
	left, err := json.Marshal(&p)
	right, err2 := json.Marshal(&q)
	return err == nil && err2 == nil && bytes.Equal(left, right)
}

// sameBudget reports whether a job with the budget is may have been submitted with the budget was: an
// operator may have raised it since.
func sameBudget(is, was *belay.Budget) bool {
	if is == nil || was == nil {
		return is == was
	}
	return was.Cost <= is.Cost
}

// sameValue reports whether two JSON texts have the same value, or both are empty.
func sameValue(a, b json.RawMessage) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	var values [2]any
	for i, text := range []json.RawMessage{a, b} {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if d.Decode(&values[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}
