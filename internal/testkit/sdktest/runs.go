package sdktest

import (
	"context"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// runsOf lists runs, page by page.
func (e *env) runsOf(f belay.RunFilter) (all []belay.RunRecord) {
	e.Helper()
	for f.Limit = 2; ; {
		page, err := e.b.ListRuns(e.ctx, f)
		if err != nil {
			e.Fatal(err)
		}
		all = append(all, page.Runs...)
		if f.Cursor = page.Next; f.Cursor == "" {
			return all
		}
	}
}

var runs = []testCase{
	{"runs of all executions are listed by worker, workflow, outcome and time", func(e *env) {
		e.hire(register("w", hurt))
		failed := e.start(map[string]any{"N": 1})
		e.wantState(failed, belay.Failed)
		e.sleep(time.Minute)
		middle := time.Now()
		good := e.start(map[string]any{"N": 2})
		e.wantState(good, belay.Succeeded)
		worker := e.runsOf(belay.RunFilter{})[0].Worker
		for _, c := range []struct {
			name string
			f    belay.RunFilter
			want []belay.ExecutionID
		}{
			{"all", belay.RunFilter{}, []belay.ExecutionID{good, failed}},
			{"failed", belay.RunFilter{Outcome: belay.OutcomeFailed}, []belay.ExecutionID{failed}},
			{"running", belay.RunFilter{Running: true}, nil},
			{"worker", belay.RunFilter{Worker: worker}, []belay.ExecutionID{good, failed}},
			{"another worker", belay.RunFilter{Worker: belay.WorkerID{9}}, nil},
			{"workflow", belay.RunFilter{Workflow: "w"}, []belay.ExecutionID{good, failed}},
			{"another workflow", belay.RunFilter{Workflow: "v"}, nil},
			{"since", belay.RunFilter{Since: middle}, []belay.ExecutionID{good}},
			{"until", belay.RunFilter{Until: middle, Worker: worker}, []belay.ExecutionID{failed}},
		} {
			var ids []belay.ExecutionID
			for _, r := range e.runsOf(c.f) {
				if ids = append(ids, r.Execution); r.Workflow != "w" || r.Output != nil || r.EndedAt.IsZero() {
					e.Errorf("%s: %+v", c.name, r)
				}
			}
			if !slices.Equal(ids, c.want) {
				e.Errorf("%s: %v, want %v", c.name, ids, c.want)
			}
		}
		_, err := e.b.ListRuns(e.ctx, belay.RunFilter{Running: true, Outcome: belay.OutcomeLost})
		e.refused("two outcomes", err, belay.CodeInvalid, "")
		_, err = e.b.ListRuns(e.ctx, belay.RunFilter{Since: middle, Until: middle})
		e.refused("no time", err, belay.CodeInvalid, "")
		_, err = e.b.ListRuns(e.ctx, belay.RunFilter{Workflow: "a\x00"})
		e.refused("a workflow that cannot be", err, belay.CodeInvalid, "")
		_, err = e.b.ListRuns(e.ctx, belay.RunFilter{Cursor: "1/2/3"})
		e.refused("a cursor of another list", err, belay.CodeInvalid, "")
	}},
	{"a run that has not ended is listed as running", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ struct{}) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}))
		id := e.start(struct{}{})
		e.settle()
		list := e.runsOf(belay.RunFilter{Running: true})
		if len(list) != 1 || list[0].Execution != id || list[0].Outcome != 0 || list[0].StartedAt.IsZero() {
			e.Errorf("%+v", list)
		}
	}},
}
