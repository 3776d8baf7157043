package sdktest

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

var details = []testCase{
	{"an execution is read with its submitter, its trigger payload, its newest action and its metrics", func(e *env) {
		e.hire(func(w *worker.Worker) {
			worker.Register(w, "w", func(ctx context.Context, _ struct{}) (int, error) {
				if err := workflow.Do(ctx, "a", func(context.Context) error { return nil }); err != nil {
					return 0, err
				}
				if err := workflow.Sleep(ctx, "rest", time.Minute); err != nil {
					return 0, err
				}
				return workflow.Child[int](ctx, "kid", "kid", struct{}{})
			})
			worker.Register(w, "kid", func(ctx context.Context, _ struct{}) (int, error) {
				if workflow.Attempt(ctx) == 1 {
					return 0, errors.New("not yet")
				}
				return 7, nil
			})
		})
		id := e.start(struct{}{}, belay.WithActor("ann"), belay.WithTriggerPayload(json.RawMessage(`{"ref":"main"}`)))
		e.settle()
		waits := e.detail(id)
		if waits.CreatedBy != "ann" || string(waits.TriggerPayload) != `{"ref":"main"}` || !waits.ModifiedAt.IsZero() ||
			waits.Metrics.DurationMS != 0 || waits.Metrics.Outcomes["suspended"] != 1 {
			e.Errorf("while it waits: %+v, metrics %+v", waits, waits.Metrics)
		}
		for _, action := range []belay.Action{belay.ActionPause, belay.ActionResume} {
			if _, err := e.b.Control(e.ctx, belay.Control{Execution: id, Action: action, Actor: "bob"}); err != nil {
				e.Fatal(err)
			}
		}
		want(e, id, 7)
		x := e.detail(id)
		m := x.Metrics
		if x.ModifiedBy != "bob" || x.State != belay.Succeeded || m.DurationMS < 60_000 ||
			m.RunningMS >= m.DurationMS || m.Runs < 2 || m.Outcomes["succeeded"] != 1 || m.Steps != 1 || m.Truncated {
			e.Errorf("at the end: %+v, metrics %+v", x, m)
		}
		if c := m.Children; c == nil || c.Total != 1 || c.States["succeeded"] != 1 || c.Runs != 2 {
			e.Errorf("children: %+v", c)
		}
		if x := e.get(id); x.CreatedBy != "ann" {
			e.Errorf("created by %q", x.CreatedBy)
		}
		kids, err := e.b.Executions(e.ctx, belay.Filter{Parent: id})
		if err != nil || len(kids.Executions) != 1 || kids.Executions[0].CreatedBy != "" {
			e.Errorf("%+v, %v", kids, err)
		}
		events, err := e.b.Events(e.ctx, belay.EventQuery{Execution: id, Limit: 1})
		if err != nil || len(events) != 1 || events[0].Actor != "ann" {
			e.Errorf("%+v, %v", events, err)
		}
		_, err = e.b.Detail(e.ctx, belay.ExecutionID{9})
		e.refused("an execution that is not there", err, belay.CodeNotFound, "")
	}},
	{"a run and its children know the trace of the submitter; a trace that is not valid is none", func(e *env) {
		var seen []belay.Trace
		e.hire(func(w *worker.Worker) {
			worker.Register(w, "w", func(ctx context.Context, _ struct{}) (int, error) {
				seen = append(seen, workflow.Trace(ctx))
				return workflow.Child[int](ctx, "kid", "kid", struct{}{})
			})
			worker.Register(w, "kid", func(ctx context.Context, _ struct{}) (int, error) {
				seen = append(seen, workflow.Trace(ctx))
				return 7, nil
			})
		})
		parent := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		for trace, expected := range map[belay.Trace]belay.Trace{
			{Parent: parent, State: "a=b"}:        {Parent: parent, State: "a=b"},
			{Parent: parent, State: "no"}:         {Parent: parent},
			{Parent: parent + "\n", State: "a=b"}: {},
			{}:                                    {},
		} {
			seen = nil
			want(e, e.start(struct{}{}, belay.WithTrace(trace)), 7)
			if len(seen) != 2 || seen[0] != expected || seen[1] != expected {
				e.Errorf("after a submission with %+v the runs see %+v", trace, seen)
			}
		}
	}},
}

func (e *env) detail(id belay.ExecutionID) belay.ExecutionDetail {
	e.Helper()
	x, err := e.b.Detail(e.ctx, id)
	if err != nil || x.Metrics == nil {
		e.Fatalf("read %s: %+v, %v", id, x, err)
	}
	return x
}
