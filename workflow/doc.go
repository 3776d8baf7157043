// Package workflow has the functions with which a workflow is written: a plain Go function whose
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
// Package worker runs workflows; [Start] submits an execution of one.
//
// # After a crash
//
// When the worker of an execution crashes, another worker calls the function again from its
// beginning. A [Step] that finished before returns its result from its checkpoint and is not
// carried out again; the work continues with the first step that did not finish. So put into a step
// all code that has an effect, or that returns another value at each call (the time, a random
// number, a request). Steps are found again by their names and not by their order: the code around
// them may change while executions are under way.
//
// Each step and each wait has a name, which a run may use once; in a loop, give each iteration its
// own [Key]. Each branch ([Go]) has its own names.
//
// A step is carried out at least once: the process may crash between the step's effect and its
// checkpoint. Send the [IdempotencyKey] to systems that refuse repeated requests, and the [Token]
// to systems that refuse writes of an earlier owner.
//
// # Waiting
//
// [Sleep], [WaitSignal] and [Child] keep the worker while the wait is short. Otherwise, once every
// branch waits, the run ends and the execution waits in the store without a worker, for days if
// need be. The call that waited then returns [ErrYield], and the function returns that error like
// any other. The run has ended by then: the function's result is ignored, also if it returns no
// error.
//
// A wait begins when the first run of the execution reaches it, and its end is measured by the
// store's clock. Neither a crash nor a wrong clock of a worker changes the end.
//
// # The end of a run
//
// When the function returns an error, the execution is retried after a delay, as its [belay.Policy]
// says. An error marked with [belay.Permanent] makes the execution fail at once; [belay.RetryAfter]
// asks for a longer delay. A panic counts as an error, which has the stack.
//
// The context ends early when the execution is cancelled ([ErrCancelled]), when its worker stops
// ([ErrReleased]), when the time of the run is over ([ErrTimedOut]), or when the worker has lost
// the execution ([belay.ErrLeaseLost]); [context.Cause] gives the reason. Except after the last,
// [Checkpoint] still saves, so that a cancelled function can save its progress.
package workflow
