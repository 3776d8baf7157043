// Package simulation runs the whole of Belay under a seeded scheduler and checks
// its promises. It holds tests only.
//
// # The world
//
// One or two nodes (real engines) on one memory store, workers of the SDK that
// run real workflows, bare workers that speak the protocol carelessly, clients,
// watchers. All of it lives in one testing/synctest bubble: time is virtual, and
// nothing but this package decides how it passes.
//
// # The gate
//
// Every call from a node to the store, every call from a worker or client to a
// node, there and back, and every batch of a committer stops at one gate. Once
// everything has come to rest there, the driver draws one call from the seed and
// decides its fate: it goes; it fails; it is carried out and nobody hears of it;
// it is held for longer. So one thing happens at a time, in an order that the
// seed gives, and the same seed gives the same history to the last decision.
//
// That holds as long as what runs between two decisions does not depend on the
// scheduler of goroutines. What would break it: a select with several cases
// ready (timers get durations that no other has), the order in which goroutines
// queue (the engine's committer gathers a batch and sorts it), maps that are
// walked, ids and jitter drawn from a shared source (they are derived from names
// and moments). TestTheSameSeedGivesTheSameTrace watches over it.
//
// # What goes wrong
//
// Calls fail, lose their answer, take long; nodes crash, one or all; workers are
// killed, stopped and continued, asked to stop, cut off in one direction or both;
// the store's clock is set forwards and backwards; calls whose process has died
// arrive nevertheless; hints between nodes are heard, late or lost. Each seed has a plan of its
// own: some know one kind of
// fault only, some none.
//
// # Two phases
//
// First safety: faults all the time. Then healing: no more faults, everybody is
// started again, what is paused is resumed, and whoever waits for a signal that
// is not there gets one. Then nothing may stay open.
//
// # The checkers
//
// A checker reads the history and nothing else: what callers were told, every
// commit, what the store holds at the end. There is one for each promise: what
// everybody can see is judged by internal/promise, commits and rows are judged
// here, g2 to g12, each in a file of its own. Mutants plant bugs at the seams, and
// each must be found by the checker that it is meant for.
//
// # The races
//
// The known races are not left to chance: explore tries two calls that meet in
// every order, with every fate of each.
//
// # Running it
//
//	make simulation             ten seconds of seeds, the mutants, the races
//	make simulate SEEDS=1000    so many seeds
//	make simulate SEED=17       one seed, with all that happened
package simulation
