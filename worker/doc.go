// Package worker runs workflows: it claims executions, calls their functions,
// keeps their leases alive, and gives them back when it stops.
//
//	w := worker.New(b, worker.Options{Concurrency: 10})
//	worker.Register(w, "review", Review)
//	err := w.Run(ctx)
//
// # A session and its heartbeat
//
// A worker opens a session and holds all its leases under it. One heartbeat, on
// a goroutine of its own and never behind other work, renews them all; what an
// operator wants of a run, and that signals have arrived, comes with its reply.
// When the session is lost, every run is ended with [belay.ErrLeaseLost] as its
// context's cause, and the worker opens another session.
//
// # The fence
//
// The worker itself stops writing before anybody else may own what it works on.
// It counts two thirds of the TTL from the sending of the last acknowledged
// heartbeat, on a clock that goes on while the machine sleeps, and looks at it
// before each effect. At the fence it freezes: effects wait, and what was
// registered with workflow.OnFreeze is stopped. If a heartbeat gets through and
// the lease still holds, all goes on where it stood, so an outage of the store
// costs no work. If the lease is lost, or the freeze lasts longer than
// Options.MaxFreeze, the runs are ended.
//
// # Claims
//
// Claims are numbered and one is in flight at a time. A claim whose reply is not
// seen is asked again by its number and gets the runs it won. The heartbeat names
// the runs held and the newest claim seen, so that what a lost reply contained
// is released at once.
//
// # Stopping
//
// When the context of Run ends, or an operator drains the worker, it claims
// nothing more and gives running work Options.Grace to finish; whoever waits
// suspends. What is left then has its context ended, and is released: the next
// worker goes on with it at once and nothing is charged.
package worker
