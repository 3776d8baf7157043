package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/retry"
	"github.com/belaydev/belay/internal/wire"
)

// Execution reads one execution.
func (c *Client) Execution(ctx context.Context, id belay.ExecutionID) (x belay.Execution, err error) {
	err = c.retry(ctx, &request{
		op: "read " + id.String(), method: http.MethodGet, path: executionPath(id), reply: &x, read: true,
		header: http.Header{"Prefer": {"return=minimal"}},
	})
	return x, err
}

// Detail reads one execution with its trigger payload, its newest action and its metrics. The metrics are
// nil if the server is of an older version that has none.
func (c *Client) Detail(ctx context.Context, id belay.ExecutionID) (belay.ExecutionDetail, error) {
	return get[belay.ExecutionDetail](ctx, c, "read "+id.String(), executionPath(id), nil)
}

// Await waits for the end of an execution. Concurrent Await calls of this Client share a request.
func (c *Client) Await(ctx context.Context, id belay.ExecutionID, wait time.Duration) (belay.Execution, error) {
	over := time.Now().Add(wait)
	for {
		began, asked := time.Now(), left(over)
		var x *belay.Execution
		err := c.repeat(ctx, "await "+id.String(), func() (err error) {
			if asked = left(over); asked > shortWait {
				x, err = c.awaits.do(ctx, id, asked)
				if !errors.Is(err, errUnsupported) {
					return err
				}
			}
			x, err = c.awaitOne(ctx, id, asked)
			return err
		})
		switch {
		case err != nil:
			return belay.Execution{}, err
		case x != nil && x.State.Terminal():
			return *x, nil
		case c.more(ctx, began, asked, over):
			continue
		case x == nil:
			return c.Execution(ctx, id)
		}
		return *x, nil
	}
}

// shortWait is the longest wait for which Await makes a request for this execution alone. Such a
// wait ends too soon to share a request with other waits.
const shortWait = time.Second

// awaitOne waits for the end of an execution in a request of its own.
func (c *Client) awaitOne(ctx context.Context, id belay.ExecutionID, wait time.Duration) (*belay.Execution, error) {
	x := new(belay.Execution)
	err := c.once(ctx, &request{
		op: "await " + id.String(), method: http.MethodGet, path: executionPath(id), reply: x, read: true,
		wait: wait, header: http.Header{"Prefer": {"wait=" + seconds(wait)}},
	})
	return x, err
}

// left returns how long one request may wait: the time until over, at most wire.MaxWait.
func left(over time.Time) time.Duration { return max(0, min(time.Until(over), wire.MaxWait)) }

// more reports whether a wait should go on with another request. If the server answered before the
// requested time, more sleeps first, so that a server that never waits does not cause a busy loop.
func (c *Client) more(ctx context.Context, began time.Time, asked time.Duration, over time.Time) bool {
	early := asked - time.Since(began)
	return left(over) > 0 && (early <= 0 || c.sleep(ctx, min(early, retry.Base)))
}

// seconds formats a wait for the header Prefer and for queries.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
}

// Executions lists executions.
func (c *Client) Executions(ctx context.Context, f belay.Filter) (belay.Page, error) {
	q := url.Values{}
	for _, s := range f.States {
		q.Add("state", s.String())
	}
	for k, v := range f.Labels {
		q.Add("label", k+"="+v)
	}
	set(q, "workflow", f.Workflow)
	set(q, "queue", f.Queue)
	set(q, "key", f.Key)
	set(q, "error", f.Error)
	set(q, "cursor", f.Cursor)
	if !f.Parent.IsZero() {
		q.Set("parent", f.Parent.String())
	}
	if f.Children {
		q.Set("children", "true")
	}
	for _, id := range f.IDs {
		q.Add("id", id.String())
	}
	if f.Count {
		q.Set("count", "true")
	}
	number(q, "limit", int64(f.Limit))
	number(q, "outputs", int64(f.Outputs))
	return get[belay.Page](ctx, c, "list executions", "/v1/executions", q)
}

func set(q url.Values, key, value string) {
	if value != "" {
		q.Set(key, value)
	}
}

