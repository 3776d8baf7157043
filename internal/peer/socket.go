package peer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// ErrUnknown means that the process at the other end could not be found.
var ErrUnknown = errors.New("the kernel does not show which process is at the other end")

// Socket has the kernel's data about one end of a TCP connection.
type Socket struct {
	// UID is the user who made the socket.
	UID uint32
	// Inode is the number of the socket in /proc; never 0.
	Inode uint32
}

// Remote finds the socket at the other end of a connection within this machine. The error is
// [ErrUnknown] if that socket is closed by now, or belongs to another machine.
func Remote(c net.Conn) (Socket, error) {
	here, ok := addressOf(c.LocalAddr())
	there, ok2 := addressOf(c.RemoteAddr())
	if !ok || !ok2 {
		return Socket{}, fmt.Errorf("%w: this is not a TCP connection", ErrUnknown)
	}
	return find(there, here)
}

// addressOf returns a TCP address; an IPv4 address that is mapped into IPv6 becomes IPv4 again.
func addressOf(a net.Addr) (netip.AddrPort, bool) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, false
	}
	p := tcp.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port()), p.IsValid()
}
