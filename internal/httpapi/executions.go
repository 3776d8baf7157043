package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// at is the path of a request about one execution.
type at struct {
	ID belay.ExecutionID `path:"id"`
}

// executionPath is the path of an execution.
func executionPath(id belay.ExecutionID) string { return "/v1/executions/" + id.String() }

// executionReply is the answer of the routes that return an execution.
type executionReply struct {
	Status     int
	Location   string `header:"Location"`
	Replayed   string `header:"Idempotency-Replayed" doc:"true, if the request repeats one that was carried out before."`
	Preference string `header:"Preference-Applied"`
	Body       belay.Execution
}

// submitReply is the answer to a submission.
type submitReply struct {
	Status     int
	Location   string `header:"Location"`
	Replayed   string `header:"Idempotency-Replayed" doc:"true, if the request repeats one that was carried out before."`
	Preference string `header:"Preference-Applied"`
	Warning    string `header:"Belay-Warning" doc:"The version of the stored document is deprecated."`
	Body       belay.Execution
}

type submitRequest struct {
	Key    string `header:"Idempotency-Key" maxLength:"200" doc:"A repeat finds the first execution of the same workflow and key."`
	Prefer string `header:"Prefer" doc:"wait=30 answers when the execution has ended, or after 30 seconds; at most 60."`
	// Trace and State are for the OpenAPI document; see [Trace].
	Trace string `header:"traceparent" doc:"The trace of the submitter, as in W3C Trace Context; the field traceparent has priority. It is ignored if it is not valid."`
	State string `header:"tracestate" doc:"The tracestate that belongs to traceparent."`
	Body  wire.Submit
}

func (a *api) executions() {
	add(a, route{
		id: "submit", method: http.MethodPost, path: "/v1/executions", tag: "executions",
		summary: "Submit an execution",
		doc: "No worker needs to have the workflow yet. 200 says that the execution was stored before, " +
			"under its id or Idempotency-Key. A submission with when_full replace cancels other executions, so that " +
			"its key also needs the scope operate.",
		example: `{"workflow": "build", "input": {"commit": "3f2c1e"}, "labels": {"team": "web"}, "timeout": "15m"}`,
		scopes:  []belay.Scope{belay.ScopeSubmit}, status: http.StatusCreated, also: []int{http.StatusOK}, body: true,
		wait:   true,
		limit:  wire.MaxBody + belay.MaxTriggerPayload,
		errors: []int{http.StatusConflict, http.StatusPreconditionFailed},
	}, a.submit)
	add(a, route{
		id: "listExecutions", method: http.MethodGet, path: "/v1/executions", tag: "executions",
		summary: "List executions, newest first",
		doc:     "Only roots, unless the query has children, parent or id.",
		scopes:  []belay.Scope{belay.ScopeRead}, lists: []string{"state", "label", "id"},
	}, a.list)
	add(a, route{
		id: "getExecution", method: http.MethodGet, path: "/v1/executions/{id}", tag: "executions",
		summary: "Read an execution, or wait for its end",
		doc: "The answer has the trigger_payload, the newest action of a person or program (modified_by, modified_at) " +
			"and the metrics. With Prefer: return=minimal these are left out, and with Prefer: wait also input, labels, " +
			"created_by and policy may be.",
		scopes: []belay.Scope{belay.ScopeRead}, wait: true, tagged: true, also: []int{http.StatusNotModified},
	}, a.execution, describeTag)
	add(a, route{
		id: "explain", method: http.MethodGet, path: "/v1/executions/{id}/explain", tag: "executions",
		summary: "Explain in sentences why an execution is in its state", scopes: []belay.Scope{belay.ScopeRead},
	}, func(ctx context.Context, in *at) (*struct{ Body belay.Explanation }, error) {
		e, err := a.b.Explain(ctx, in.ID)
		return &struct{ Body belay.Explanation }{e}, err
	})
	add(a, route{
		id: "signal", method: http.MethodPost, path: "/v1/executions/{id}/signal", tag: "executions",
		summary: "Deliver a signal",
		doc:     "The server answers when the signal is stored. The signal stays stored until the execution consumes it.",
		example: `{"name": "approved", "payload": {"by": "ada"}}`,
		scopes:  []belay.Scope{belay.ScopeSubmit}, status: http.StatusAccepted, body: true,
		errors: []int{http.StatusConflict},
	}, a.signal)
	add(a, route{
		id: "listSignals", method: http.MethodGet, path: "/v1/executions/{id}/signals", tag: "runs",
		summary: "Read the signals that no checkpoint has consumed",
		doc: "The first signals, up to some megabytes. Repeat the request with after set to the last seq until it " +
			"answers no signal.", scopes: []belay.Scope{belay.ScopeWorker, belay.ScopeRead},
	}, a.signals)
}

