// Package client is Belay over HTTP: a belay.Backend whose engine runs in another
// process.
//
//	b, err := client.Dial(ctx, "https://belay.example.org", client.Key(secret))
//	w := worker.New(b, worker.Options{Concurrency: 10})
//
// # Connections
//
// Calls travel as streams of one HTTP/2 connection, without TLS too, and wait for no
// other call's answer. What is large travels over a second one, so that a heartbeat
// does not queue behind checkpoints on a slow line. A connection that went silent is
// found by pings and replaced; a call that was not answered in time is the last on
// its own, and what else is small ends with it, to be made again on the next.
//
// What a server answers is bounded; redirects are not followed, so that the key
// reaches nobody else.
//
// # Batches
//
// Submissions, signals, checkpoints, settlements and chunks of logs that are in
// flight at the same time share requests: two are on their way at most, and what
// queues meanwhile goes with the next. There is no timer: the first of a quiet
// moment goes at once. Each stands or falls alone.
//
// # Failures
//
// A call that got no answer is belay.CodeUnavailable: nobody knows whether it was
// carried out. Calls that are safe to repeat are repeated by the Client itself, for
// as long as its Patience: all that read, submissions, signals, actions and locks,
// each under the same operation id. What a worker does under its lease is not:
// package worker repeats that by its own rules, which look at the lease before each
// try.
//
// A call whose context ends answers with the context's cause, and as
// belay.CodeUnavailable if it might have changed something.
package client
