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
// [Sighting] for each event that a watcher received. Each user fills in the parts for which it has
// data: without calls, the checkers check only the stories.
//
// # The checkers
//
// Each promise, G1 to G15, has a function that reads a history and records in a [Finding] what
// breaks the promise. The functions follow from the promises and not from the code: where both need
// a formula, the checker has its own formula, and this package does not import the rules.
//
// The users of the checkers test that the checkers find faults: each user plants bugs in the
// system, and the checker of the broken promise must find each bug.
package promise
