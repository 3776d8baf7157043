// Package embedded opens a Backend with the engine in the caller's own process:
// durable functions with nothing else to run.
//
//	b, err := embedded.Open(ctx, "sqlite:./belay-data")
//
// A data directory (mode 0700) holds belay.db and belay.lock, and has one
// engine at a time: whoever holds the lock. The kernel gives the lock back when
// its holder dies, however it dies, so a new engine can always start at once;
// it proves the old one dead, ends what that left behind and goes on with its
// executions without waiting for a lease to run out.
//
// # PostgreSQL
//
//	b, err := embedded.Open(ctx, "postgres://belay@db/app")
//
// A database is shared by any number of engines, in programs and in servers, on
// any number of machines: each may be asked for anything, and none leads. They
// tell each other by NOTIFY what has changed, and look for themselves where that
// gets lost. The schema is made and migrated when the first of them opens it.
//
// # Beside other programs
//
//	b, err := embedded.Open(ctx, "sqlite:./belay-data", embedded.Listen())
//
// An engine opened on a data directory is this program's alone, unless it listens:
// then the belay command (belay ls, belay submit, belay signal, …) and other programs
// of the same user use it through the socket in the directory. Reading needs no
// socket: belay ls and its like read the directory beside any program.
package embedded
