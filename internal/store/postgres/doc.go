// Package postgres is a store in one PostgreSQL database, which any number of
// servers share. None of them leads; each is right on its own.
//
// # A batch
//
// A commit takes two trips to the database, however large it is. The first
// begins the transaction, locks the rows of the need, loads all that belongs to
// them and reads the clock, in one pipeline. Then the caller decides. The second
// writes what was decided, the server's mark of life, and COMMIT, in another.
// Statements are prepared once for each connection and take their rows as
// arrays, a few statements for a thousand rows. A third trip is made only for
// ancestors of what is ready and for specs of executions that are there.
//
// Locks are taken in one order, each kind by id: sessions, executions, what is
// ready in lanes, keys. What is ready is the exception: it is taken in its own
// order but passed over where it is held (SKIP LOCKED), so that nobody waits for
// it. Rows that two servers may both add (executions, keys) are added in the
// order of their keys. What waits thus never waits in a circle; should
// PostgreSQL find a deadlock anyway, the batch is done again.
//
// # Why READ COMMITTED is enough
//
// Every statement sees what was committed before it began, and a locked row is
// the newest there is. Nothing is decided from a row that is not locked, but for
// what never changes and what is looked at again:
//
//   - One fenced writer and no stale effect (G1, G2): an execution is read under
//     its lock, and whatever belongs to it (runs, checkpoints, signals, actions,
//     logs) is written only under that lock. Its owner's session is held by FOR
//     KEY SHARE until the commit; a session ends, and begins to drain, only under
//     FOR UPDATE, which waits for that. The clock is read after all locks.
//   - Sessions are renewed, and count their claims, by many who hold them in
//     share. Such a write names the version of the row that was read, and if
//     somebody was quicker the batch is done again, with the row to itself.
//   - Nothing acknowledged is lost, transitions are atomic (G3, G4): all of a
//     batch is one transaction. A child's end and its parent's progress are in
//     one batch, whose executions are locked together with all their ancestors:
//     those are looked for first, without a lock, since parents never change. If
//     one turns up that was not looked for, the batch begins anew.
//   - No limbo (G5): what a worker owns is read without a lock; what must become
//     of it is a command of its own, which is decided under the lock. A ready row
//     that changed between the index and its lock is looked at again by
//     PostgreSQL and left out if it is not ready any more. What others hold is
//     looked at again soon.
//   - One execution for a key (G9): keys are unique in the database. Of two
//     batches that add one the second fails, begins anew and finds it.
//   - After an outage whoever finds the servers' marks too old begins anew alone,
//     under an advisory lock and with all living sessions locked, so that grace is
//     given once.
//
// # When the connection fails
//
// Before COMMIT was sent nothing was written, and the batch is done again on
// another connection. If the connection ends without an answer to it, the
// database is asked what became of the transaction, by its number: committed is
// acknowledged, with a commit after it so that it has reached whatever a commit
// must reach, aborted is done again. If nobody answers for two seconds, or
// another database does, the outcome is unknown (CodeUnavailable).
//
// A server that is stopped in the middle of a batch holds its rows; PostgreSQL
// ends its transaction after a tenth of Options.Patience. One that cannot reach the
// database does not know for as long as Patience.
//
// # Time and epoch
//
// The clock is the database's, read in each transaction after its locks; between
// them the process shows what the last readings said and never more. It shows
// nothing older than any mark of life. A database that is another than it was
// (restored into another server, promoted) raises the epoch in every token
// before it takes a write.
//
// # Plans
//
// Connections ask for generic plans without sequential scans, hash joins or
// bitmaps: every hot statement reaches its rows by an index in a nested loop,
// whatever the statistics said when it was planned. Updates go by primary key. A
// claim reads its lane's part of the ready index from a floor on (see floor.go),
// so that entries of what was claimed long ago cost nothing even while they
// cannot be removed.
package postgres
