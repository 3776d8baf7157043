// Package agentapi serves agents over HTTP: prompts become jobs that run an agent command, each in a
// workspace of its own.
//
//	POST   /execute               {"prompt", "repo"?, "ref"?, "timeout_seconds"?, "metadata"?} → 202
//	GET    /jobs/{id}             a job; ?wait=30 waits for its end
//	GET    /jobs/{id}/log         its output as it grows, as server-sent events
//	POST   /jobs/{id}/cancel      cancels it, as does DELETE /jobs/{id}
//	GET    /health                {"status", "busy", "active", "queued", "capacity"}
//	POST   /v1/chat/completions   a chat in OpenAI's format, streaming or not
//	GET    /v1/models             the only model; GET /v1/models/{model}
//
// # Jobs are executions
//
// A job is an execution of the workflow agent, under the same id, and all of its data is in the
// store, so a restart of the server loses no job. [Status] maps the states of executions to those
// of jobs. Jobs start in the order in which they were accepted, as slots of workers become free.
//
// A job can be read until JobTTL after its end, by the server's clock; its execution is kept for
// as long as any other.
//
// # The queue is bounded
//
// No more than QueueDepth jobs run or wait, whatever route they were submitted by
// ([Service.Admit]). The bound is exact for the jobs that one server accepts; servers that share a
// database count each other's jobs within [rescan]. A job beyond the bound is refused: with 429 and
// Retry-After, a chat with 503. A repeated request with a known Idempotency-Key is answered even
// if the queue is full.
//
// # Chats
//
// A chat is a job as well. The server waits for its answer, for at most ChatTimeout in all. It
// streams the words of the agent as they arrive, those of the newest conversation only ([sentText]).
//
// The job of a chat with an Idempotency-Key continues when the caller disconnects; a repeated
// request joins it, or gets its answer immediately. The job of a chat without a key is cancelled when
// the caller disconnects. If the server dies meanwhile, the policy of the job ends it: a lost run
// counts as a failure, and a job that has not started after ChatTimeout never starts.
package agentapi
