package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// Tasks reads a page of the tasks of an execution of a document, or of the items of a task. It returns CodeInvalid if
// the execution does not run a document.
func (c *Client) Tasks(ctx context.Context, q belay.TaskQuery) (belay.TaskPage, error) {
	query := url.Values{}
	set(query, "task", q.Task)
	set(query, "state", string(q.State))
	set(query, "cursor", q.Cursor)
	number(query, "limit", int64(min(max(q.Limit, 0), 1000)))
	if q.Outputs {
		query.Set("outputs", "true")
	}
	return get[belay.TaskPage](ctx, c, "tasks of "+q.Execution.String(), executionPath(q.Execution)+"/tasks", query)
}

// Repair makes a failed or cancelled execution of a document run again, from some tasks on or without some tasks. It
// makes an operation id if the repair has none. It returns CodeConflict if the execution is in another state or was
// reopened since, and CodeInvalid if the repair does not fit the document.
func (c *Client) Repair(ctx context.Context, p belay.Repair) (belay.Execution, error) {
	if p.Op.IsZero() {
		p.Op = belay.OpID(c.set.ids())
	}
	var x belay.Execution
	r := request{
		op: "repair " + p.Execution.String(), method: http.MethodPost, path: executionPath(p.Execution) + "/repair",
		header: idempotent(p.Op), reply: &x,
	}
	var err error
	r.body, err = body(r.op, wire.Repair{
		From: p.From, Skip: p.Skip, Reason: p.Reason, Actor: p.Actor, Generation: p.Generation,
	})
	if err != nil {
		return x, err
	}
	err = c.retry(ctx, &r)
	return x, err
}
