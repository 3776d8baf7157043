// Package promise contains the checkers of docs/guarantees.md that need only public data:
// executions with their events, and the answers to calls. Only tests use it: the tests of the
// rules, the conformance suite of the stores, the simulation and the chaos tests check their
// histories with it. Checks that need more data (rows, commits, injected faults) are in the tests
// that have that data.
//
// # A history
//
// A [History] has a [Story] for each execution, which is its row and its events in the form that
// the checkers need; the sessions of workers; an [Entry] for each call, as the caller saw it; and a
// [Sighting] for each event that a watcher received. Each test fills in the parts for which it has
// data: without calls, the checkers check only the stories.
//
// # The checkers
//
// Each promise, G1 to G17, has a function that reads a history and records in a [Finding] what
// breaks the promise. The functions are written from the text of the promises and not from the code
// of the engine: where both need a formula, the checker has its own formula, and this package does
// not import the engine's rules.
//
// The tests also check that the checkers find faults: they plant bugs in the system or in a
// history, and the checker of the broken promise must find each bug.
package promise
