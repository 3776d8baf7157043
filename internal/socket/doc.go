// Package socket makes the socket of a data directory, connects to it, decides which processes may
// use it, and serves the engine of the directory on it.
//
// The socket is for the directory's owner, for the user of this process and for root; its mode is
// 0600. A peer of another user is refused, and with a [peer.Judge] also a process of a job. A
// directory that other users may change is refused; see [Check].
//
// # HELLO
//
// A client keeps one request open, GET /datadir/hello. The server answers with a line that says
// which process it is ([Hello]), and with another line when it stops ([Goodbye]). The second line,
// or the end of the connection, which the kernel closes when a process is killed, tells the client
// that the engine of this process is gone.
//
// POST /datadir/yield asks the process to leave the engine to another process. A server that does
// not give way answers with 409.
package socket