func (a *api) submit(ctx context.Context, in *submitRequest) (*submitReply, error) {
	wait, err := preferredWait(in.Prefer)
	if err != nil {
		return nil, err
	}
	if in.Key != "" {
		if in.Body.IdempotencyKey != "" && in.Body.IdempotencyKey != in.Key {
			return nil, malformed("the header Idempotency-Key and the field idempotency_key differ; send one")
		}
		in.Body.IdempotencyKey = in.Key
	}
	if in.Body.Parent != nil {
		if err := callerOf(ctx).need(belay.ScopeWorker); err != nil {
			return nil, err
		}
	}
	if err := mayReplace(callerOf(ctx), &in.Body); err != nil {
		return nil, err
	}
	s, err := in.Body.Submission()
	if err != nil {
		return nil, err
	}
	s.Actor = callerOf(ctx).actor(s.Actor)
	if s.Trace == (belay.Trace{}) {
		s.Trace = Trace(ctx)
	}
	answers, err := a.b.Submit(ctx, s)
	if err != nil {
		return nil, err
	}
	got := answers[0]
	if got.Err != nil {
		return nil, got.Err
	}
	in.Body.Input, s.Input = nil, nil
	releaseBody(ctx)
	x, err := a.awaited(ctx, got.ID, wait)
	if err != nil {
		return nil, err
	}
	out := &submitReply{
		Status: http.StatusCreated, Location: executionPath(got.ID), Preference: x.Preference, Warning: got.Warning,
		Body: x.Body,
	}
	if got.Replayed {
		out.Status, out.Replayed = http.StatusOK, "true"
	}
	return out, nil
}

// mayReplace refuses a submission that would cancel other executions, unless the caller has the
// right to cancel executions.
func mayReplace(who caller, s *wire.Submit) error {
	if l := s.Concurrency; l != nil && l.WhenFull == belay.ReplaceWhenFull {
		return who.need(belay.ScopeOperate)
	}
	return nil
}

// awaited reads an execution. If wait is above 0, as the header Prefer requests, awaited first
// waits for the end of the execution, but no longer than wait.
func (a *api) awaited(ctx context.Context, id belay.ExecutionID, wait wait) (*executionReply, error) {
	if wait.Duration == 0 {
		x, err := a.b.Execution(ctx, id)
		return &executionReply{Status: http.StatusOK, Body: x}, err
	}
	waiting, done := a.waiting(ctx)
	defer done()
	x, err := a.b.Await(waiting, id, wait.Duration)
	if err != nil && stopped(waiting) {
		x, err = a.b.Execution(ctx, id)
	}
	return &executionReply{Status: http.StatusOK, Preference: wait.applied(), Body: x}, err
}

type getRequest struct {
	ID     belay.ExecutionID `path:"id"`
	Have   string            `header:"If-None-Match" doc:"The ETag of an answer that the caller has; the server answers 304 if the answer is still the same."`
	Prefer string            `header:"Prefer" doc:"wait=30 answers when the execution has ended, or after 30 seconds; at most 60. return=minimal leaves out the metrics and other parts that the server would have to compute."`
}

// detailReply is the answer to a request that reads one execution.
type detailReply struct {
	Preference string `header:"Preference-Applied"`
	Body       belay.ExecutionDetail
}

func (a *api) execution(ctx context.Context, in *getRequest) (*detailReply, error) {
	wait, err := preferredWait(in.Prefer)
	if err != nil {
		return nil, err
	}
	least := prefersMinimal(in.Prefer)
	if wait.Duration == 0 && !least {
		x, err := a.b.Detail(ctx, in.ID)
		return &detailReply{Body: x}, err
	}
	r, err := a.awaited(ctx, in.ID, wait)
	if err != nil {
		return nil, err
	}
	if wait.Duration == 0 {
		r.Preference = minimal
	}
	return &detailReply{r.Preference, belay.ExecutionDetail{Execution: r.Body}}, nil
}

