package sdktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/workflow"
)

// threeSteps is a workflow of three steps of a minute each.
func threeSteps(ctx context.Context, _ any) (string, error) {
	for i := range 3 {
		if _, err := work(ctx, fmt.Sprint("step ", i), time.Minute); err != nil {
			return "", err
		}
	}
	return "done", nil
}

var control = []testCase{
	{"a cancelled run gets the cause and may still save", func(e *env) {
		var cause error
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			_, err := work(ctx, "long", time.Hour)
			cause = context.Cause(ctx)
			return "", errors.Join(err, workflow.Checkpoint(ctx, "salvaged"))
		}))
		id := e.start(nil)
		e.sleep(time.Minute)
		e.act(id, belay.ActionCancel)
		wantEnd(e, id, belay.Cancelled, "")
		e.within("cancel", time.Since(e.began)-time.Minute, 0, time.Second)
		var c *workflow.CancelCause
		if !errors.Is(cause, workflow.ErrCancelled) || !errors.As(cause, &c) || c.Within <= 5*time.Second {
			e.Errorf("cause %v", cause)
		}
		if e.count(id, "state:state") != 1 {
			e.Error("nothing was saved\n" + e.history(id))
		}
	}},

	{"a run that ignores its cancel is ended by the engine", func(e *env) {
		var late error
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			time.Sleep(time.Minute)
			late = workflow.Checkpoint(ctx, "too late")
			return "done", nil
		}))
		id := e.start(nil)
		e.sleep(10 * time.Second)
		e.act(id, belay.ActionCancel)
		e.sleep(15 * time.Second)
		e.wantState(id, belay.Cancelled)
		e.sleep(time.Minute)
		if !errors.Is(late, belay.ErrLeaseLost) {
			e.Errorf("a late checkpoint: %v", late)
		}
		e.wantState(id, belay.Cancelled)
	}},

	{"an execution that waits is cancelled at once", func(e *env) {
		e.hire(register("w", approval))
		id := e.start(0)
		e.sleep(time.Minute)
		e.act(id, belay.ActionCancel)
		e.wantState(id, belay.Cancelled)
	}},

	{"an ended execution is deleted, unless its dead letter is open", func(e *env) {
		e.hire(register("w", hurt))
		good, bad := e.start(map[string]any{"N": 2}), e.start(map[string]any{"N": 1})
		e.wantState(good, belay.Succeeded)
		e.wantState(bad, belay.Failed)
		remove := func(id belay.ExecutionID) (belay.Execution, error) {
			return e.b.Control(e.ctx, belay.Control{
				Execution: id, Action: belay.ActionDelete, Actor: "ann", Reason: "asked for", Op: e.op(),
			})
		}
		if x, err := remove(good); err != nil || x.ID != good || x.State != belay.Succeeded {
			e.Errorf("%+v, %v", x, err)
		}
		_, err := e.b.Execution(e.ctx, good)
		e.refused("a deleted execution", err, belay.CodeNotFound, "")
		_, err = remove(good)
		e.refused("a second deletion", err, belay.CodeNotFound, "")
		_, err = remove(bad)
		r := e.refused("with an open dead letter", err, belay.CodeConflict, "")
		if !strings.Contains(r.Message, "belay dead") {
			e.Error(r)
		}
		_, err = e.b.ChangeDeadLetter(e.ctx, belay.DeadLetterChange{Execution: bad, Action: belay.DeadLetterDiscard})
		e.must(err)
		_, err = remove(bad)
		e.must(err)
		_, err = e.b.DeadLetter(e.ctx, bad, 0)
		e.refused("the dead letter of a deleted execution", err, belay.CodeNotFound, "")
	}},

	{"an execution that has not ended, and a child, are not deleted", func(e *env) {
		e.hire(register("w", func(ctx context.Context, n int) (int, error) {
			if n == 0 {
				return 1, nil
			}
			if _, err := workflow.Child[int](ctx, "child", "w", 0); err != nil {
				return 0, err
			}
			return workflow.Step(ctx, "long", func(ctx context.Context) (int, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			})
		}))
		id := e.start(1)
		e.sleep(time.Minute)
		page, err := e.b.Executions(e.ctx, belay.Filter{Parent: id})
		e.must(err)
		for _, x := range append(page.Executions, e.get(id)) {
			_, err := e.b.Control(e.ctx, belay.Control{Execution: x.ID, Action: belay.ActionDelete})
			e.refused("delete "+x.State.String(), err, belay.CodeConflict, "")
		}
		e.act(id, belay.ActionCancel)
		e.wantState(id, belay.Cancelled)
		e.act(id, belay.ActionDelete)
		_, err = e.b.Execution(e.ctx, page.Executions[0].ID)
		e.refused("the child of a deleted execution", err, belay.CodeNotFound, "")
	}},

	{"a budget spent in a child pauses its root, and a raise resumes both", func(e *env) {
		e.hire(register("w", func(ctx context.Context, n int) (int, error) {
			if n == 0 {
				return workflow.Child[int](ctx, "child", "w", 1)
			}
			for i := range 2 {
				if _, err := workflow.Step(ctx, fmt.Sprint("step ", i), func(ctx context.Context) (int, error) {
					workflow.AddExactCost(ctx, 50_001)
					return i, nil
				}); err != nil {
					return 0, err
				}
				if err := workflow.Sleep(ctx, fmt.Sprint("rest ", i), time.Minute); err != nil {
					return 0, err
				}
			}
			return 7, nil
		}))
		id := e.start(0, belay.WithBudget(50_001))
		e.sleep(5 * time.Minute)
		page, err := e.b.Executions(e.ctx, belay.Filter{Parent: id})
		e.must(err)
		child := page.Executions[0].ID
		for _, x := range []belay.Execution{e.get(id), e.get(child)} {
			if x.State != belay.Paused || x.Reason == nil || x.Reason.Code != "budget" || x.CostTokens != 50_001 {
				e.Errorf("%s is %s with the reason %+v and the cost %s", x.ID, x.State, x.Reason, x.CostTokens)
			}
		}
		for _, to := range []belay.ExecutionID{child, id} {
			_, err = e.b.Control(e.ctx, belay.Control{Execution: to, Action: belay.ActionResume})
			e.refused("resume", err, belay.CodeConflict, "")
		}
		_, err = e.b.Control(e.ctx, belay.Control{
			Execution: child, Action: belay.ActionBudget, Budget: &belay.Budget{Cost: belay.MaxCost},
		})
		e.refused("a budget for a child", err, belay.CodeConflict, "")
		x, err := e.b.Control(e.ctx, belay.Control{
			Execution: id, Action: belay.ActionBudget, Budget: &belay.Budget{Cost: 200_000},
		})
		e.must(err)
		if x.State == belay.Paused || x.Budget == nil || x.Budget.Cost != 200_000 {
			e.Errorf("after the raise it is %s with the budget %v", x.State, x.Budget)
		}
		want(e, id, 7)
		if c := e.get(id).CostTokens; c != 2*50_001 {
			e.Errorf("it costs %s", c)
		}
	}},

	{"a preempted run gives its execution back between steps and continues later", func(e *env) {
		e.hire(register("w", threeSteps))
		id := e.start(nil)
		e.sleep(90 * time.Second)
		e.act(id, belay.ActionPreempt)
		want(e, id, "done")
		e.within("end", time.Since(e.began), 3*time.Minute, 3*time.Minute+time.Second)
		e.wantKinds(id, "submitted", "started", "step:step 0", "preempt", "step:step 1", "preempted", "started",
			"step:step 2", "succeeded")
	}},

	{"a long step that checks Preempted can give its execution back at once", func(e *env) {
		var runs atomic.Int32
		e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			return workflow.Step(ctx, "long", func(ctx context.Context) (int, error) {
				if n, ok, err := workflow.State[int](ctx); ok {
					return n, err
				}
				runs.Add(1)
				select {
				case <-workflow.Preempted(ctx):
					return 0, errors.Join(workflow.Checkpoint(ctx, 7), workflow.ErrYield)
				case <-time.After(time.Hour):
					return 0, errors.New("the run was not asked to give its execution back")
				}
			})
		}))
		id := e.start(nil)
		e.sleep(time.Minute)
		e.act(id, belay.ActionPreempt)
		want(e, id, 7)
		e.within("end", time.Since(e.began)-time.Minute, 0, time.Second)
		if e.count(id, "preempted") != 1 || runs.Load() != 1 {
			e.Error(e.history(id))
		}
	}},

	{"a paused run stops between steps until it is resumed", func(e *env) {
		e.hire(register("w", threeSteps))
		id := e.start(nil)
		e.sleep(30 * time.Second)
		e.act(id, belay.ActionPause)
		e.sleep(10 * time.Minute)
		e.wantState(id, belay.Paused)
		e.act(id, belay.ActionResume)
		want(e, id, "done")
		e.within("end", time.Since(e.began), 12*time.Minute, 13*time.Minute)
	}},

	{"a paused run that waits gives its worker back at once", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			nap := workflow.Go(ctx, "nap", func(ctx context.Context) (string, error) {
				return sleeper(ctx, 15*time.Minute)
			})
			who := workflow.Go(ctx, "who", func(ctx context.Context) (string, error) {
				return work(ctx, "w", 10*time.Minute)
			})
			a, err := nap.Wait(ctx)
			b, err2 := who.Wait(ctx)
			return a + b, errors.Join(err, err2)
		}))
		id := e.start(nil)
		e.sleep(time.Minute)
		e.act(id, belay.ActionPause)
		e.sleep(8 * time.Minute)
		e.wantState(id, belay.Running) // the pause lets the current step finish
		e.sleep(2 * time.Minute)
		e.wantState(id, belay.Paused)
		if e.count(id, "step:who/w") != 1 {
			e.Error("the current step was not saved\n" + e.history(id))
		}
		e.act(id, belay.ActionResume)
		want(e, id, "restedw")
	}},

	{"a signal delivered during a pause counts after it", func(e *env) {
		e.hire(register("w", approval))
		id := e.start(0)
		e.sleep(time.Minute)
		e.act(id, belay.ActionPause)
		e.signal(id, "approved", "ann")
		e.sleep(time.Minute)
		e.wantState(id, belay.Paused)
		e.act(id, belay.ActionResume)
		want(e, id, "ann")
	}},

	{"a run that lasts too long times out and is retried", func(e *env) {
		var cause error
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			if workflow.Attempt(ctx) == 2 {
				return "quick", nil
			}
			_, err := work(ctx, "long", time.Hour)
			cause = context.Cause(ctx)
			return "", err
		}))
		id := e.start(nil, belay.WithPolicy(belay.Policy{RunTimeout: belay.Duration(time.Minute)}))
		want(e, id, "quick")
		if !errors.Is(cause, workflow.ErrTimedOut) || !errors.Is(cause, context.DeadlineExceeded) {
			e.Errorf("cause %v", cause)
		}
		if e.count(id, "timed_out") != 1 {
			e.Error(e.history(id))
		}
	}},

	{"an execution that lasts too long fails, waiting included", func(e *env) {
		e.hire(register("w", approval))
		id := e.start(0, belay.WithPolicy(belay.Policy{Timeout: belay.Duration(10 * time.Minute)}))
		ended := wantEnd(e, id, belay.Failed, "timeout")
		if ended.Failure.Class != belay.ClassTimeout {
			e.Errorf("class %s", ended.Failure.Class)
		}
		e.within("end", time.Since(e.began), 10*time.Minute, 10*time.Minute+15*time.Second)
	}},

	{"a run without progress times out, a run with progress does not", func(e *env) {
		e.hire(register("w", func(ctx context.Context, progress bool) (string, error) {
			return workflow.Step(ctx, "quiet", func(ctx context.Context) (string, error) {
				for range 10 {
					select {
					case <-time.After(30 * time.Second):
					case <-ctx.Done():
						return "", context.Cause(ctx)
					}
					if progress {
						workflow.Progress(ctx)
					}
				}
				return "done", nil
			})
		}))
		policy := belay.WithPolicy(belay.Policy{IdleTimeout: belay.Duration(time.Minute), MaxAttempts: 1})
		loud, quiet := e.start(true, policy), e.start(false, policy)
		want(e, loud, "done")
		wantEnd(e, quiet, belay.Failed, "progress")
	}},

	{"a stolen execution continues with another owner, and its old owner is refused", func(e *env) {
		var tokens []belay.Token
		var lost, cause error
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			tokens = append(tokens, workflow.Token(ctx))
			if len(tokens) == 2 {
				return "second", nil
			}
			time.Sleep(time.Minute)
			lost = workflow.Checkpoint(ctx, 1)
			cause = context.Cause(ctx)
			return "first", nil
		}))
		id := e.start(nil)
		e.sleep(30 * time.Second)
		e.act(id, belay.ActionSteal)
		want(e, id, "second")
		e.sleep(time.Minute)
		if !errors.Is(lost, belay.ErrLeaseLost) || !errors.Is(cause, belay.ErrLeaseLost) {
			e.Errorf("the old owner got %v, cause %v", lost, cause)
		}
		if len(tokens) != 2 || tokens[1] <= tokens[0] {
			e.Errorf("tokens %v", tokens)
		}
	}},
}
