//go:build !linux

package socket

import "net"

// trusted relies on the directory's mode where the kernel does not say who the
// peer is.
func trusted(net.Conn, string) error { return nil }
