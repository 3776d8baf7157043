// Package chaos lets real processes work on one real store while a seed decides
// what is killed, cut off and restarted, and then holds what everybody was told
// against what the store has kept. It holds tests only.
//
// # The world
//
// There are two worlds, one after the other. In one, three belay serve work on one
// PostgreSQL, the second through a pgbouncer in session mode and the third behind a
// proxy that fails. In the other, one belay serve has
// a data directory with SQLite, and its clients stand behind that proxy. The rest is
// the same in both. Six workers, which are this test binary in another role and speak to one server
// each: the even ones near (their death is proven on their host), the odd ones
// far (they say that they are on another machine, stand behind a proxy that
// fails, and only time gives them up). One belay worker with commands that run
// from the beginning to the end. Clients that submit, signal, cancel, pause and
// retry; watchers; ghosts, who write under leases that they have lost; and a
// vandal, who sends what nobody should.
//
// # What goes wrong
//
// A plan is drawn from the seed before anything starts: when which process is
// killed with SIGKILL, stopped and continued or ended in order, when the database
// is restarted, killed or ends its backends, when which line is cut, held up,
// slow or half open. On PostgreSQL several servers are killed at once, the pooler is
// killed, a table is locked, the database refuses writes or finds no room on its
// disk, a snapshot grows old, and a transaction holds keys that servers are asked
// for. Each victim carries out its own part, one thing after the other. In the end,
// when all has been read, a short retention is turned on and the servers are killed
// while they delete. What the processes make of it is theirs: the same seed gives
// the same faults at the same moments, not the same history.
//
// # Two histories
//
// Whoever calls notes what it was told: ok, refused and why, or nothing it could
// know from. Workers write that to ledgers, which outlive them. After the last
// fault everything must settle; then the store is read through the API. The
// checkers see these two histories and nothing else. There is one for each
// promise, in internal/promise; faults, bounds of time, and whatever else only
// chaos has are judged here.
//
// The moments in both come from the clock of one machine, so that they can be
// compared. Where a bound is checked, the times are left out at which nothing
// could have been done: the database was away, or all servers, or a server that
// was cut off in the middle of a batch held its rows, or the machine itself
// stood still.
//
// Beside the load there are large payloads, submissions over many lanes, and poison:
// executions that kill every worker that runs them.
//
// Two things have tests of their own here: power cuts, by copies of a file system in a
// loop device, and the promotion of two standbys of one primary, one after the other.
// The clock of a machine cannot be set for one process from outside: steps of the
// clock are tested in internal/store (TestFrequentReadingsLoseNoTime) and in
// internal/engine (TestAClockThatIsSetIsReported).
//
// Each fault has a quota, about as many as are planned for so long a run. A run in
// which a fault happened less often is inconclusive.
//
// # Planted bugs
//
// Afterwards bugs are planted into a copy of the history: a row dropped, an
// acknowledged submission deleted, and others. Each must be found by the checker
// that it is meant for, or that one's ok counts for nothing.
//
// # Running it
//
//	make chaos                  three minutes, the first of them on SQLite
//	make chaos FOR=1m SEED=17   a minute of what seed 17 decides
//	make chaos STORE=sqlite     three minutes on SQLite alone
//
// A history that broke a promise is kept in a file; with -args -judge FILE it is
// judged again.
package chaos
