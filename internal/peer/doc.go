// Package peer finds out whether a process of a job is at the other end of a connection within this
// machine. Jobs may do nothing without an API key; other processes of the machine may.
//
// # Sources
//
// For a TCP connection, package peer asks the kernel which socket is at the other end, by the
// addresses of both ends. The kernel answers with the user who made the socket and with its inode;
// /proc shows the processes that have this inode open. For a unix socket the kernel reports the
// process at the other end. Since Linux 6.5 it also gives a descriptor of the process (a pidfd), so
// that a later process with the same number is not mistaken for this process.
//
// # Unknown peers are refused
//
// A socket that is closed by now, that no visible process has open, or whose process cannot be
// examined, is treated as a job's socket: otherwise a job could send its request and close the
// socket before the check.
//
// # Limits
//
// Some processes outside of all jobs send requests for other processes: a proxy, or a bus that
// passes descriptors on. The server answers such a request as the process's own request. So jobs
// that run as the user of the server can reach the server through such a process. A server that
// requires a key of every caller prevents that.
package peer
