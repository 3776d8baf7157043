// Package sqlite is a store in one SQLite database, without cgo.
//
// # Connections
//
// One connection writes; its transactions begin immediate and stand one after
// the other. A few others read, each call in one snapshot, and block nobody.
// The database is in WAL mode with synchronous=FULL: a commit is in the log and
// fsynced when it is acknowledged. When the log has grown a third connection
// moves it into the database, beside the writer; if it grows on the writer waits.
//
// The database file is never opened beside the driver: closing a second
// descriptor would drop the locks that SQLite holds on it in this process.
// Another process may read at any time (Options.ReadOnly). That only one engine
// writes is for its owner to see to; two would not damage each other's rows, but
// each would tell its own time.
//
// # Writing
//
// A commit loads the rows it needs, lets the caller decide, and writes what was
// decided. Statements are prepared once for each connection. Rows are loaded by
// lists of ids of a few lengths; new rows are inserted by a few at a time; of an
// execution that changed only the columns that did are written, so that an index
// is touched only when what it holds has changed. The hot rows written or read
// last are kept in memory (see cache).
//
// # When the disk fails
//
// A full disk refuses the commit, whole, and the next one may pass. After a
// write or an fsync that failed nothing more is written, since an fsync that is
// tried again may succeed without having written anything: the commit in
// question may be there or not (CodeUnavailable), and all that follow are refused
// with store.ErrBroken until the process ends. The next one to open the database
// writes what the log holds into it anew before it does anything else.
//
// # When the log is gone
//
// A crash leaves the newest commits in the log alone, and SQLite takes a database
// without its log for a whole one. A number in the database and in a file beside it
// tells that commits are missing; see generation.
//
// # Time
//
// The clock is the process's, made monotone over restarts: every commit writes
// the time of its decision as the server's mark, and no clock shows less than
// any mark.
package sqlite
