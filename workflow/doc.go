// Package workflow has the functions for writing workflows. A workflow is a plain Go function whose
// execution survives crashes of its process:
//
//	func Review(ctx context.Context, in Change) (Verdict, error) {
//		diff, err := workflow.Step(ctx, "fetch diff", func(ctx context.Context) (string, error) { … })
//		if err != nil {
//			return Verdict{}, err
//		}
//		ok, err := workflow.WaitSignal[Approval](ctx, "approved", workflow.Timeout(24*time.Hour))
//		…
//	}
//
// Package worker runs workflows; [Start] submits an execution of a workflow.
//
// # After a crash
//
// When the worker of an execution crashes, another worker calls the function again from its
// beginning. A [Step] that finished before the crash returns its result from its checkpoint and is
// not executed again; the work continues with the first step that did not finish. Code that
// has an effect, or that returns another value at each call (the time, a random number, a request),
// must therefore be in a step. Steps are identified by their names and not by their order, so the
// code around steps may change while executions are running.
//
// Each step and each wait has a name, which a run may use only once; in a loop, give each iteration
// its own [Key]. Each branch ([Go]) has its own names.
//
// A step is executed at least once, and may be executed again, because the process may crash
// between the step's effect and its checkpoint. Send the [IdempotencyKey] to systems that refuse
// repeated requests, and the [Token] to systems that refuse writes of an earlier owner.
//
// # Waiting
//
// During a short wait of [Sleep], [WaitSignal] or [Child], the run keeps its slot in the worker.
// During a longer wait, once every branch waits, the run ends, and the execution waits in the store
// without a worker, for days if necessary. The call that waited then returns [ErrYield], and the
// function must return this error like any other error. The function's result is ignored because
// the run has already ended, even if the function returns no error.
//
// A wait begins when the first run of the execution reaches it, and the store's clock determines
// its end. Neither a crash nor a wrong clock of a worker changes that end.
//
// # The end of a run
//
// When the function returns an error, the execution is retried after a delay, according to its
// [belay.Policy]. An error marked with [belay.Permanent] makes the execution fail at once;
// [belay.RetryAfter] sets a longer delay. A panic counts as an error, and the stack is saved with
// it.
//
// The context ends early when the execution is cancelled ([ErrCancelled]), when its worker stops
// ([ErrReleased]), when the run exceeds its time limit ([ErrTimedOut]), or when the worker has lost
// the execution ([belay.ErrLeaseLost]); [context.Cause] returns the reason. Except after
// belay.ErrLeaseLost, [Checkpoint] still works, so that a cancelled function can save its progress.
package workflow
