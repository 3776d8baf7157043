// Package machine holds the rules of Belay, all of them and nothing else.
//
// [Fold] takes the rows that a batch of commands touches, as they stood under
// lock, and the time that the store's clock showed then. It applies the
// commands one after the other and answers with the changes to write and a
// reply to each. It does no I/O, reads no clock, starts no goroutine and uses
// no randomness but what the commands carry, so the same rows and commands give
// the same changes on every store, in a test and in a simulation.
//
// # How a command is decided
//
// Each command stands or falls alone: it is checked in full before it changes
// anything, and a refusal leaves the rows as they were, but for a heartbeat that
// comes too late, which ends its session. A batch decides as its commands would
// one after the other. A command that ends a child changes its parent in the
// same fold, so that both are one commit.
//
// What every command does in every situation stands in testdata/rules.txt and
// testdata/sessions.txt, which the tests hold the code to.
//
// # Executions
//
//	pending → scheduled → running → waiting | paused → succeeded | failed | cancelled
//
// Every transition raises the execution's seq by one and is written to exactly
// one row that carries this seq: the execution itself, a run's begin or end, a
// checkpoint, a signal, or an action. [Events] merges them again, ordered and
// gapless; there is no second history. Where an action ends a run, both carry
// the seq and the action names the event.
//
// # Ownership
//
// A claim raises the token and binds the execution to a worker's session.
// Whatever an owner writes is refused unless the execution is running, the
// token and secret are those of the last claim, the session has not ended and
// its time is not over (see lease.go). Nothing but a settlement, the loss of
// the session, a timeout or an operator ends a run.
//
// An owner from outside is no worker: a lock opens a session of one for it and
// claims one execution in the same commit (see lock.go). Its lease is checked like
// any other. The session ends with its run; if it is lost, the execution fails,
// unless its policy says that it goes on. An execution with the external gate is
// owned in this way only; the gate outlives every run and every generation.
//
// # Sessions
//
// A session lives until expires_at, which every heartbeat moves. It ends by one
// transition that never reverses: closed, drained or lost. Before any session
// is judged by time, the newest mark of life of all servers is looked at; if
// that has missed three beats, no worker could have renewed anything, and every
// session is given the gap again, in the same commit (see world.go).
package machine
