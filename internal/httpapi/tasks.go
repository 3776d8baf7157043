package httpapi

import (
	"context"
	"net/http"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// Documents shows the tasks of executions of documents, and repairs these executions.
type Documents interface {
	Tasks(ctx context.Context, q belay.TaskQuery) (belay.TaskPage, error)
	Repair(ctx context.Context, r belay.Repair) (belay.Execution, error)
}

// undocumented is the Documents of a process that has none.
type undocumented struct{}

var errUndocumented = &belay.Error{
	Code: belay.CodeInvalid, Message: "this process does not know documents",
}

func (undocumented) Tasks(context.Context, belay.TaskQuery) (belay.TaskPage, error) {
	return belay.TaskPage{}, errUndocumented
}

func (undocumented) Repair(context.Context, belay.Repair) (belay.Execution, error) {
	return belay.Execution{}, errUndocumented
}

type tasksRequest struct {
	ID      belay.ExecutionID `path:"id"`
	Task    string            `query:"task" maxLength:"60" doc:"Only this task or, if it is a foreach, its items."`
	State   belay.TaskState   `query:"state" enum:"pending,running,waiting,succeeded,failed,skipped,blocked,cancelled" doc:"Only tasks, or items, in this state."`
	Cursor  string            `query:"cursor" maxLength:"20" doc:"The field next of the previous page."`
	Limit   int               `query:"limit" minimum:"1" maximum:"1000" doc:"100, unless said otherwise."`
	Outputs bool              `query:"outputs" doc:"With outputs of at most 4096 bytes; the child execution has a larger output."`
}

type repairRequest struct {
	ID   belay.ExecutionID `path:"id"`
	Key  string            `header:"Idempotency-Key" maxLength:"200" doc:"Names the repair: a repeat with the same key does nothing more."`
	Body wire.Repair
}

// tasks adds the routes for executions of documents.
func (a *api) tasks() {
	add(a, route{
		id: "listTasks", method: http.MethodGet, path: "/v1/executions/{id}/tasks", tag: "documents",
		summary: "List the tasks of an execution of a document, in the order of the document",
		doc: "With task, the items of a foreach, in the order of their numbers. A page may have fewer tasks than the " +
			"limit, or none, although next is set. 422: the execution does not run a document.",
		scopes: []belay.Scope{belay.ScopeRead}, errors: []int{http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *tasksRequest) (*struct{ Body belay.TaskPage }, error) {
		page, err := a.o.Documents.Tasks(ctx, belay.TaskQuery{
			Execution: in.ID, Task: in.Task, State: in.State, Cursor: in.Cursor, Limit: in.Limit, Outputs: in.Outputs,
		})
		return &struct{ Body belay.TaskPage }{page}, err
	})
	add(a, route{
		id: "repair", method: http.MethodPost, path: "/v1/executions/{id}/repair", tag: "documents",
		summary: "Run a failed or cancelled execution of a document again, from some tasks on or without some tasks",
		doc: "Tasks that have succeeded do not run again, apart from the tasks of from and those that depend on them. A task " +
			"of skip does not run; it counts as succeeded with the given output. The history shows the actor, the reason " +
			"and the tasks. 409: the execution has not failed, or was reopened since.",
		example: `{"skip": [{"task": "upload", "output": {"url": "https://example.org/42"}}], "reason": "uploaded by hand"}`,
		scopes:  []belay.Scope{belay.ScopeOperate}, body: true,
		errors: []int{http.StatusConflict},
	}, a.repair)
}

func (a *api) repair(ctx context.Context, in *repairRequest) (*executionReply, error) {
	ctx, replayed := belay.WithReplay(ctx)
	x, err := a.o.Documents.Repair(ctx, belay.Repair{
		Execution: in.ID, From: in.Body.From, Skip: in.Body.Skip, Actor: callerOf(ctx).actor(in.Body.Actor),
		Reason: in.Body.Reason, Generation: in.Body.Generation, Op: wire.OpOf(in.Key),
	})
	return &executionReply{Status: http.StatusOK, Replayed: yes(replayed), Body: x}, err
}
