// Package sqlite is a store in one SQLite database, without cgo.
//
// # Connections
//
// A single connection writes. Its transactions begin with BEGIN IMMEDIATE and run one after the
// other. A few other connections read, each call in one snapshot, and block no other connection.
// The database is in WAL mode with synchronous=FULL: a commit is in the write-ahead log and fsynced
// before it is acknowledged. When the log has grown, a third connection moves its content into the
// database while the writer continues. If the log still grows, the writer waits for the move.
//
// The database file is never opened except through the driver: closing a second descriptor would
// drop the locks that SQLite has on the file in this process. Another process may read at any time
// (Options.ReadOnly). The owner of the data directory has to make sure that only one engine writes.
// Two engines would not damage each other's rows, but each would use its own clock.
//
// # Writing
//
// A commit loads the rows it needs, lets the caller decide, and writes the changes. Statements are
// prepared once for each connection. Rows are loaded by lists of ids, which have a few fixed
// lengths. New rows are inserted several at a time. When an execution changes, only its changed
// columns are written, so that an index is updated only if its content changes. The rows of
// executions that were written or read last are kept in memory (see cache).
//
// # When the disk fails
//
// If the disk is full, the whole commit is refused, and the next commit may succeed. After a failed
// write or fsync the store writes nothing more, because a repeated fsync may report success
// although the data was lost. The failed commit may be in the database or not (CodeUnavailable).
// All later commits are refused with store.ErrBroken until the process ends. The next process that
// opens the database first writes the content of the log to the database again.
//
// # When the log is gone
//
// After a crash the newest commits are only in the log, and SQLite accepts a database without its
// log as complete. A number in the database and in a file beside it shows whether commits are
// missing; see generation.
//
// # Time
//
// The store's clock follows the clock of the process and never goes back, even after a restart:
// every commit writes the time of its decision as the server's mark of life, and no clock of the
// store shows an earlier time than any mark.
package sqlite
