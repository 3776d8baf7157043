// Package chaos runs real processes on one real store, while a plan drawn from a seed kills, cuts
// off and restarts them. Then it compares the results that all callers got with the content of the
// store. The package contains only tests.
//
// # The world
//
// There are two worlds. In the first world, three belay serve run on one PostgreSQL database, the
// second server through a pgbouncer in session mode and the third behind a proxy that causes
// faults. In the second world, one belay serve has a data directory with SQLite, and its clients
// connect through a proxy of the same kind. In a run of at most a minute the worlds run at the same
// time, since their processes wait most of the time; otherwise one world follows the other. Both
// worlds also have:
//
//   - Six workers, each connected to one server; they are this test binary in another role. The
//     workers with even numbers are near: their host can prove their death. The workers with odd
//     numbers are far: they claim to be on another machine and connect through a proxy that causes
//     faults, so only an expired TTL ends their sessions. A slot stands for one worker, whose
//     processes run one after the other.
//   - A belay worker with commands that run from the beginning to the end.
//   - Clients that submit, signal, cancel, pause and retry. A root is an execution that such a
//     client submits.
//   - Watchers, which follow executions.
//   - Ghosts, which write under leases that they have lost.
//   - A vandal, which sends invalid requests.
//
// # The faults
//
// A plan is drawn from the seed before anything starts. The plan has these faults, each with its
// time and its victim: a process is killed with SIGKILL, stopped and continued, or ended
// gracefully; the database is restarted, is killed or ends its backends; a connection is cut,
// delayed, slowed down or half open. On PostgreSQL there are further faults: several servers are
// killed at once, the pooler is killed, a table is locked, the database refuses writes or its disk
// is full, a snapshot stays open, and a transaction keeps idempotency keys locked under which
// clients submit executions. The faults of one victim are carried out one after the other. In the
// end, when everything has been read, a short retention is turned on and the servers are killed
// while they delete. The same seed gives the same faults at the same moments, but not the same
// history, since the processes run freely.
//
// # RabbitMQ
//
// TestChaosOfMessages runs a world of each kind whose executions reach the workers through RabbitMQ, with the
// clients and a part of the faults. Beside these faults, messages are purged, repeated, forged, and taken out of
// their queues and put back in another order; queues are deleted; connections are closed; and RabbitMQ is stopped
// and continued, killed and restarted (a short run leaves kills and restarts out, because RabbitMQ needs seconds to
// start). Real processes cannot have bugs, so TestBugsOfMessagesAreCaught plants bugs into a server and its workers
// in this process. TestRollingReplacement replaces all workers under load.
//
// # The two histories
//
// Every caller records the result of each call: ok, refused with the reason, or unknown. Workers
// write these results to ledgers, files that outlive their processes. After the last fault every
// execution must settle, that is, end; then the test reads the content of the store through the
// API. Workers and ghosts report costs with their writes; since a worker may be killed before it
// can record an answer, it records each cost also before the call. The checkers see these two
// histories and nothing else. There is one checker for each promise of docs/guarantees.md (G1, G2
// and so on), in internal/testkit/promise; this package checks faults, bounds of time, and all
// other data that package promise does not know.
//
// All times in both histories come from the clock of one machine, so that they can be compared. A
// check of a bound leaves out the times at which the servers could not act: the database was down,
// or all servers were down, or a server that was cut off in the middle of a batch had row locks, or
// the machine itself stood still.
//
// In addition to the load there are executions under a limit and a rate that all servers share,
// executions whose budget is spent and raised later, large payloads, submissions over many lanes,
// and poison: executions that kill every worker that runs them.
//
// Further executions use one resource in the modes A, B and C. A workflow changes the mode; its workers
// are also killed or stopped in the middle of a change on purpose. The workers write into their
// ledgers when they begin and end to use the resource or to change its mode. Their work after the loss
// of a lease does not count: Belay cannot hold up a process that is stopped and continued, so a
// resource must refuse such a worker by the number of the change and the token.
//
// Other tests of this package check two more faults: power cuts, by copies of a file system in a
// loop device, and the promotion of two standbys of one primary, one after the other. A test cannot
// set the clock of a machine for one process from outside; internal/store
// (TestFrequentReadingsLoseNoTime) and internal/engine (TestAClockThatIsSetIsReported) test steps
// of the clock.
//
// Each fault has a quota, about the number that is planned for the length of the run. A run in
// which a fault happened less often is inconclusive.
//
// # Planted bugs
//
// After the run, the test plants bugs into a copy of the history: for example, it drops a row or
// deletes an acknowledged submission. The checker that is meant for a bug must find it; otherwise
// that checker's ok proves nothing.
//
// # Running it
//
//	make chaos                  three minutes, the first of them on SQLite
//	make chaos FOR=1m SEED=17   a minute with the plan of seed 17, 40 s on PostgreSQL and beside
//	                            them 20 s on SQLite
//	make chaos STORE=sqlite     three minutes on SQLite alone
//
// A history that broke a promise is kept in a file; -args -judge FILE checks it again.
package chaos
