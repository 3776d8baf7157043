// Package peer finds out whether a process of a job is at the other end of a connection within this
// machine. Jobs may do nothing without an API key; other processes of the machine may.
//
// # Sources
//
// For a TCP connection, package peer requests the socket at the other end from the kernel, by the
// addresses of both ends. The kernel answers with the user who made the socket and with its inode;
// /proc shows the processes that have this inode open. For a unix socket the kernel reports the
// process at the other end. Since Linux 6.5 it also gives a descriptor of the process (a pidfd), so
// that a later process with the same number is not mistaken for it.
//
// # Unknown peers are refused
//
// A socket that is closed by now, that no visible process has open, or whose process cannot be
// examined, is treated as a job's socket: otherwise a job could send its request and close the
// socket before the check.
//
// # Limits
//
// A process outside of all jobs that acts for other processes, such as a proxy or a bus that passes
// descriptors on, is answered with its own rights. If jobs run as the user of the server, they can
// use such a process to reach the server; requiring a key of every caller prevents that.
package peer
