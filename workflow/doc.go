// Package workflow writes workflows as plain Go functions that survive their
// process:
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
// Package worker runs them, [Start] submits them.
//
// # How it goes on after a crash
//
// The function is called again from its beginning, by whichever worker is free.
// A [Step] that finished answers from its checkpoint without being carried out
// again; the first one that did not is where the work goes on. So whatever has
// an effect, or answers differently from one call to the next (the time, a
// random number, a request), belongs into a step. Order means nothing, names
// do: code around the names may change while executions are under way.
//
// Every step and every wait has a name, and comes to it once in a run; in a
// loop, tell the turns apart with [Key]. A name lives in the branch ([Go]) that
// uses it.
//
// A step is carried out at least once: the process may die between its effect
// and its checkpoint. Hand [IdempotencyKey] to whatever refuses a repeat, and
// [Token] to whatever refuses a stale writer.
//
// # Waiting
//
// [Sleep], [WaitSignal] and [Child] keep the worker while that is short.
// Otherwise, once every branch waits, the run ends and the execution waits in
// the store, for days if need be, without a worker. The call that waited then
// answers [ErrYield], which the function just returns, like any other error.
// Whatever it returns instead, the run has ended there: an author who swallows
// ErrYield loses nothing and gains nothing.
//
// Waits are measured by the store's clock from the first time that any run came
// to them. Neither a crash nor a worker with a wrong clock changes their end.
//
// # The end of a run
//
// A function that returns an error is run again, later, as its [belay.Policy]
// says; [belay.Permanent] ends the execution at once and [belay.RetryAfter]
// asks for more patience. A panic is an error with its stack.
//
// The context ends early when the execution is cancelled ([ErrCancelled]), when
// its worker stops ([ErrReleased]), when the time of the run is over
// ([ErrTimedOut]), or when the worker has lost the execution
// ([belay.ErrLeaseLost]); [context.Cause] tells which. Except for the last,
// [Checkpoint] still saves, so that a cancelled function can keep what it has.
package workflow
