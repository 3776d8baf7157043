package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

type runsRequest struct {
	Execution belay.ExecutionID `query:"execution" doc:"Only the attempts at this execution, 200 at most, with their outputs. It goes with no other parameter."`
	Worker    belay.WorkerID    `query:"worker" doc:"Only runs of this worker."`
	Workflow  string            `query:"workflow" maxLength:"200" doc:"Only runs of executions of this workflow."`
	Outcome   string            `query:"outcome" enum:"running,succeeded,failed,timed_out,lost,suspended,preempted,released,cancelled" doc:"Only runs that ended in this way; running selects the runs that have not ended."`
	Since     time.Time         `query:"since" doc:"Only runs that started at this time or later, by the store's clock."`
	Until     time.Time         `query:"until" doc:"Only runs that started before this time, by the store's clock."`
	Cursor    string            `query:"cursor" maxLength:"100" doc:"The field next of the previous page."`
	Limit     int               `query:"limit" minimum:"1" maximum:"1000" doc:"100, unless said otherwise."`
}

func (in *runsRequest) filter() (belay.RunFilter, error) {
	f := belay.RunFilter{
		Worker: in.Worker, Workflow: in.Workflow, Running: in.Outcome == "running", Since: in.Since, Until: in.Until,
		Cursor: in.Cursor, Limit: in.Limit,
	}
	if in.Outcome == "" || f.Running {
		return f, nil
	}
	return f, f.Outcome.UnmarshalText([]byte(in.Outcome))
}

type runAt struct {
	ID belay.RunID `path:"id"`
}

// runRequest has the path, headers and body that every write of a run has.
type runRequest[B any] struct {
	ID    belay.RunID  `path:"id"`
	Lease wire.LeaseID `header:"Lease-Id" doc:"The field lease_id of the claim. Without the header the status is 428."`
	Token belay.Token  `header:"Lease-Token" doc:"The token of the run; it may be left out."`
	Key   string       `header:"Idempotency-Key" maxLength:"200" doc:"Names the write: a repeat with the same key is answered like the first request."`
	Body  *B
}

// beatRequest is a heartbeat, which has no body.
type beatRequest struct {
	ID    belay.RunID  `path:"id"`
	Lease wire.LeaseID `header:"Lease-Id" doc:"The field lease_id of the claim. Without the header the status is 428."`
	Token belay.Token  `header:"Lease-Token" doc:"The token of the run; it may be left out."`
}

func (a *api) runs() {
	read := []belay.Scope{belay.ScopeRead}
	add(a, route{
		id: "listRuns", method: http.MethodGet, path: "/v1/runs", tag: "runs",
		summary: "List runs, the run that started last first",
		doc: "Runs of all executions that have started, without outputs and stacks; or the attempts at one execution. A " +
			"page may have fewer runs than the limit, or none, although further pages have some: the server examines " +
			"10,000 for one page at most.",
		scopes: read, errors: []int{http.StatusNotFound, http.StatusUnprocessableEntity},
	}, a.listRuns)
	add(a, route{
		id: "getRun", method: http.MethodGet, path: "/v1/runs/{id}", tag: "runs", summary: "Read one attempt",
		scopes: read,
	}, a.run)
	add(a, a.runRoute("heartbeat", "Renew the session that owns a run", false),
		func(ctx context.Context, in *beatRequest) (*renewalReply, error) {
			l, err := ofRun(in.ID, in.Lease, in.Token)
			if err != nil {
				return nil, err
			}
			return a.renew(ctx, l)
		})
	add(a, a.runRoute("checkpoint", "Save a checkpoint", true), func(ctx context.Context,
		in *runRequest[wire.Progress]) (*savedReply, error) {
		l, err := ofRun(in.ID, in.Lease, in.Token)
		if err != nil {
			return nil, err
		}
		return a.save(ctx, l, in.Key, orEmpty(in.Body))
	})
	add(a, a.runRoute("complete", "End a run with success", true), settling(a, func(w *wire.Complete) belay.Settlement {
		return belay.Settlement{Outcome: belay.OutcomeSucceeded, Output: w.Output, CostTokens: w.CostTokens,
			Steps: w.Reports()}
	}))
	add(a, a.runRoute("fail", "End a run with a failure; the execution's policy says what follows", true), a.fail)
	add(a, a.runRoute("suspend", "Give a run back until its wait is over", true),
		settling(a, func(w *wire.Suspend) belay.Settlement {
			return belay.Settlement{
				Outcome: belay.OutcomeSuspended, Wait: wire.Duration(w.WaitMS), WaitText: w.WaitText,
				SignalSeen: w.SignalSeen, CostTokens: w.CostTokens, Steps: w.Reports(),
			}
		}))
	target := a.runRoute("target", "Ask whether a run may call a target, or report how the call ended", true)
	target.id, target.example = "callTarget", `{"target": "payments:charge", "step": "charge the card"}`
	target.doc = "A target is an external service with a circuit breaker. Before a call, the answer says whether the " +
		"breaker lets the call through. If it does not, end the run with fail and the class circuit_open, and name the " +
		"target in the error: the execution then waits until the target is called again, and no attempt is charged."
	add(a, target, a.callTarget)
}

