// Package agentapi serves agents over HTTP: prompts become jobs that run an agent command, each in a
// workspace of its own.
//
//	POST   /execute               {"prompt", "repo"?, "ref"?, "timeout_seconds"?, "metadata"?} → 202
//	GET    /jobs/{id}             a job; ?wait=30 waits for its end
//	GET    /jobs/{id}/log         its output as it grows, as server-sent events
//	POST   /jobs/{id}/cancel      cancels it, as does DELETE /jobs/{id}
//	GET    /health                {"status", "busy", "active", "queued", "capacity"}
//	POST   /v1/chat/completions   a chat in OpenAI's format, streaming or not
//	POST   /v1/responses          a response in OpenAI's format, streaming or not
//	GET    /v1/responses/{id}     a response as it is now; POST …/cancel cancels its job
//	GET    /v1/models             the only model; GET /v1/models/{model}
//
// # Jobs are executions
//
// A job is an execution of the workflow agent, under the same id, and the store has all data of the
// job, so no job is lost when the server restarts. [Status] maps the states of executions to
// statuses of jobs. Jobs start in the order in which they were accepted, as slots of workers become
// free.
//
// A job can be read until JobTTL after its end, by the server's clock; its execution is kept as
// long as every other execution.
//
// # The queue is bounded
//
// At most QueueDepth jobs run or wait. Jobs that clients submit by other routes count too
// ([Service.Admit]). The limit is exact for the jobs of one server; servers that share a database
// learn of each other's jobs at most [rescan] later. A job beyond the limit is refused with 429 and
// Retry-After, and a chat with 503. A repeated request with a known Idempotency-Key is answered
// even if the queue is full.
//
// # Chats
//
// Chat completions and responses are two formats of the same chats ([format]). Each chat is a job. The
// server waits for the job's answer, for at most ChatTimeout in total. It streams the agent's output as
// it arrives, but only the output of the newest conversation ([sentText]). If the agent fails, the
// error is one after which no client repeats a request by itself.
//
// The job of a chat with an Idempotency-Key continues when the caller disconnects. A repeated
// request with that key waits for the same job or, if the job has ended, gets the job's answer
// immediately. The job of a chat without a key is cancelled when the caller disconnects. If the
// server dies before the job has ended, the job's policy ends the job: a lost run counts as a
// failure, and a job that has not started within ChatTimeout is not started later.
package agentapi
