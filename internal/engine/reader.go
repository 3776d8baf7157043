package engine

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// Reader has the reading methods of a Backend. A Reader works without an engine in its process: it
// reads the rows that another process has committed, and polls the store for changes.
type Reader struct {
	store   store.Store
	hub     *hub
	poll    time.Duration // the longest delay until the Reader notices a write of another process
	ended   <-chan struct{}
	limited limitedLanes
	// statuses informs followers of changes; nil without an engine.
	statuses *statuses
}

// NewReader returns a Reader of a store that an engine in another process writes. The parameter poll
// is the interval at which the Reader looks for changes.
func NewReader(s store.Store, poll time.Duration) *Reader {
	return &Reader{store: s, hub: newHub(), poll: poll}
}

// Execution reads one execution.
func (r *Reader) Execution(ctx context.Context, id belay.ExecutionID) (belay.Execution, error) {
	rec, err := r.store.Read(ctx, store.Read{Execution: id, Spec: true, Run: true, Data: true})
	if err != nil {
		return belay.Execution{}, err
	}
	v := machine.View(rec)
	v.Current, err = r.current(ctx, rec.Execution)
	return v, err
}

// current reads the steps and waits that the present run of an execution is busy with, as its worker has reported
// them.
func (r *Reader) current(ctx context.Context, e *machine.Execution) ([]belay.StepRecord, error) {
	if e.State != belay.Running {
		return nil, nil
	}
	workers, err := r.store.Workers(ctx, store.WorkerQuery{IDs: []belay.WorkerID{e.Worker}, Current: true})
	if err != nil || len(workers) == 0 {
		return nil, err
	}
	return r.underway(ctx, e, workers[0].Worker)
}

// underway is current for an execution whose owner was read with its current steps. Steps that have been saved since
// the worker has reported them are left out.
func (r *Reader) underway(ctx context.Context, e *machine.Execution, owner *machine.Worker) ([]belay.StepRecord,
	error) {
	steps, seq := owner.CurrentSteps(belay.RunID{Execution: e.ID, Token: e.Token})
	if len(steps) == 0 || seq >= e.Seq {
		return steps, nil
	}
	rec, err := r.store.Read(ctx, store.Read{
		Execution: e.ID, History: true, After: max(seq, e.Seq-maxRecent), Limit: maxRecent,
	})
	if err != nil {
		return nil, err
	}
	return machine.Underway(steps, machine.Events(rec, seq, maxRecent)), nil
}

// Detail reads one execution with its trigger payload, its newest action and its metrics.
func (r *Reader) Detail(ctx context.Context, id belay.ExecutionID) (belay.ExecutionDetail, error) {
	rec, err := r.store.Read(ctx, store.Read{Execution: id, Spec: true, Run: true, Data: true, Detail: true})
	if err != nil {
		return belay.ExecutionDetail{}, err
	}
	v := machine.DetailView(rec)
	v.Current, err = r.current(ctx, rec.Execution)
	return v, err
}

// Await waits for the end of an execution.
func (r *Reader) Await(ctx context.Context, id belay.ExecutionID, wait time.Duration) (belay.Execution, error) {
	ended, done, open := r.hub.await(id)
	defer done()
	over := time.Now().Add(wait)
	timer := time.NewTimer(min(wait, r.poll))
	defer timer.Stop()
	for last := wait <= 0; ; last = !time.Now().Before(over) {
		if !open || last {
			x, err := r.Execution(ctx, id)
			if err != nil || x.State.Terminal() || last {
				return x, err
			}
			if err := r.interrupted(ctx); err != nil {
				return belay.Execution{}, err
			}
		}
		select {
		case x := <-ended:
			if x != nil {
				return *x, nil
			}
		case <-timer.C: // another process may have ended the execution
			select {
			case x := <-ended: // this process may have ended the execution during the same read
				if x != nil {
					return *x, nil
				}
			default:
			}
		case <-ctx.Done():
			return belay.Execution{}, context.Cause(ctx)
		case <-r.ended:
			return belay.Execution{}, errClosed
		}
		open = false
		timer.Reset(min(time.Until(over), r.poll))
	}
}

// scan is the maximum number of executions that one list reads. A list of rare executions among
// many old ones is read in parts.
const scan = 50_000

// maxIDs is the largest number of executions that a list names.
const maxIDs = 1000

// checkErrorText refuses a text that a store cannot search for.
func checkErrorText(text string) error {
	if len(text) > belay.MaxErrorText || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return &belay.Error{
			Code: belay.CodeInvalid, Op: "list", Message: fmt.Sprintf(
				"the text of the error must be UTF-8 without NUL characters, of at most %d bytes", belay.MaxErrorText),
		}
	}
	return nil
}

