// Package simulation runs Belay's engines, workers and clients under a seeded scheduler and checks
// the promises of docs/guarantees.md. It contains only tests.
//
// # The world
//
// A world has one or two nodes (real engines) on one memory store; workers of the SDK that run real
// workflows; bare workers, which violate the protocol on purpose; outsiders, which are external
// owners; clients; and watchers. All of them run in one testing/synctest bubble: time is virtual,
// and this package alone decides how it passes. A plan, drawn from the seed, says how many of them
// there are, whether a node commits several batches at the same time, after which time the nodes
// delete ended executions, and which faults happen.
//
// # The gate
//
// Calls stop at one gate: every call from a node to the store, every call from a worker or client
// to a node, both on the way there and on the way back, and every batch of a committer before it is
// taken. A call that has stopped there is a ticket. Once all goroutines rest, the driver draws one
// ticket from the seed and decides its fate: the call is carried out; it fails; it is carried out
// and its answer is lost; or it waits longer. So only one thing happens at a time, in an order that
// the seed gives, and the same seed gives the same history down to the last decision.
//
// This gate has nothing to do with the gates of Belay, which decide whether a due execution may
// start a run. In half of the plans, submissions name limits, rates and targets, steps call
// targets, and an operator changes gates; the type gateRows reads from the commits how the gates of Belay have changed.
//
// Steps, checkpoints and ends of runs report costs. In half of the plans submissions have budgets,
// which clients raise and lower. Clients also repair executions: they work on dead letters, retry
// from a step, fork before a step, give executions up, and delete executions that have ended. In half of the plans a
// planner sets, changes and removes schedules, and starts slots by hand.
//
// This requires that the code between two decisions does not depend on the scheduler of goroutines.
// The code would depend on the scheduler through a select with several ready cases (so each timer
// gets a duration that no other timer has), through the order in which goroutines queue (so the
// engine's committer gathers a batch and sorts it), through iteration over maps, and through ids
// and jitter drawn from a shared source (so they are derived from names and moments).
// TestTheSameSeedGivesTheSameTrace checks this.
//
// # Faults
//
// Calls fail, lose their answer, or take long. Nodes crash, one or all. Workers are killed, stopped
// and continued, asked to stop, or cut off from the network in one direction or both. The store's
// clock is set forwards and backwards. Calls of a dead process, called ghosts, still arrive. Hints
// between nodes (guesses about the store that make the nodes faster and decide nothing) arrive,
// come late or are lost. A nemesis is a fault, or the repair of a fault, that the driver causes at
// a chosen moment. Each seed has its own plan: in some plans only one kind of fault happens, in
// some none.
//
// A worker's fence is the time after which it starts no step, because its lease may be over. A
// suspect is an execution that was lost several times in a row; it runs alone. The grace of a
// commit is the time by which it extends all sessions after a gap of the marks of life.
//
// # Two phases
//
// In the safety phase faults happen all the time. In the healing phase there are no more faults:
// everything is started again, paused executions are resumed, spent budgets are raised, and
// executions that wait for a signal that was never sent get one. At the end every execution must
// have ended.
//
// # The checkers
//
// A checker reads only the history of a run: the answers to callers, every commit, and the store's
// rows at the end. The history in the form that the checkers need is a book; it has a story for
// each execution and a shift for each session. Each promise has a checker: internal/testkit/promise
// checks the public history, and the files g2 to g18 of this package check commits and rows. A
// promise has the number that docs/guarantees.md gives it, such as G2. Mutants are planted bugs:
// each changes the data that passes a seam (a call, a reply, the rows of a fold), and the checker
// of the promise that the mutant breaks must find it.
//
// # The races
//
// The test tries known races systematically: explore runs two concurrent calls in every order and
// with every fate of each call. The world of such a test is a rig: one node without faults of its
// own, in which the test makes every decision.
//
// # Running it
//
//	make simulation             200 seeds, the mutants, the races
//	make simulate SEEDS=1000    so many seeds
//	make simulate SEED=17       one seed, with all that happened
package simulation
