// Package client has a belay.Backend that talks over HTTP to an engine in another process.
//
//	b, err := client.Dial(ctx, "https://belay.example.org", client.Key(secret))
//	w := worker.New(b, worker.Options{Concurrency: 10})
//
// # Connections
//
// Calls are sent as concurrent streams of one HTTP/2 connection, also without TLS, so that no call
// waits for the answer of another. Requests with a large body use a second connection, so that a
// heartbeat does not queue behind checkpoints on a slow line. Pings find a connection that does not
// answer any more, and the Client replaces it. After a call that was not answered in time, its
// connection is replaced too; the other small calls on that connection fail, and are made again on
// the next one where they may be repeated.
//
// The size of an answer is bounded. The Client follows no redirects, so that no other host receives
// the key.
//
// # Batches
//
// Submissions, signals, checkpoints, settlements and chunks of logs of concurrent callers share
// requests (batches). At most two batches are in flight; operations that arrive meanwhile become
// the next one. There is no timer: while fewer than two are in flight, an operation is sent at
// once. Each operation of a batch succeeds or fails independently of the others.
//
// # Failures
//
// A call that got no answer returns belay.CodeUnavailable: the server may have carried it out or
// not. The Client itself repeats calls that are safe to repeat, for the duration of the option
// Patience: reads, submissions, signals, actions and locks, each with the same operation id. It
// does not repeat writes under a worker's lease: package worker repeats those by its own rules, and
// checks the lease before each try.
//
// A call whose context ends returns the cause of the context. If the call is a write, which may
// have been carried out, the error has belay.CodeUnavailable and wraps the cause.
package client