func (a *api) listRuns(ctx context.Context, in *runsRequest) (*struct{ Body belay.RunPage }, error) {
	page := belay.RunPage{Runs: []belay.RunRecord{}}
	if !in.Execution.IsZero() {
		if *in != (runsRequest{Execution: in.Execution}) {
			return nil, malformed("the parameter execution goes with no other parameter")
		}
		list, err := a.b.Runs(ctx, in.Execution)
		page.Runs = append(page.Runs, list...)
		return &struct{ Body belay.RunPage }{page}, err
	}
	f, err := in.filter()
	if err != nil {
		return nil, err
	}
	page, err = a.b.ListRuns(ctx, f)
	return &struct{ Body belay.RunPage }{page}, err
}

func (a *api) callTarget(ctx context.Context, in *runRequest[wire.TargetCall]) (*struct{ Body wire.TargetAnswer },
	error) {
	l, err := ofRun(in.ID, in.Lease, in.Token)
	if err != nil {
		return nil, err
	}
	if in.Body == nil {
		return nil, malformed("this needs a body that names the target")
	}
	answer, err := a.b.CallTarget(ctx, in.Body.Call(l))
	return &struct{ Body wire.TargetAnswer }{wire.TargetAnswerOf(answer)}, err
}

func (a *api) runRoute(what, summary string, body bool) route {
	return route{
		id: what + "Run", method: http.MethodPost, path: "/v1/runs/{id}/" + what, tag: "runs", summary: summary,
		body:   body,
		scopes: []belay.Scope{belay.ScopeWorker}, errors: []int{
			http.StatusPreconditionFailed, http.StatusPreconditionRequired,
		},
	}
}

// ofRun is the lease on a run. The run's id names the execution and the token; a token in the
// header must be the same.
func ofRun(id belay.RunID, secret wire.LeaseID, said belay.Token) (belay.Lease, error) {
	if said != 0 && said != id.Token {
		return belay.Lease{}, &belay.Error{
			Code: belay.CodeLeaseLost, Cause: belay.CauseReassigned,
			Message: fmt.Sprintf("token %d of the header Lease-Token is not the token of this run", said),
		}
	}
	return lease{secret, id.Token}.of(id.Execution)
}

func orEmpty[T any](v *T) *T {
	if v == nil {
		return new(T)
	}
	return v
}

func (a *api) run(ctx context.Context, in *runAt) (*struct{ Body belay.RunRecord }, error) {
	list, err := a.b.Runs(ctx, in.ID.Execution)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		if r.Token == in.ID.Token {
			return &struct{ Body belay.RunRecord }{r}, nil
		}
	}
	return nil, &belay.Error{Code: belay.CodeNotFound, Message: "the execution has no such run"}
}

func (a *api) fail(ctx context.Context, in *runRequest[wire.Fail]) (*executionReply, error) {
	if in.Body == nil {
		return nil, malformed("this needs a body that says what went wrong")
	}
	return settling(a, func(w *wire.Fail) belay.Settlement {
		return belay.Settlement{
			Outcome: belay.OutcomeFailed, Failure: &w.Error, Output: w.Output,
			RetryAfter: wire.Duration(w.RetryAfterMS), CostTokens: w.CostTokens, Steps: w.Reports(),
		}
	})(ctx, in)
}

// settling makes a handler that ends a run, and answers with the execution as it is afterwards.
func settling[B any](a *api, settlement func(*B) belay.Settlement) func(context.Context,
	*runRequest[B]) (*executionReply, error) {
	return func(ctx context.Context, in *runRequest[B]) (*executionReply, error) {
		l, err := ofRun(in.ID, in.Lease, in.Token)
		if err != nil {
			return nil, err
		}
		body := orEmpty(in.Body)
		s := settlement(body)
		s.Lease, s.Op = l, settleOp(in.Key, l, body)
		return a.settle(ctx, s, in.Key)
	}
}
