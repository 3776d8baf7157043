// Package embedded opens a Backend whose engine runs in the caller's own process, so that a program
// has durable functions without a separate server.
//
//	b, err := embedded.Open(ctx, "sqlite:./belay-data")
//
// A data directory (mode 0700) has the files belay.db and belay.lock. It has one engine at a time:
// the engine of the process that has the lock. The kernel releases the lock when that process ends,
// also when it crashes, so a new engine can start at once. The new engine proves that the old
// process has ended, ends the processes that the old process left behind, and continues its
// executions without waiting for a lease to expire.
//
// # PostgreSQL
//
//	b, err := embedded.Open(ctx, "postgres://belay@db/app")
//
// Any number of engines, in programs and in servers on any number of machines, share a database.
// All engines are equal; there is no leader. They inform each other of changes by NOTIFY, and find
// changes by polling if a notification is lost. The first engine that opens the database creates or
// migrates the schema.
//
// # Beside other programs
//
//	b, err := embedded.Open(ctx, "sqlite:./belay-data", embedded.Listen())
//
// Only the program that opened an engine on a data directory can use the engine, unless the engine
// listens. Then the belay command (belay ls, belay submit, belay signal, …) and other programs of
// the same user use the engine through the socket in the directory. Reading needs no socket:
// commands that only read, such as belay ls, read the directory while any program uses it.
package embedded
