// Package datadir lets any number of processes on one machine share a data directory. The host is
// the process that runs the engine; all other processes are its clients and reach the engine through
// a socket. When the host ends, another process becomes the host.
//
// # The directory
//
//	belay.db     the store
//	belay.lock   flocked by the process that has the engine: the host
//	belay.sock   where the host serves the HTTP API, and HELLO below
//
// The mode of the directory is 0700 and that of the socket 0600. Both the host and a client refuse
// a peer of another user and a process of a job ([Options.InJob]). Other processes need no API key.
// A directory that other users may change is not used at all; see [socket.Check].
//
// # Becoming the host
//
// A process that needs the engine tries to take the lock. If it gets the lock, it is the host: it
// opens the store, binds a socket under a temporary name and renames this socket to belay.sock. If
// it does not get the lock, it dials the socket. If neither works, it starts over until its
// patience has passed, and it starts over whenever it loses the lock or the host. So nothing that a
// dead process leaves behind is in the way:
//
//   - a socket without a listener refuses at once, and the rename replaces it;
//   - a host that starts or stops has the lock and refuses connections for a moment;
//   - a lock that outlives its process, since a child that was just forked has it too, is free a
//     moment later;
//   - of two processes that start at the same time only one gets the lock.
//
// A host that stops says good-bye, ends the engine, so that calls that wait are answered, sends
// these answers, closes the store and only then unlocks. It never unlinks the socket, which may
// belong to the next host by then.
//
// Sessions belong to the store, so workers go on with the next host. A call in flight when the host
// ends is repeated with the same operation id, under which the store finds the operation if it has
// happened. A call without an operation id is answered with CodeUnavailable.
//
// # HELLO
//
// A client keeps one request open, GET /datadir/hello. The host answers with a line that says which
// process it is, and with another line when it stops. The second line, or the end of the
// connection, which the kernel closes when a process is killed, tells the client that its host is
// gone, so that the client does not have to wait for a call that never returns.
//
// # Giving way
//
// POST /datadir/yield asks the host to give way to a process that serves for long: belay serve, or
// a program that listens (embedded.Listen). A host with another purpose stops hosting, names the
// next host in its good-bye, and goes on as a client; clients that read the name leave the lock
// alone for a moment. A host that does not give way answers with 409.
//
// # Limits
//
// A host that is stopped (SIGSTOP, Ctrl-Z) keeps the lock, and all other processes wait for it:
// running work freezes before its lease ends, as in any outage, and goes on when the host does.
// Commands that only read the store do not need the host.
package datadir
