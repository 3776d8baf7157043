// Package peer finds out whether a process of a job is at the other end of a connection within this
// machine. Jobs may do nothing without an API key; other processes of the machine may.
//
// # Sources
//
// For a TCP connection, package peer asks the kernel for the socket at the other end, by both
// addresses. The kernel answers with the user who made the socket and with its inode; /proc shows
// the processes that have this inode open. For a unix socket the kernel reports the process at the
// other end and, since Linux 6.5, gives a descriptor of the process (a pidfd), so that the process
// cannot be mistaken for a later one with the same number.
//
// # Unknown peers are refused
//
// A socket that is closed by now, that no visible process has open, or whose process cannot be
// examined, counts as a job's: otherwise a job could send its request and close the socket.
//
// # Limits
//
// A process that is not of a job but acts for other processes, such as a proxy or a bus that passes
// descriptors on, is answered with its own rights. Where jobs run as the user of the server, jobs
// can use such a process to reach the server; requiring a key of every caller prevents that.
package peer
