package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// Control carries out an action. It makes an operation id if the action has none.
func (c *Client) Control(ctx context.Context, a belay.Control) (belay.Execution, error) {
	if a.Op.IsZero() {
		a.Op = belay.OpID(c.set.ids())
	}
	var x belay.Execution
	r := request{op: string(a.Action) + " " + a.Execution.String(), method: http.MethodPost, reply: &x}
	if a.Action == belay.ActionSteal && a.Reason == "" {
		a.Reason = "no reason was given" // the HTTP API requires a reason
	}
	act := wire.Act{Reason: a.Reason, Actor: a.Actor, Grace: a.Grace, Input: a.Input, UpTo: a.UpTo, Fork: a.Fork,
		From: a.From, At: a.At, InputPatch: a.InputPatch, Generation: a.Generation, Budget: a.Budget,
		KeepResults: a.KeepResults}
	data, err := body(r.op, act)
	if err != nil {
		return x, err
	}
	r.path, r.body, r.header = executionPath(a.Execution)+"/"+route(a.Action), data, idempotent(a.Op)
	if a.Action == belay.ActionDelete {
		err = c.delete(ctx, &r, a)
		return x, err
	}
	err = c.retry(ctx, &r)
	return x, err
}

// delete sends the request that deletes an execution. If the answer to an earlier try was lost, and the
// server then finds no such execution, the earlier try has deleted it.
func (c *Client) delete(ctx context.Context, r *request, a belay.Control) error {
	r.method, r.path, r.body, r.query = http.MethodDelete, executionPath(a.Execution), nil, url.Values{}
	set(r.query, "reason", a.Reason)
	set(r.query, "actor", a.Actor)
	tries := 0
	return c.repeat(ctx, r.op, func() error {
		tries++
		err := c.once(ctx, r)
		if tries > 1 && belay.CodeOf(err) == belay.CodeNotFound {
			return nil
		}
		return err
	})
}

// route returns the last part of the URL path for an action.
func route(a belay.Action) string {
	if a == belay.ActionSteal {
		return "lock/steal"
	}
	return string(a)
}

// idempotent returns the header by which the server recognizes a repeated request.
func idempotent(op belay.OpID) http.Header {
	return http.Header{"Idempotency-Key": {op.String()}}
}

// Signal delivers a signal. It makes an operation id if the signal has none.
func (c *Client) Signal(ctx context.Context, s belay.SignalRequest) error {
	if s.Op.IsZero() {
		s.Op = belay.OpID(c.set.ids())
	}
	op := "signal " + s.Execution.String()
	if c.set.key != "" {
		s.Actor = "" // the server uses the name of the key; an older server refuses the field
	}
	w := wire.Signal{Execution: s.Execution, Name: s.Name, Payload: s.Payload, Actor: s.Actor, Op: s.Op}
	return c.repeat(ctx, op, func() error {
		_, err := c.batches.do(ctx, op, wire.Op{Signal: &w})
		return err
	})
}
