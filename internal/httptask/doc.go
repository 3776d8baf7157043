// Package httptask is the built-in workflow http: one HTTP request, as a durable execution.
//
// Each run sends the request once; the policy of the execution decides about further attempts. The
// request is therefore sent at least once, and carries a key that is the same in every attempt of
// a generation, so that the receiver can refuse a repetition.
//
// # The end of a run
//
//   - An expected status is a success; the output is a [Response].
//   - A status in retry_on, and an error of the network, is transient. A Retry-After of the
//     receiver delays the next attempt, by an hour at most.
//   - A request that exceeds its timeout ends the run as timed out.
//   - Every other status, and everything that a repetition cannot change, is permanent: a refused
//     address, an invalid certificate, an unknown secret, too many redirects.
//
// If there was an answer, a failed run has the [Response] as its output too.
//
// # Protection
//
// Requests reach only the hosts that the configuration allows. Package reach checks the address to
// which a name resolves, and connects to the address that it has checked; this applies to each
// redirect too. No proxy and no setting of the environment is used, no cookie is kept, and
// certificates are always verified. An answer is read up to a limit, after it was decompressed, and
// the timeout ends a receiver that is slow, hangs or never ends.
//
// Secrets (package secretref) are sent only to the hosts of their rules, and never to another origin
// (scheme, host and port) after a redirect. They are removed from everything that the run saves: the
// body and the headers of the answer, and errors. A receiver that changes a secret before echoing it
// defeats that.
package httptask
