// Package belay holds the nouns of Belay, its error codes and the Backend
// interface behind which they are served.
//
// An [Execution] is one instance of a workflow and has exactly one owner at a
// time. The owner holds a [Lease]: a secret and a fencing [Token] that grows
// with every claim of that execution, for ever. Whatever an owner writes is
// checked against its lease in the transaction that writes it, so a worker that
// fell behind can neither overwrite its successor's work nor end it.
//
// A [Backend] is the whole of Belay as a program sees it. Package embedded
// opens one with the engine in the caller's own process. Packages workflow and
// worker are written against Backend alone: the same workflow code runs on
// every Backend there is.
//
// # Clocks
//
// One clock decides: the store's. Workers are given durations, never deadlines,
// and no timestamp of a worker enters a decision.
//
// This package imports the standard library only, and everything else in the
// module points down to it.
package belay
