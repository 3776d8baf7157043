// Package trace makes traces of executions and sends them to a collector, in the OpenTelemetry protocol (OTLP)
// over HTTP.
//
// # Spans
//
// When an execution has ended, the [Tracer] reads its history and makes the spans of the whole execution: the
// execution itself, its runs, each linked to the run before it, its steps and its waits. So the code of workflows
// needs no tracing library, and the spans say the same as the history. A commit of the store is a span of its own
// trace, because it has the commands of many executions.
//
// # Ids
//
// The ids of a trace and its spans are hashes of the ids of the execution, its generation and its runs
// ([Tracer.RunTrace]). So any server, and any worker, knows the span of a run before it ends, and a repetition
// makes the same ids. If the submitter of an execution has sent a trace, the spans belong to that trace.
//
// # Load
//
// A commit never waits for a Tracer: [Tracer.End] and [Tracer.Commit] put a record into a queue. If the queue is
// full, because the collector or the store is slow, the record is dropped and counted ([Tracer.Counters]).
package trace
