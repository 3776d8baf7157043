package peer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// ErrUnknown means that nothing can be said of the other end.
var ErrUnknown = errors.New("the kernel does not tell who is at the other end")

// Socket is one end of a TCP connection, as the kernel knows it.
type Socket struct {
	// UID is the user who made it.
	UID uint32
	// Inode is its number in /proc; never 0.
	Inode uint32
}

// Remote finds the socket at the other end of a connection within this machine.
// The error is [ErrUnknown] if there is none: it is closed by now, or elsewhere.
func Remote(c net.Conn) (Socket, error) {
	here, ok := addressOf(c.LocalAddr())
	there, ok2 := addressOf(c.RemoteAddr())
	if !ok || !ok2 {
		return Socket{}, fmt.Errorf("%w: this is no TCP connection", ErrUnknown)
	}
	return find(there, here)
}

// addressOf is a TCP address without the mapping of IPv4 into IPv6.
func addressOf(a net.Addr) (netip.AddrPort, bool) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, false
	}
	p := tcp.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port()), p.IsValid()
}
