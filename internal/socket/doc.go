// Package socket is a data directory's socket: making it, reaching it, deciding
// whom it serves, and serving the engine of the directory on it.
//
// The socket is for the directory's owner, for the user of this process and for
// root; its mode is 0600. A peer of another user is refused, and so is a process of
// a job where a [peer.Judge] is given. A directory that others may change has no
// socket ([Check]).
//
// # HELLO
//
// A client keeps one request open, GET /datadir/hello. The server answers with a
// line that says which process it is ([Hello]), and with another when it stops
// ([Goodbye]). That line or the end of the connection, which the kernel closes when
// a process is killed, tells the client that the engine there is gone.
//
// POST /datadir/yield asks the process to leave the engine to another. A server
// that does not yield answers with 409.
package socket
