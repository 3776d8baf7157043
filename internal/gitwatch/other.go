//go:build !linux

package gitwatch

// StandIn does nothing on this system, on which nobody watches.
func StandIn() {}
