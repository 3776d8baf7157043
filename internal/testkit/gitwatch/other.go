//go:build !linux

package gitwatch

// StandIn does nothing on this system, on which Watch does not exist.
func StandIn() {}
