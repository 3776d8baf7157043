package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// Submit accepts executions; all of a call are usually one commit.
func (e *Engine) Submit(ctx context.Context, s ...belay.Submission) ([]belay.Submitted, error) {
	calls := make([]*call, len(s))
	out := make([]belay.Submitted, len(s))
	for i := range s {
		if s[i].ID.IsZero() {
			s[i].ID = belay.ExecutionID(e.opt.IDs())
		}
		calls[i] = e.committer.send(&machine.Submit{Submission: s[i]})
	}
	for i, k := range calls {
		r, err := e.await(ctx, k)
		out[i] = belay.Submitted{ID: r.ID, Replayed: r.Replayed, Err: err}
		if err != nil {
			out[i].ID = s[i].ID
		}
	}
	return out, nil
}

// Control carries out an operator's action.
func (e *Engine) Control(ctx context.Context, c belay.Control) (belay.Execution, error) {
	if c.Action == belay.ActionFork && c.Fork.IsZero() {
		c.Fork = belay.ExecutionID(e.opt.IDs())
	}
	if _, err := e.do(ctx, &machine.Act{Control: c}); err != nil {
		return belay.Execution{}, err
	}
	if c.Action == belay.ActionFork {
		return e.Execution(ctx, c.Fork)
	}
	return e.Execution(ctx, c.Execution)
}

// Signal delivers a signal.
func (e *Engine) Signal(ctx context.Context, s belay.SignalRequest) error {
	_, err := e.do(ctx, &machine.Deliver{SignalRequest: s})
	return err
}

// Execution reads one execution.
func (e *Engine) Execution(ctx context.Context, id belay.ExecutionID) (belay.Execution, error) {
	rec, err := e.store.Read(ctx, store.Read{Execution: id, Spec: true, Run: true, Data: true})
	if err != nil {
		return belay.Execution{}, err
	}
	return machine.View(rec), nil
}

// Executions lists executions, newest first.
func (e *Engine) Executions(ctx context.Context, f belay.Filter) (belay.Page, error) {
	q := store.List{
		States: f.States, Workflow: f.Workflow, Queue: f.Queue, Key: f.Key, Parent: f.Parent, Children: f.Children,
		Labels: f.Labels, Limit: f.Limit,
	}
	if q.Limit <= 0 {
		q.Limit = 100
	}
	q.Limit = min(q.Limit, 1000)
	if f.Cursor != "" {
		before, err := belay.ParseExecutionID(f.Cursor)
		if err != nil {
			return belay.Page{}, fmt.Errorf("read the cursor: %w", err)
		}
		q.Before = before
	}
	records, err := e.store.List(ctx, q)
	if err != nil {
		return belay.Page{}, err
	}
	page := belay.Page{Executions: make([]belay.Execution, len(records))}
	for i, r := range records {
		page.Executions[i] = machine.View(r)
	}
	if len(records) == q.Limit {
		page.Next = records[len(records)-1].Execution.ID.String()
	}
	return page, nil
}

// Events reads history, waiting for it if asked to.
func (e *Engine) Events(ctx context.Context, q belay.EventQuery) ([]belay.Event, error) {
	if q.Limit <= 0 || q.Limit > 1000 {
		q.Limit = 1000
	}
	changed, done := e.hub.watch(q.Execution)
	defer done()
	poll := time.NewTicker(e.opt.SlowPoll) // what another server wrote is found late, never missed
	defer poll.Stop()
	over := time.NewTimer(q.Wait)
	defer over.Stop()
	for {
		rec, err := e.store.Read(ctx, store.Read{
			Execution: q.Execution, History: true, After: q.After, Limit: q.Limit, Data: q.Data,
		})
		if err != nil {
			return nil, err
		}
		if events := machine.Events(rec, q.After, q.Limit); len(events) > 0 || q.Wait <= 0 {
			return events, nil
		}
		select {
		case <-changed:
		case <-poll.C:
		case <-over.C:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-e.ctx.Done():
			return nil, errClosed
		}
	}
}

// Chunks reads a log or artifact.
func (e *Engine) Chunks(ctx context.Context, q belay.ChunkQuery) ([]belay.StoredChunk, error) {
	if q.Limit <= 0 {
		q.Limit = 64
	}
	q.Limit = min(q.Limit, 256)
	chunks, err := e.store.Chunks(ctx, q)
	if err != nil {
		return nil, err
	}
	out := make([]belay.StoredChunk, len(chunks))
	for i, c := range chunks {
		out[i] = belay.StoredChunk{N: c.N, Token: c.Token, At: c.At.Time(), Data: c.Data}
	}
	return out, nil
}

// Workers lists the sessions.
func (e *Engine) Workers(ctx context.Context) ([]belay.Worker, error) {
	rows, err := e.store.Workers(ctx, 1000)
	if err != nil {
		return nil, err
	}
	out := make([]belay.Worker, len(rows))
	for i, w := range rows {
		out[i] = workerView(w)
	}
	return out, nil
}

func workerView(w store.WorkerRow) belay.Worker {
	return belay.Worker{
		WorkerSpec: w.Spec, State: w.State, OpenedAt: w.OpenedAt.Time(), HeartbeatAt: w.HeartbeatAt.Time(),
		ExpiresAt: w.ExpiresAt.Time(), EndedAt: w.EndedAt.Time(), EndReason: w.EndReason, Running: w.Running,
	}
}
