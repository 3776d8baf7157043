// Package belay has the types of Belay, its error codes and the Backend interface through which
// programs use it.
//
// An [Execution] is one instance of a workflow. It has at most one owner at a time, usually a
// worker. The owner has a [Lease]: a secret and a fencing [Token], a number that grows with every
// claim of that execution and is never reset. Each write of an owner is checked against the lease
// in the same transaction, so a worker that lost the execution can neither overwrite the work of
// the next owner nor end the execution.
//
// A program uses Belay through a [Backend]. Package embedded opens a Backend whose engine runs in
// the caller's own process; package client opens a Backend that sends its calls to a server over
// HTTP. Packages workflow and worker use nothing but the Backend, so the same workflow code runs on
// every Backend.
//
// # Clocks
//
// All decisions about time use the clock of the store. Workers receive durations, never deadlines,
// and no timestamp of a worker's clock enters a decision.
//
// This package imports the standard library only; every other package of the module may import it.
package belay
