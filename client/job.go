package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/belaydev/belay"
)

// Prompt is a task for the agent of a server.
type Prompt struct {
	// Text is the task, or the next message of a conversation.
	Text string
	// Repo is the repository to work on; empty for the server's repository. Ref is its branch, tag or
	// commit; empty for its HEAD. A reply has the repository of its conversation.
	Repo, Ref string
	// Labels are the labels of the job; a reply has those of its conversation.
	Labels map[string]string
	// MaxCost is the largest cost of the job over all its runs; nil for the server's limit, which it can only lower.
	MaxCost *MaxCost
	// Push asks the server to push the work to a branch when the agent has succeeded; nil for no push.
	Push *Push
	// Timeout is the time limit of the agent, from its start; 0 for the server's time limit.
	Timeout time.Duration
	// Key is the idempotency key: a repeated call with the same key returns the first job. If it is
	// empty, a call makes a key of its own.
	Key string
}

// MaxCost limits the cost of a job. A job that exceeds a limit ends with an error, and its changes are kept.
type MaxCost struct {
	// Tokens limits the tokens, and USD the money in US dollars; 0 for no limit.
	Tokens int64     `json:"tokens,omitempty"`
	USD    belay.USD `json:"usd,omitempty"`
}

// Push is a branch to which a server pushes the work of an agent.
type Push struct {
	// Branch is the name of the branch, in which {{job}} stands for the id of the job; empty for
	// belay/{{job}}.
	Branch string `json:"branch,omitempty"`
	// Message is the message of the commit with the uncommitted changes; empty for the first line of
	// the prompt.
	Message string `json:"message,omitempty"`
}

// Ask submits a prompt to the agent of the server, and returns the id of the job, which is the id of
// its execution. It returns CodeNotFound if the server has no agent.
func (c *Client) Ask(ctx context.Context, p Prompt) (belay.ExecutionID, error) {
	return c.prompt(ctx, "ask the agent", "/execute", p)
}

// Reply continues the conversation and the work of a job, which must have ended, and returns the id
// of the new job. It returns CodeConflict if the job has not ended or was continued before.
func (c *Client) Reply(ctx context.Context, job belay.ExecutionID, p Prompt) (belay.ExecutionID, error) {
	p.Repo, p.Ref, p.Labels = "", "", nil
	return c.prompt(ctx, "reply to job "+job.String(), "/jobs/"+job.String()+"/prompt", p)
}

// Answer answers the newest question of the agent that runs the job. It returns CodeConflict if the
// agent has not asked, the job has ended, or the question has another answer already.
func (c *Client) Answer(ctx context.Context, job belay.ExecutionID, text string) error {
	return c.AnswerAs(ctx, job, text, "")
}

// AnswerAs is Answer with the name of the person who answers. A server that requires API keys uses the name of the key
// instead.
func (c *Client) AnswerAs(ctx context.Context, job belay.ExecutionID, text, actor string) error {
	r := request{
		op: "answer job " + job.String(), method: http.MethodPost, path: "/jobs/" + job.String() + "/answer",
	}
	if c.set.key != "" {
		actor = "" // the server uses the name of the key; an older server refuses the field
	}
	var err error
	r.body, err = body(r.op, struct {
		Answer string `json:"answer"`
		Actor  string `json:"actor,omitempty"`
	}{text, actor})
	if err != nil {
		return err
	}
	return c.retry(ctx, &r)
}

func (c *Client) prompt(ctx context.Context, op, path string, p Prompt) (belay.ExecutionID, error) {
	if p.Key == "" {
		p.Key = belay.OpID(c.set.ids()).String()
	}
	var got struct {
		Job belay.ExecutionID `json:"job_id"`
	}
	r := request{
		op: op, method: http.MethodPost, path: path, header: http.Header{"Idempotency-Key": {p.Key}}, reply: &got,
	}
	var err error
	r.body, err = body(r.op, struct {
		Prompt  string            `json:"prompt"`
		Repo    string            `json:"repo,omitempty"`
		Ref     string            `json:"ref,omitempty"`
		Labels  map[string]string `json:"labels,omitempty"`
		MaxCost *MaxCost          `json:"max_cost,omitempty"`
		Push    *Push             `json:"push,omitempty"`
		Timeout json.RawMessage   `json:"timeout_seconds,omitempty"`
	}{p.Text, p.Repo, p.Ref, p.Labels, p.MaxCost, p.Push, timeoutOf(p.Timeout)})
	if err != nil {
		return got.Job, err
	}
	err = c.retry(ctx, &r)
	return got.Job, err
}

// timeoutOf returns a duration as a JSON number of seconds; nothing for 0.
func timeoutOf(d time.Duration) json.RawMessage {
	if d == 0 {
		return nil
	}
	raw, err := json.Marshal(d.Seconds())
	if err != nil {
		return nil // cannot happen, because the number is finite
	}
	return raw
}
