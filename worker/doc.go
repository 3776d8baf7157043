// Package worker runs workflows: a worker claims executions, calls their functions, renews their
// leases, and gives executions back when it stops.
//
//	w := worker.New(b, worker.Options{Concurrency: 10})
//	worker.Register(w, "review", Review)
//	err := w.Run(ctx)
//
// # A session and its heartbeat
//
// A worker opens a session, and all its leases belong to that session. A heartbeat renews all
// these leases. The worker sends heartbeats from a separate goroutine, so that no other work delays
// them. The reply to a heartbeat has the requests of operators (cancel, pause, preempt) and reports
// new signals. When the session is lost, the worker ends every run with [belay.ErrLeaseLost] as the
// cause of its context, and opens another session.
//
// # The fence
//
// A worker that cannot reach the store stops writing before another worker may own its executions.
// The fence is the time at which two thirds of the TTL have passed since the worker sent its last
// acknowledged heartbeat. The worker measures this time with a clock that also counts the time
// during which the machine sleeps. The worker checks the fence before each effect. After the fence
// its runs are frozen: effects wait, and the functions registered with workflow.OnFreeze are
// called, for example to stop child processes. If a later heartbeat is acknowledged and the leases
// are still valid, the runs continue, so no work is lost in a short outage of the store. If a lease
// is lost, or the freeze lasts longer than Options.MaxFreeze, the worker ends the runs.
//
// # Claims
//
// Claims are numbered, and only one claim is in flight at a time. A claim whose reply was lost is sent again with the
// same number, and the reply then has the runs that the claim won. A heartbeat names the worker's runs and the newest
// claim whose reply the worker has received, so that the store can see that a reply was lost, and release at once the
// executions that this claim won.
//
// # Graceful shutdown
//
// When the context of Run ends, or an operator drains the worker, the worker claims nothing more.
// Running functions have Options.Grace to finish; functions that wait for a timer, a signal or a
// child suspend. Then the contexts of the remaining runs end, and their executions are released:
// another worker continues them at once, and the release does not count as a failed attempt.
package worker
