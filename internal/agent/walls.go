package agent

import (
	"net"

	"github.com/belaydev/belay/internal/agent/process"
)

// Walls are what a command does not see of this machine and what it sees below that all
// the same, what it can reach, and the walls without which it is not started.
type Walls struct {
	Hidden, Readable []string
	Network          process.Network
	Insist           []process.Wall
	// Proxy makes what serves one command a proxied network.
	Proxy func() Proxy
}

// Proxy is one command's way out of a proxied network.
type Proxy struct {
	// Serve answers on a listener until it is closed, and demands Token.
	Serve func(net.Listener)
	Token string
	// Direct are the hosts that programs are to reach without the proxy, as in
	// process.Command.
	Direct []string
	// Refused says what the command asked for in vain, a few lines that are fit to be
	// shown.
	Refused func() []string
}

// around puts the walls around a command. The function says, once the command has ended,
// what it was refused.
func (w *Walls) around(c process.Command) (walled process.Command, refused func() []string) {
	c.Hidden, c.Readable, c.Network, c.Insist = w.Hidden, w.Readable, w.Network, w.Insist
	if w.Proxy == nil {
		return c, func() []string { return nil }
	}
	p := w.Proxy()
	c.Proxy, c.ProxyToken, c.Direct = p.Serve, p.Token, p.Direct
	return c, p.Refused
}
