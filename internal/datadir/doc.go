// Package datadir lets any number of processes on one host share a data
// directory: one of them has the engine, the others reach it through a socket,
// and when the one goes the next takes over.
//
// # The directory
//
//	belay.db     the store
//	belay.lock   flocked by the process that has the engine: the host
//	belay.sock   where the host serves the HTTP API, and HELLO below
//
// Its mode is 0700 and that of the socket 0600; a peer of another user is refused,
// and so is a process of a job ([Options.InJob]), at either end. Nobody else needs a
// key here. A directory that others may change is not used at all ([Check]).
//
// # Who hosts
//
// Who needs the engine tries the lock. Who gets it is the host: it opens the
// store, binds a socket under a temporary name and renames that over belay.sock.
// Who does not get it dials the socket. Until one of the two works it starts
// over, as long as its patience lasts, and it starts over whenever it loses what
// it has. So nothing that a dead process leaves behind is in the way:
//
//   - a socket that nobody listens on refuses at once, and is renamed over;
//   - a host that starts or stops has the lock and refuses on the socket, for a
//     moment;
//   - a lock that outlives its holder, held by a child that was just forked, is
//     free a moment later;
//   - two that start at the same time are told apart by the lock.
//
// A host that stops says good-bye, ends the engine, so that what waits is
// answered, sends what was answered, closes the store and only then unlocks. It
// never unlinks the socket: by then it may be another's.
//
// Sessions belong to the store, so workers go on with the next host. A call in
// flight when the host goes is made again with the same operation id, which the
// store knows if it had happened; only what has no such id is answered with
// CodeUnavailable.
//
// # HELLO
//
// A client keeps one request open, GET /datadir/hello. The host answers with a
// line that says who it is, and with another when it stops. That line or the end
// of the connection, which the kernel sees to when a process is killed, tells
// the client that its host is gone, and it need not find out by a call that does
// not return.
//
// # Giving way
//
// POST /datadir/yield asks the host to give way to a process that is there to
// stay: belay serve, or a program that listens (embedded.Listen). A host that is
// there for something else stops hosting, says in its good-bye which process comes,
// and goes on as a client; clients that hear that leave the lock alone for a moment.
// A host that does not yield answers with 409.
//
// # What does not hold
//
// A host that is stopped (SIGSTOP, Ctrl-Z) keeps the lock, and everybody waits
// for it: work freezes at the fence, as in any outage, and goes on when the host
// does. Readers do not need the host.
package datadir
