// Package peer tells who is at the other end of a connection within this machine:
// a person's process, or one of a job, which may do nothing here without a key.
//
// # What is asked
//
// Of a TCP connection the kernel tells the socket at its other end, by both
// addresses: the user who made it, and its inode, by which /proc tells the processes
// that have it open. Of a unix socket the kernel tells the process that connected
// it, and hands out a descriptor of that process where it can, so that no other can
// have taken its number.
//
// # What is not known is refused
//
// A socket that is closed by now, that no process is seen to have, or whose process
// cannot be looked at, counts as a job's: otherwise a job would send and close.
//
// # What does not hold
//
// A process that is no job's and does what others ask of it (a proxy, a bus that
// passes descriptors on) speaks with its own rights. Where jobs run as the user of
// the server, such a process is a way in; a key is the wall there.
package peer
