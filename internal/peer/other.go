//go:build !linux

package peer

import (
	"net"
	"net/netip"
)

// search is empty, because this system has no /proc.
type search struct{}

func find(netip.AddrPort, netip.AddrPort) (Socket, error) { return Socket{}, ErrUnknown }

// TCP refuses every connection, because this system does not show the process at the other end.
func (j *Judge) TCP(net.Conn) error { return ErrUnknown }

// Credentials are the number and the user of the process at the other end of a unix socket.
type Credentials struct {
	PID int
	UID uint32
}

// CredentialsOf returns ErrUnknown: only Linux is supported.
func CredentialsOf(*net.UnixConn) (Credentials, error) { return Credentials{}, ErrUnknown }

// Unix accepts every connection: the modes of the socket and its directories keep other users out.
func (j *Judge) Unix(*net.UnixConn) error { return nil }
