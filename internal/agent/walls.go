package agent

import (
	"context"
	"log/slog"
	"net"

	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/workflow"
)

// Walls are the parts of a command's sandbox: paths that are hidden from the command, secret files
// that stay hidden if they are replaced, paths below the hidden paths that the command may still
// read, its network, and the parts without which the command must not start.
type Walls struct {
	Hidden, Secrets, Readable []string
	Network                   process.Network
	Insist                    []process.Wall
	// Proxy makes a proxy for one command whose Network is process.ProxiedNetwork. run has the attributes of log lines
	// about the run of the command; it is empty outside of runs.
	Proxy func(run slog.Attr) Proxy
}

// Proxy is the only way by which a command on a proxied network reaches other hosts. Each command
// has its own Proxy.
type Proxy struct {
	// Serve answers requests on a listener until the listener is closed. Every request must have
	// Token.
	Serve func(net.Listener)
	Token string
	// Direct are the hosts to which programs connect without the proxy, as in process.Command.
	Direct []string
	// Refused describes in a few printable lines the requests that the proxy refused.
	Refused func() []string
}

// around adds the walls (the parts of the sandbox) to a command. It also returns a function that
// describes, after the end of the command, the network requests that the proxy refused. If ctx belongs to a run, the
// log lines of the proxy name it.
func (w *Walls) around(ctx context.Context, c process.Command) (walled process.Command, refused func() []string) {
	c.Hidden, c.Secrets, c.Readable, c.Network, c.Insist = w.Hidden, w.Secrets, w.Readable, w.Network, w.Insist
	if w.Proxy == nil {
		return c, func() []string { return nil }
	}
	p := w.Proxy(workflow.LogAttr(ctx))
	c.Proxy, c.ProxyToken, c.Direct = p.Serve, p.Token, p.Direct
	return c, p.Refused
}
