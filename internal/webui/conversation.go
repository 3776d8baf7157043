package webui

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/belaydev/belay"
)

// replying is the name of the action that continues the conversation of an agent.
const replying = "reply"

// conversation leads to the jobs before and after a job, and to the form of a reply.
type conversation struct {
	Earlier *exLink
	Later   *exLink
	Offers  []offer
}

// conversation finds the jobs before and after a job.
func (p *pages) conversation(ctx context.Context, e *belay.Execution, in *jobInput) (c conversation, err error) {
	if in.Continues != nil && !in.Continues.Job.IsZero() {
		earlier := linkTo(in.Continues.Job, shortID(in.Continues.Job))
		c.Earlier = &earlier
	}
	if p.options.Conversations == nil || !canBeContinued(e) {
		return c, nil
	}
	page, err := p.backend.Executions(ctx, belay.Filter{
		Workflow: e.Workflow, Key: p.options.Conversations.Key(e.ID), Children: true, Limit: 1,
	})
	switch {
	case err != nil:
	case len(page.Executions) > 0:
		x := &page.Executions[0]
		later := linkTo(x.ID, joined(shortID(x.ID), line(x.Labels["prompt"])))
		c.Later = &later
	case visitorOf(ctx).allows(belay.ScopeSubmit):
		c.Offers = []offer{{"/executions/" + e.ID.String() + "/" + replying, "Reply", false}}
	}
	return c, err
}

// canBeContinued reports whether a job of an agent has ended and has left work in a repository, which a reply needs.
func canBeContinued(e *belay.Execution) bool {
	var in jobInput
	var out jobOutput
	return e.State.Terminal() && e.Workflow == agentWorkflow && json.Unmarshal(e.Input, &in) == nil && in.Repo != "" &&
		json.Unmarshal(e.Output, &out) == nil && out.Commit != ""
}

// reply continues the conversation of a job, and returns the address of the page of the new job.
func (p *pages) reply(ctx context.Context, e *belay.Execution, message string, op belay.OpID) (string, error) {
	if p.options.Conversations == nil || e.Workflow != agentWorkflow {
		return "", nothingThere()
	}
	if strings.TrimSpace(message) == "" {
		return "", &belay.Error{Code: belay.CodeInvalid, Message: "the message is empty"}
	}
	id, err := p.options.Conversations.Reply(ctx, e, message, op.String())
	if err != nil {
		return "", err
	}
	return "/executions/" + id.String() + "/job", nil
}