type listRequest struct {
	States   []string          `query:"state,explode" enum:"pending,scheduled,running,waiting,paused,succeeded,failed,cancelled" doc:"Only these states; may be repeated."`
	Workflow string            `query:"workflow" maxLength:"200"`
	Queue    string            `query:"queue" maxLength:"200"`
	Key      string            `query:"key" maxLength:"200" doc:"The idempotency key."`
	Parent   belay.ExecutionID `query:"parent" doc:"The children of this execution."`
	Children bool              `query:"children" doc:"Roots, and also the children of all executions."`
	Labels   []string          `query:"label,explode" doc:"name=value or name:value; may be repeated: an execution must have all of them."`
	Error    string            `query:"error" maxLength:"200" doc:"Only executions whose error contains this text, at most 200 bytes. The letters A to Z are equal to a to z."`
	Count    bool              `query:"count" doc:"Adds counts by state. It has no effect beside key and id."`
	IDs      []string          `query:"id,explode" maxItems:"200" doc:"Only the executions with these ids; may be repeated, 200 times at most."`
	Cursor   string            `query:"cursor" maxLength:"200" doc:"The field next of the previous page."`
	Limit    int               `query:"limit" minimum:"1" maximum:"1000" doc:"100, unless said otherwise."`
	Outputs  int               `query:"outputs" minimum:"0" maximum:"4096" doc:"Adds outputs of at most so many bytes, up to 4096. Without it, a list has no outputs."`
}

func (a *api) list(ctx context.Context, in *listRequest) (*struct{ Body belay.Page }, error) {
	labels, err := labelsOf(in.Labels)
	if err != nil {
		return nil, err
	}
	states := make([]belay.State, len(in.States))
	for i, word := range in.States {
		if err := states[i].UnmarshalText([]byte(word)); err != nil {
			return nil, err
		}
	}
	ids := make([]belay.ExecutionID, len(in.IDs))
	for i, text := range in.IDs {
		if ids[i], err = belay.ParseExecutionID(text); err != nil {
			return nil, err
		}
	}
	page, err := a.b.Executions(ctx, belay.Filter{
		IDs: ids, Outputs: in.Outputs,
		States: states, Workflow: in.Workflow, Queue: in.Queue, Key: in.Key, Parent: in.Parent, Children: in.Children,
		Labels: labels, Error: in.Error, Count: in.Count, Cursor: in.Cursor, Limit: in.Limit,
	})
	if page.Executions == nil {
		page.Executions = []belay.Execution{}
	}
	return &struct{ Body belay.Page }{page}, err
}

// labelsOf reads labels in the form name=value, or name:value if there is no =.
func labelsOf(list []string) (map[string]string, error) {
	if len(list) > belay.MaxLabels {
		return nil, malformed(fmt.Sprintf("%d labels; at most %d", len(list), belay.MaxLabels))
	}
	var labels map[string]string
	for _, l := range list {
		name, value, ok := strings.Cut(l, "=")
		if !ok {
			name, value, ok = strings.Cut(l, ":")
		}
		if !ok || name == "" {
			return nil, malformed("a label must have the form name=value")
		}
		if labels == nil {
			labels = make(map[string]string, len(list))
		}
		if old, twice := labels[name]; twice && old != value {
			return nil, malformed(fmt.Sprintf("the label %q is asked for with two values", short(name)))
		}
		labels[name] = value
	}
	return labels, nil
}

type signalRequest struct {
	ID   belay.ExecutionID `path:"id"`
	Key  string            `header:"Idempotency-Key" maxLength:"200" doc:"Names the delivery: a repeat with the same key does nothing more."`
	Body wire.Deliver
}

type signalledReply struct {
	Replayed string `header:"Idempotency-Replayed" doc:"true, if the signal was delivered before."`
}

func (a *api) signal(ctx context.Context, in *signalRequest) (*signalledReply, error) {
	ctx, replayed := belay.WithReplay(ctx)
	err := a.b.Signal(ctx, belay.SignalRequest{
		Execution: in.ID, Name: in.Body.Name, Payload: in.Body.Payload, Actor: callerOf(ctx).actor(in.Body.Actor),
		Op: wire.OpOf(in.Key),
	})
	return &signalledReply{yes(replayed)}, err
}

type signalsRequest struct {
	ID    belay.ExecutionID `path:"id"`
	After int64             `query:"after" minimum:"0" doc:"Only signals with a higher seq."`
}

func (a *api) signals(ctx context.Context, in *signalsRequest) (*struct{ Body wire.Signals }, error) {
	list, err := a.b.Signals(ctx, belay.SignalQuery{Execution: in.ID, After: in.After})
	if list == nil {
		list = []belay.Signal{}
	}
	return &struct{ Body wire.Signals }{wire.Signals{Signals: list}}, err
}
