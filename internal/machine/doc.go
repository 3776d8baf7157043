// Package machine holds the rules of Belay: which command is accepted in which state, and which
// rows it changes.
//
// [Fold] takes the rows that a batch of commands needs, as the store locked and read them, and
// the time of the store's clock at that moment. Fold applies the commands one after the other. It
// answers with the changes to write and a reply to each command. Fold does no I/O, reads no
// clock, starts no goroutine and uses no randomness except the random numbers inside commands, so
// the same rows and commands give the same changes on every store, in a test and in a simulation.
//
// # How a command is decided
//
// Each command is accepted or refused by itself: it is checked in full before it changes anything,
// and a refused command leaves the rows as they were. The only exception is a heartbeat that comes
// too late, which ends its session. A batch gives the same result as its commands one by one. A
// command that ends a child changes the parent in the same batch, so that both are in one commit.
//
// The tables testdata/rules.txt and testdata/sessions.txt list the result of every command in
// every situation; the tests compare the code with them.
//
// # Executions
//
//	pending → scheduled → running → waiting | paused → succeeded | failed | cancelled
//
// Every transition raises the execution's seq by one and is written to exactly one row that carries
// this seq: the execution itself, a run's begin or end, a checkpoint, a signal, or an action.
// [Events] merges these rows into the history, which is ordered and has no gaps; no other history
// is stored. If an action ends a run, the row of the action and the row of the run carry the same
// seq, and the event in the history has the kind of the action.
//
// # Ownership
//
// A claim raises the token and binds the execution to a worker's session. A write of an owner is
// refused unless the execution is running, the token and secret are those of the last claim, and
// the session has neither ended nor expired (see lease.go). Only a settlement, the loss of the
// session, a timeout or an operator ends a run.
//
// An external owner (an owner from outside) is a program that is no worker: Lock opens a session
// for it and claims one execution in the same commit (see lock.go). Its lease is checked like any
// other. The session ends with its run. If the session is lost, the execution fails, unless its
// policy says that it continues. An external execution can have only external owners, in every
// run and every generation.
//
// The end of an execution may be reported by HTTP requests, which its submission names. The batch
// that ends the execution submits one delivery for each of them: an execution of the workflow http,
// whose id follows from the end that it reports (see notify.go).
//
// A gate is a reason for which an execution that is due is not given to workers; the execution's
// row names its gate. An execution that was lost twice in a row is a suspect: it may be the cause
// of the crashes, so it runs alone on its worker (see lose.go).
//
// # Sessions
//
// A session lives until expires_at, which every heartbeat moves. It ends by one transition that
// is never reversed: closed, drained or lost. Every server regularly writes a mark of life.
// Before sessions are judged by time, the rules look at the newest mark of all servers. If it is
// older than three of the intervals at which servers write marks, no worker could have renewed its
// session during this gap. Then the same commit extends every session by the gap (see world.go).
package machine
