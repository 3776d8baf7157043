// Package socket makes the socket of a data directory, connects to it, decides which processes may
// use it, and serves the engine of the directory on it. The host is the process that runs the
// engine.
//
// The directory's owner, the user of this process and root may use the socket; its mode is 0600. A
// peer of another user is refused, and with a [peer.Judge] also a process of a job. A directory
// that other users may change is refused; see [Check].
//
// # HELLO
//
// A client keeps one request open, GET /datadir/hello. The host answers with a line that names its
// process ([Hello]), and with another line when it stops ([Goodbye]). When a process is killed, the
// kernel closes the connection. So the second line, or the end of the connection, tells the client
// that the engine of this host is gone.
//
// # Giving way
//
// POST /datadir/yield requests that the host stop the engine, so that another process can become
// the host. A host that does not give way answers with 409.
package socket
