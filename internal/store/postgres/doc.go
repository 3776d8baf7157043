// Package postgres is a store in one PostgreSQL database, which any number of servers share. No
// server leads; each one works correctly alone.
//
// # Words
//
// A batch is the set of commands that one transaction of the engine decides on. A mark is the time
// of a decision; each commit writes its mark into a row of its connection. A mark of life is a mark
// whose commit could also renew sessions (see mark.go). A floor is a guess of the earliest time at
// which an execution in a lane is ready; it lets a claim skip dead index entries (see floor.go).
// The front is the same kind of guess for the indexes of due work (see front.go). Grace is the time
// by which all sessions are extended after an outage of all servers.
//
// # A batch
//
// A commit takes two round trips to the database, however large it is. The first begins the
// transaction, locks the rows that the commands need, loads everything that belongs to them and
// reads the clock, in one pipeline. Then the caller decides. The second writes the changes, the
// server's mark and COMMIT, in another pipeline. Statements are prepared once for each connection
// and take their rows as arrays, so that a few statements write a thousand rows. A third round trip
// is made only to load ancestors of ready executions and specs of executions that exist.
//
// Locks are taken in one order, each kind by id: sessions, executions, ready executions of lanes,
// keys. Ready executions are the exception: they are locked in the order in which claims take them,
// but with SKIP LOCKED, so that no transaction waits for a ready execution. Rows that two servers may
// both add (executions, keys) are added in the order of their primary keys. With this order,
// transactions do not deadlock. If PostgreSQL finds a deadlock anyway, the batch is repeated.
//
// # Why READ COMMITTED is enough
//
// Every statement sees what was committed before it began, and a locked row is the newest version.
// No decision uses a row that is not locked, except data that never changes and data that is
// checked again under a lock:
//
//   - A single fenced writer and no stale effect (guarantees G1 and G2): an execution is read under
//     its lock, and everything that belongs to it (runs, checkpoints, signals, actions, logs) is
//     written only under that lock. The session of its owner is locked FOR KEY SHARE until the
//     commit. A session ends, and begins to drain, only under FOR UPDATE, which waits for that
//     lock. The clock is read after all locks.
//   - Several transactions may renew a session, and count its claims, at the same
//     time, each with a shared lock. Such a write names the version of the row that
//     was read. If another transaction has changed the row meanwhile, the batch is
//     repeated with an exclusive lock on the row.
//   - Nothing acknowledged is lost, transitions are atomic (guarantees G3 and G4): a batch is one
//     transaction. A child's end and its parent's progress are in one batch, whose executions are
//     locked together with all their ancestors. The ancestors are read first, without a lock, since
//     parents never change. If a locked execution has an ancestor that was not among these, the
//     batch begins again.
//   - No limbo (guarantee G5): the executions of a worker are read without a lock; each is changed
//     by a command of its own, which is decided under the lock. If another transaction changes a
//     ready row after PostgreSQL found the row in the index and before it locks the row, PostgreSQL
//     reads the row again and leaves it out if it is not ready any more. If other transactions have
//     locked ready rows, the engine soon reads the lane again.
//   - A single execution for a key (guarantee G9): keys are unique in the database. If two batches
//     add the same key, the second one fails, begins again and finds the key.
//   - After an outage, the first transaction that finds all servers' marks too old
//     begins again under an advisory lock, with all living sessions locked, so that
//     grace is given once.
//
// # When the connection fails
//
// If the connection ends before COMMIT was sent, nothing was written, and the batch is repeated on
// another connection. If the connection ends after COMMIT was sent and before the answer, the store
// asks the database for the outcome of the transaction, by the transaction's number. If the database
// has committed the transaction, the store makes another commit and waits for its answer: then both
// commits have reached everything that a commit must reach (such as standbys), and the store
// acknowledges the batch. If the database has aborted the transaction, the batch is repeated. If the
// database does not answer for two seconds, or another database answers, the outcome is unknown
// (CodeUnavailable).
//
// If a server stops in the middle of a batch, the rows of the batch stay locked until PostgreSQL ends
// the transaction, after a tenth of Options.Patience. A server that cannot reach the database notices
// this after Patience.
//
// # Time and epoch
//
// The clock is the database's. Each transaction reads it after its locks. Between transactions the
// process adds the time that has passed since the last reading, and never shows a later time than
// the database. The clock never shows an earlier time than any mark of life. If the database is not
// the one of the last epoch (it was restored into another server, or promoted), the store raises
// the epoch in every token before it writes.
//
// # Plans
//
// Connections ask for generic plans without sequential scans, hash joins or bitmaps: every frequent
// statement reaches its rows by an index in a nested loop, whatever the statistics were when it was
// planned. Updates use the primary key. A claim reads its lane's part of the ready index from a
// floor on, so that dead entries of earlier claims cost nothing even while PostgreSQL cannot remove
// them.
package postgres
