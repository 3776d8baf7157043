// Package agentapi answers for agents over HTTP: prompts become jobs that run an
// agent command, each in a workspace of its own.
//
//	POST   /execute               {"prompt", "repo"?, "ref"?, "timeout_seconds"?, "metadata"?} → 202
//	GET    /jobs/{id}             a job; ?wait=30 waits for its end
//	GET    /jobs/{id}/log         its output as it comes, as server-sent events
//	POST   /jobs/{id}/cancel      ends it; DELETE /jobs/{id} too
//	GET    /health                {"status", "busy", "active", "queued", "capacity"}
//	POST   /v1/chat/completions   a chat of OpenAI's form, streaming or not
//	GET    /v1/models             the one model there is; GET /v1/models/{model}
//
// # Jobs are executions
//
// A job is an execution of the workflow agent, under the same id, and all that is
// known of it is in the store: a restart loses none. [Status] is the one mapping
// from the states of executions to those of jobs. Jobs start in the order in which
// they were accepted, as slots of workers get free.
//
// A job is answered for until JobTTL after its end by the server's clock; its
// execution is kept for as long as any.
//
// # The queue is bounded
//
// No more than QueueDepth jobs run or wait, by whatever route they were submitted
// ([Service.Admit]). That is exact for what one server accepts; servers that share a database learn of
// each other's jobs within [rescan]. What is beyond is refused: 429 with
// Retry-After, 503 on a chat. A repeat under an Idempotency-Key that is known is
// answered however full the queue is.
//
// # Chats
//
// A chat is a job too, whose answer is waited for, ChatTimeout in all. What the
// agent says is streamed as it comes, of the newest run only ([told]). With an
// Idempotency-Key it belongs to the key: it goes on when the caller goes, and
// asking again joins it or is answered at once. Without, it belongs to the
// connection and is cancelled when that goes; if the server dies with it, its
// policy ends the job (lost means failed, and a start later than ChatTimeout is
// none).
package agentapi
