// Package probe asks workers for their health over HTTP, for the server to which they connect.
//
// A worker that opens a session over HTTP may name an address for health probes (Health of
// belay.WorkerSpec). The server to which the worker sends its heartbeats requests GET /healthz at
// this address once per interval, and every few seconds while the probes fail. A status from 200 to
// 299 means that the worker is healthy. All other answers, and no answer within the time limit, mean
// that the worker is unhealthy. Each result becomes a command to the engine, which writes only
// changes. The worker keeps its leases in any case: only heartbeats decide about leases.
//
// A worker chooses the address, so the rules of [Rules.Target] limit it: a server must not send
// requests to other machines because a worker tells it to (server-side request forgery). For the
// same reason a probe follows no redirect, uses no proxy, resolves no name, and reads no body; and
// its result shows nothing of an answer except the status and the header Belay-Health, which only
// programs that want to be probed send.
package probe