func number(q url.Values, key string, n int64) {
	if n != 0 {
		q.Set(key, strconv.FormatInt(n, 10))
	}
}

// Events reads the history of an execution, as a long poll if q.Wait is set.
func (c *Client) Events(ctx context.Context, q belay.EventQuery) ([]belay.Event, error) {
	query := url.Values{}
	number(query, "after", q.After)
	number(query, "limit", int64(q.Limit))
	if q.Data {
		query.Set("data", "true")
	}
	over := time.Now().Add(q.Wait)
	for {
		began := time.Now()
		var reply wire.Events
		r := request{
			op: "history of " + q.Execution.String(), method: http.MethodGet, path: executionPath(q.Execution) +
				"/history",
			query: query, reply: &reply, read: true,
		}
		err := c.repeat(ctx, r.op, func() error {
			if r.wait = left(over); r.wait > 0 {
				query.Set("wait", seconds(r.wait))
			} else {
				query.Del("wait")
			}
			return c.once(ctx, &r)
		})
		if err != nil || len(reply.Events) > 0 || !c.more(ctx, began, r.wait, over) {
			return reply.Events, err
		}
	}
}

// Runs reads the runs (attempts) of an execution.
func (c *Client) Runs(ctx context.Context, id belay.ExecutionID) ([]belay.RunRecord, error) {
	reply, err := get[belay.RunPage](ctx, c, "runs of "+id.String(), "/v1/runs", url.Values{"execution": {id.String()}})
	return reply.Runs, err
}

// ListRuns lists the runs of all executions, the run that started last first.
func (c *Client) ListRuns(ctx context.Context, f belay.RunFilter) (belay.RunPage, error) {
	const op = "list runs"
	q := url.Values{}
	switch {
	case f.Running && f.Outcome != 0, f.Outcome > belay.OutcomeCancelled:
		return belay.RunPage{}, &belay.Error{
			Code: belay.CodeInvalid, Op: op, Message: "give one outcome, or Running for runs that have not ended",
		}
	case f.Running:
		q.Set("outcome", "running")
	case f.Outcome != 0:
		q.Set("outcome", f.Outcome.String())
	}
	if !f.Worker.IsZero() {
		q.Set("worker", f.Worker.String())
	}
	if err := checkTexts(op, f.Workflow); err != nil {
		return belay.RunPage{}, err
	}
	set(q, "workflow", f.Workflow)
	between(q, f.Since, f.Until)
	set(q, "cursor", f.Cursor)
	number(q, "limit", int64(min(max(f.Limit, 0), 1000)))
	return get[belay.RunPage](ctx, c, op, "/v1/runs", q)
}

// Explain gives the reason for the current state of an execution.
func (c *Client) Explain(ctx context.Context, id belay.ExecutionID) (belay.Explanation, error) {
	return get[belay.Explanation](ctx, c, "explain "+id.String(), executionPath(id)+"/explain", nil)
}

// Chunks reads a log or artifact.
func (c *Client) Chunks(ctx context.Context, q belay.ChunkQuery) ([]belay.StoredChunk, error) {
	query := url.Values{}
	number(query, "from", q.From)
	number(query, "limit", int64(q.Limit))
	path := executionPath(q.Execution) + "/logs/" + url.PathEscape(q.Name)
	reply, err := get[wire.Chunks](ctx, c, "read "+q.Name+" of "+q.Execution.String(), path, query)
	return reply.Chunks, err
}

// Workers lists the sessions.
func (c *Client) Workers(ctx context.Context) ([]belay.Worker, error) {
	reply, err := get[wire.Workers](ctx, c, "list workers", "/v1/workers", nil)
	return reply.Workers, err
}

// get makes a call that only reads.
func get[T any](ctx context.Context, c *Client, op, path string, q url.Values) (T, error) {
	var v T
	err := c.retry(ctx, &request{op: op, method: http.MethodGet, path: path, query: q, reply: &v, read: true})
	return v, err
}

func executionPath(id belay.ExecutionID) string { return "/v1/executions/" + id.String() }