// Executions lists executions, newest first.
func (r *Reader) Executions(ctx context.Context, f belay.Filter) (belay.Page, error) {
	q := store.List{
		States: f.States, Workflow: f.Workflow, Queue: f.Queue, Key: f.Key, Parent: f.Parent, Children: f.Children,
		Labels: f.Labels, Error: f.Error, Limit: f.Limit, Scan: scan, IDs: f.IDs, Outputs: int64(f.Outputs),
	}
	if f.Count {
		q.Count = belay.MaxCounted
	}
	if err := checkErrorText(f.Error); err != nil {
		return belay.Page{}, err
	}
	if len(f.IDs) > maxIDs {
		return belay.Page{}, &belay.Error{
			Code: belay.CodeInvalid, Op: "list", Message: fmt.Sprintf("%d ids; at most %d", len(f.IDs), maxIDs),
		}
	}
	if len(f.IDs) > 0 {
		q.Children = true
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
	list, err := r.store.List(ctx, q)
	if err != nil {
		return belay.Page{}, err
	}
	page := belay.Page{Executions: make([]belay.Execution, len(list.Records))}
	for i, rec := range list.Records {
		page.Executions[i] = machine.View(rec)
	}
	if list.States != nil {
		page.Counts = &belay.StateCounts{States: list.States, More: list.Older}
	}
	switch {
	case len(list.Records) == q.Limit:
		page.Next = list.Records[len(list.Records)-1].Execution.ID.String()
	case !list.Last.IsZero():
		page.Next, page.SearchedUntil = list.Last.String(), list.At.Time()
	}
	return page, nil
}

// Events reads history. If the query has a Wait and there are no events yet, it waits for them.
func (r *Reader) Events(ctx context.Context, q belay.EventQuery) ([]belay.Event, error) {
	if q.Limit <= 0 || q.Limit > 1000 {
		q.Limit = 1000
	}
	changed, done := r.hub.watch(q.Execution)
	defer done()
	poll := time.NewTicker(r.poll)
	defer poll.Stop()
	over := time.NewTimer(q.Wait)
	defer over.Stop()
	for {
		rec, err := r.store.Read(ctx, store.Read{
			Execution: q.Execution, History: true, After: q.After, Limit: q.Limit, Data: q.Data,
		})
		if err != nil {
			return nil, err
		}
		if events := machine.Events(rec, q.After, q.Limit); len(events) > 0 || q.Wait <= 0 || isOver(over) {
			return events, nil
		}
		if err := r.interrupted(ctx); err != nil {
			return nil, err
		}
		select {
		case <-changed:
		case <-poll.C:
		case <-over.C:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-r.ended:
			return nil, errClosed
		}
	}
}

// interrupted returns the error with which a call must end without an answer, because its caller
// has cancelled the call or the engine stops. The error has priority over a result that the call has
// read at the same time.
func (r *Reader) interrupted(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.ended:
		return errClosed
	default:
		return nil
	}
}

// isOver reports whether the timer of a wait has fired. If the timer fires and the execution changes
// during the same read, the end of the wait has priority.
func isOver(t *time.Timer) bool {
	select {
	case <-t.C:
		return true
	default:
		return false
	}
}

// Chunks reads a log or artifact.
func (r *Reader) Chunks(ctx context.Context, q belay.ChunkQuery) ([]belay.StoredChunk, error) {
	if q.Limit <= 0 {
		q.Limit = 64
	}
	q.Limit = min(q.Limit, 256)
	chunks, err := r.store.Chunks(ctx, q)
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
func (r *Reader) Workers(ctx context.Context) ([]belay.Worker, error) {
	rows, err := r.store.Workers(ctx, store.WorkerQuery{Limit: 1000, Owned: true})
	if err != nil {
		return nil, err
	}
	out := make([]belay.Worker, len(rows))
	for i, w := range rows {
		out[i] = workerView(w)
	}
	return out, nil
}

// Living lists the sessions with these ids that have not ended.
func (r *Reader) Living(ctx context.Context, ids []belay.WorkerID) ([]belay.Worker, error) {
	rows, err := r.store.Workers(ctx, store.WorkerQuery{IDs: ids, Living: true})
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
	v := machine.WorkerView(w.Worker)
	v.Running = w.Running
	return v
}

// Counts counts rows, for reports and checks.
func (r *Reader) Counts(ctx context.Context) (store.Counts, error) { return r.store.Counts(ctx) }
