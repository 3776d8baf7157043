// Package promise holds the checkers of docs/guarantees.md that need no more than what everybody
// can see: an execution with
// its events, and what callers were told. It is test support. The tests of the rules, the suite of
// the stores, the simulation
// and chaos all judge their histories with it; what one of them alone can see (rows, commits, faults) it checks itself.
//
// # A history
//
// A [History] has a [Story] for each execution, the sessions of workers, an [Entry] for each call
// as its caller was told of
// it, and a [Sighting] for each event that a watcher saw. A tier fills in what it has: without
// calls only the stories are
// judged.
//
// # The checkers
//
// Each promise, G1 to G15, has a function that looks at a history and notes in a [Finding] what breaks the promise. The
// functions are written against the promises and not against the code: where both need a formula,
// the checker has its own, and
// this package does not know the rules.
//
// That the checkers find anything is shown where they are used: each tier plants bugs, and each bug
// must be found by the
// checker that it is meant for.
package promise
