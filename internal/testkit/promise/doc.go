// Package promise has the checkers of docs/guarantees.md that need only public data: executions
// with their events, and the answers to calls. It is test support. The tests of the rules, the
// conformance suite of the stores, the simulation and the chaos tests judge their histories with
// it. Checks that need more (rows, commits, injected faults) are in the tests that have that
// data.
//
// # A history
//
// A [History] has a [Story] for each execution, which is its row and its events in the form that
// the checkers need; the sessions of workers; an [Entry] for each call, as the caller saw it; and
// a [Sighting] for each event that a watcher received. Each user fills in the parts that it has:
// without calls only the stories are judged.
//
// # The checkers
//
// Each promise, G1 to G15, has a function that looks at a history and notes in a [Finding] what
// breaks the promise. The functions follow from the promises and not from the code: where both
// need a formula, the checker has its own, and this package does not import the rules.
//
// The users of the checkers show that the checkers find faults: each user plants bugs, and the
// checker of the broken promise must find each bug.
package promise
