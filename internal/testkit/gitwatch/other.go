//go:build !linux

package gitwatch

// StandIn does nothing on this system, because Watch needs Linux.
func StandIn() {}
