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
// it does not get the lock, it dials the socket. If it can do neither, it tries again until its
// patience has passed. It also begins anew whenever it loses the lock or the host. So a process
// that dies, starts or stops never blocks the others for long:
//
//   - a dead host leaves a socket without a listener: it refuses connections at once, and the next
//     host replaces it by the rename;
//   - a host that starts or stops has the lock and refuses connections only for a moment;
//   - a child that a dead host had just forked may still have the host's lock: the lock is free a
//     moment later;
//   - of two processes that start at the same time only one gets the lock.
//
// A host that stops tells its clients so in a last line (the good-bye; see HELLO). Then it ends the
// engine, so that waiting calls are answered, sends these answers, closes the store and only then
// releases the lock. It never unlinks the socket, which may belong to the next host by then.
//
// Sessions belong to the store, so workers continue with the next host. A call in flight when the
// host ends is repeated with the same operation id, and the store finds the operation by this id if
// it was carried out already. A call without an operation id is answered with CodeUnavailable.
//
// # HELLO
//
// A client keeps one request open, GET /datadir/hello. The host answers with a line that names its
// process, and with another line, the good-bye, when it stops. When a process is killed, the kernel
// closes the connection. So the good-bye, or the end of the connection, tells the client that its
// host is gone, and the client does not wait for a call that would never return.
//
// # Giving way
//
// POST /datadir/yield requests that the host give way to a process that serves for long: belay
// serve, or a program that listens (embedded.Listen). A host with another purpose stops hosting,
// names the next host in its good-bye, and continues as a client. For two seconds, clients that
// have read the name do not try to take the lock. A host that does not give way answers with 409.
//
// # Limits
//
// A host that is stopped (SIGSTOP, Ctrl-Z) keeps the lock, and all other processes wait for it. As
// in any outage, running work is frozen before its lease ends, and continues when the host
// continues. Commands that only read the store do not need the host.
package datadir
