// Package client has a belay.Backend that uses an engine in another process over HTTP.
//
//	b, err := client.Dial(ctx, "https://belay.example.org", client.Key(secret))
//	w := worker.New(b, worker.Options{Concurrency: 10})
//
// # Connections
//
// The client sends calls as concurrent streams of one HTTP/2 connection, also without TLS, so that
// no call waits for the answer of another. Requests with a large body use a second connection, so
// that a heartbeat does not queue behind checkpoints on a slow line. Pings find a connection that
// does not answer any more, and the Client replaces it. If a call is not answered in time, the
// Client replaces the connection of that call too. The other small calls on that connection then
// fail, and the Client repeats each of them that is safe to repeat on the next connection.
//
// The size of an answer is bounded. The Client follows no redirects, so that no other host receives
// the key.
//
// # Batches
//
// Submissions, signals, checkpoints, settlements and chunks of logs of concurrent callers share
// requests (batches). At most two batches are in flight; operations that arrive while two are in
// flight become the next batch. There is no timer: while fewer than two batches are in flight, the
// Client sends an operation at once. Each operation of a batch succeeds or fails independently of
// the others.
//
// # Failures
//
// A call that got no answer returns belay.CodeUnavailable: the server may have carried it out or
// not. The Client itself repeats calls that are safe to repeat, for the duration of the option
// Patience: reads, submissions, signals, actions and locks, each with the same operation id. It
// does not repeat writes under a worker's lease: package worker repeats those writes by its own
// rules, and checks the lease before each try.
//
// A call whose context ends returns the cause of the context. A write may have been carried out by
// then, so the error of a write has belay.CodeUnavailable and wraps the cause.
package client
