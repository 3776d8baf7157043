package httpapi

import (
	"context"
	"net/http"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

type actRequest struct {
	ID   belay.ExecutionID `path:"id"`
	Key  string            `header:"Idempotency-Key" maxLength:"200" doc:"Names the action: a repeat with the same key does nothing more."`
	Body *wire.Act
}

// actions adds one route for each action of an operator.
func (a *api) actions() {
	for _, act := range []struct {
		action       belay.Action
		summary, doc string
	}{
		{belay.ActionCancel, "Cancel an execution",
			"A pending or waiting execution is cancelled at once; a running one may end by itself within the grace."},
		{belay.ActionPause, "Pause an execution",
			"The owner of a running execution gives it back at the next safe point."},
		{belay.ActionResume, "Continue a paused execution", ""},
		{belay.ActionRetry, "Run a failed or cancelled execution again",
			"Finished steps keep their results: all of them, or with from those before the named step. With another " +
				"input the action is a requeue."},
		{belay.ActionRequeue, "Run a failed or cancelled execution again with another input",
			"All steps run again."},
		{belay.ActionFork, "Begin a new execution from a step of this one",
			"The new execution begins with the results of this one: all of them, or with at those before the named " +
				"step. It has no signals. The header Location is its path."},
		{belay.ActionBudget, "Give an execution another budget",
			"If the cost is below the new budget, the execution and its descendants that were paused because the " +
				"budget was spent continue. 409: the execution has ended, or is a child (its root has the budget)."},
		{belay.ActionQuarantine, "Give an execution up",
			"It fails at once, with an open dead letter of the reason manual. The owner's next write is refused."},
		{belay.ActionPreempt, "Ask the owner to yield", "The owner gives the execution back at the next safe point."},
	} {
		rt := route{
			id: string(act.action), method: http.MethodPost, path: "/v1/executions/{id}/" + string(act.action),
			tag:     "actions",
			summary: act.summary, doc: act.doc, scopes: []belay.Scope{belay.ScopeOperate}, body: true,
			errors: []int{http.StatusConflict},
		}
		if act.action == belay.ActionFork {
			rt.status = http.StatusCreated
		}
		add(a, rt, func(ctx context.Context, in *actRequest) (*executionReply, error) {
			return a.act(ctx, act.action, in)
		})
	}
	add(a, route{
		id: "deleteExecution", method: http.MethodDelete, path: "/v1/executions/{id}", tag: "actions",
		summary: "Delete an ended execution, with its children",
		doc: "The answer contains the deleted execution without its output. The audit keeps the actor and the reason. 409: the " +
			"execution or one of its children has not ended, the execution is a child (delete its root instead), or its " +
			"dead letter is open. For a day, a submission with the same idempotency key starts no execution. If the " +
			"tree is very large, Belay deletes the rest of it after the answer.",
		scopes: []belay.Scope{belay.ScopeOperate}, errors: []int{http.StatusConflict},
	}, a.deleteExecution)
	add(a, route{
		id: "steal", method: http.MethodPost, path: "/v1/executions/{id}/lock/steal", tag: "owners",
		summary: "Take an execution from its owner",
		doc:     "The owner's next write is refused. The history shows the reason.",
		example: `{"reason": "its owner hangs"}`, scopes: []belay.Scope{belay.ScopeOperate}, body: true,
		errors: []int{http.StatusConflict},
	}, a.steal)
}

func (a *api) act(ctx context.Context, action belay.Action, in *actRequest) (*executionReply, error) {
	var body wire.Act
	if in.Body != nil {
		body = *in.Body
	}
	grace, err := body.Grant()
	if err != nil {
		return nil, err
	}
	c := belay.Control{
		Execution: in.ID, Action: action, Actor: callerOf(ctx).actor(body.Actor), Reason: body.Reason,
		Op:    wire.OpOf(in.Key),
		Grace: grace, Input: body.Input, From: body.From, At: body.At, UpTo: body.UpTo, Fork: body.Fork,
		InputPatch: body.InputPatch, Generation: body.Generation, Budget: body.Budget, KeepResults: body.KeepResults,
	}
	if action == belay.ActionRetry && len(body.Input)+len(body.InputPatch) > 0 {
		c.Action = belay.ActionRequeue
	}
	ctx, replayed := belay.WithReplay(ctx)
	x, err := a.b.Control(ctx, c)
	out := &executionReply{Status: http.StatusOK, Replayed: yes(replayed), Body: x}
	if action == belay.ActionFork {
		out.Status, out.Location = http.StatusCreated, executionPath(x.ID)
	}
	return out, err
}

type deleteRequest struct {
	ID     belay.ExecutionID `path:"id"`
	Key    string            `header:"Idempotency-Key" maxLength:"200" doc:"Names the action, for the audit."`
	Reason string            `query:"reason" maxLength:"200" doc:"The reason, which the audit keeps."`
	Actor  string            `query:"actor" maxLength:"200" doc:"The name of the actor, if the request needs no key."`
}

func (a *api) deleteExecution(ctx context.Context, in *deleteRequest) (*executionReply, error) {
	x, err := a.b.Control(ctx, belay.Control{
		Execution: in.ID, Action: belay.ActionDelete, Actor: callerOf(ctx).actor(in.Actor), Reason: in.Reason,
		Op: wire.OpOf(in.Key),
	})
	return &executionReply{Status: http.StatusOK, Body: x}, err
}

type stealRequest struct {
	ID   belay.ExecutionID `path:"id"`
	Key  string            `header:"Idempotency-Key" maxLength:"200" doc:"Names the action: a repeat with the same key does nothing more."`
	Body wire.Steal
}

func (a *api) steal(ctx context.Context, in *stealRequest) (*executionReply, error) {
	ctx, replayed := belay.WithReplay(ctx)
	x, err := a.b.Control(ctx, belay.Control{
		Execution: in.ID, Action: belay.ActionSteal, Actor: callerOf(ctx).actor(in.Body.Actor), Reason: in.Body.Reason,
		Op: wire.OpOf(in.Key),
	})
	return &executionReply{Status: http.StatusOK, Replayed: yes(replayed), Body: x}, err
}
