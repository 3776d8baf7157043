package agent

import (
	"net"

	"github.com/belaydev/belay/internal/agent/process"
)

// Walls are parts of a command's sandbox: the hidden paths, the paths below them that it sees all
// the same, its network, and the parts without which the command is not started.
type Walls struct {
	Hidden, Readable []string
	Network          process.Network
	Insist           []process.Wall
	// Proxy makes a proxy for one command on a proxied network.
	Proxy func() Proxy
}

// Proxy gives one command its way out of a proxied network.
type Proxy struct {
	// Serve answers on a listener until it is closed, and demands Token.
	Serve func(net.Listener)
	Token string
	// Direct are the hosts that programs reach without the proxy, as in process.Command.
	Direct []string
	// Refused describes the requests that the proxy refused, in a few printable lines.
	Refused func() []string
}

// around adds the walls to a command. The returned function describes, after the command's end, the
// requests that were refused.
func (w *Walls) around(c process.Command) (walled process.Command, refused func() []string) {
	c.Hidden, c.Readable, c.Network, c.Insist = w.Hidden, w.Readable, w.Network, w.Insist
	if w.Proxy == nil {
		return c, func() []string { return nil }
	}
	p := w.Proxy()
	c.Proxy, c.ProxyToken, c.Direct = p.Serve, p.Token, p.Direct
	return c, p.Refused
}
