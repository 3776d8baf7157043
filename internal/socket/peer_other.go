//go:build !linux

package socket

import "net"

// trusted accepts every peer: this system does not report the user of a peer, and the directory's
// mode keeps other users out.
func trusted(net.Conn, string) error { return nil }
