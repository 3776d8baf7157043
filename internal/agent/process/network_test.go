//go:build linux

package process

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startOutside starts a server for TCP and UDP outside the run, on this machine. A run with a
// closed network must not reach the server. reached reports whether a run has reached the server.
func startOutside(t *testing.T) (address string, reached func() bool) {
	t.Helper()
	var met atomic.Bool
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			met.Store(true)
			_ = conn.Close()
		}
	}()
	p, err := net.ListenPacket("udp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	go func() {
		if n, _, err := p.ReadFrom(make([]byte, 100)); err == nil && n > 0 {
			met.Store(true)
		}
	}()
	return l.Addr().String(), met.Load
}

// networkAttacks lists the attacks that try to reach a server.
func networkAttacks(address string) []string {
	return []string{
		"dial tcp " + address, "fastopen " + address,
		fmt.Sprintf("stream %d %s", unix.IPPROTO_MPTCP, address), "uring",
		fmt.Sprintf("socket %d %d", unix.AF_VSOCK, unix.SOCK_STREAM), fmt.Sprintf("socket %d %d", unix.AF_ALG,
			unix.SOCK_SEQPACKET),
	}
}

// Rule: a run without a network cannot reach a server by any kind of socket. If it has a network
// namespace, it can use the loopback of that namespace.
func TestWallNoNetwork(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		address, reached := startOutside(t)
		c, _ := sealed(t, kind)
		permitted(t, c, "dial tcp "+address) // with the machine's network the run can reach the server
		until(t, "it is reached", reached)
		address, reached = startOutside(t)
		c.Network, c.Insist = NoNetwork, []Wall{WallNetwork}
		r := repelled(t, c, append(networkAttacks(address), "dial tcp [::1]:80",
			fmt.Sprintf("socket %d %d", unix.AF_INET6, unix.SOCK_RAW))...)
		if sent, _ := assault(t, c, "datagram "+address); sent["datagram "+address] == "open" && kind == Subreaper ||
			reached() {
			t.Errorf("the server was reached: %v; %q", reached(), sent)
		}
		if by := r.Walls.Closed; strings.Contains(by, byNamespace) != (kind != Subreaper) ||
			!strings.Contains(by, byFilter) {
			t.Errorf("closed by %q", by)
		}
		within := []string{"socket 1 1"}
		if kind != Subreaper {
			within = append(within, "listen tcp 127.0.0.1:7420", "listen tcp [::1]:0", "socket 2 2")
		}
		permitted(t, c, within...)
		c.without, c.Insist = []string{byLandlock}, nil
		repelled(t, c, networkAttacks(address)...)
		if c.without = []string{byFilter}; kind != Subreaper {
			repelled(t, c, networkAttacks(address)[:2]...)
			return
		}
		var missing *WallError
		if _, err := Run(t.Context(), c); !errors.As(err, &missing) || missing.Wall != WallNetwork ||
			!strings.Contains(missing.Reason, "no filter") {
			t.Errorf("with Landlock alone, which TCP passes by sending: %v", err)
		}
	})
}

// proxied returns a run with a proxy. calls counts the requests that the proxy has answered, and
// ended is closed when the proxy has ended.
func proxied(t *testing.T, kind Isolation) (c Command, calls *atomic.Int32, ended chan struct{}) {
	t.Helper()
	c, _ = sealed(t, kind)
	calls, ended = new(atomic.Int32), make(chan struct{})
	c.Network, c.ProxyToken, c.Insist = ProxiedNetwork, "a-token-of-this-run-alone", []Wall{WallNetwork}
	c.Proxy = func(l net.Listener) {
		defer close(ended)
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("Authorization", r.Header.Get("Proxy-Authorization"))
			if _, password, _ := r.BasicAuth(); password != c.ProxyToken {
				w.WriteHeader(http.StatusProxyAuthRequired)
				return
			}
			calls.Add(1)
		}))
	}
	return c, calls, ended
}

// Rule: a run on a proxied network reaches its proxy at the address in its environment, and reaches
// no other server, by any kind of socket. The proxy ends when the run ends.
func TestWallProxiedNetwork(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		address, reached := startOutside(t)
		c, calls, ended := proxied(t, kind)
		lines := append(networkAttacks(address), "fetch http://example.invalid/")
		if kind == Subreaper { // with a network namespace the packet can be sent but reaches no server
			lines = append(lines, "datagram "+address)
		}
		results, r := assault(t, c, lines...)
		for _, line := range lines {
			if got := results[line] == "open"; got != strings.HasPrefix(line, "fetch") {
				t.Errorf("%s: %q", line, results[line])
			}
		}
		if reached() || calls.Load() != 1 {
			t.Errorf("the server was reached: %v; the proxy was called %d times", reached(), calls.Load())
		}
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			t.Error("the proxy has not ended with its run")
		}
		if strings.Contains(r.Walls.Closed, byNamespace) != (kind != Subreaper) {
			t.Errorf("closed by %q", r.Walls.Closed)
		}
		for _, without := range []string{byLandlock, byFilter} {
			c, _, _ := proxied(t, kind)
			c.without, c.Insist, c.Args = []string{without}, nil, []string{"true"}
			var missing *WallError
			if _, err := Run(t.Context(), c); errors.As(err, &missing) != (kind == Subreaper) || kind != Subreaper &&
				err != nil {
				t.Errorf("without %s: %v", without, err)
			}
		}
	})
}

// Rule: if a run has a network namespace, no other process can connect to the run's proxy. If the
// command could not be started, Proxy is not called.
func TestWallProxyOfARun(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		a, _, _ := proxied(t, kind)
		a.Args = []string{"/bin/sh", "-c", "echo $http_proxy; read x"}
		out := new(transcript)
		a.Output, a.Grace = out.take, -1
		a.Args[2] = "echo $http_proxy; sleep " + unique()
		begin(t, t.Context(), a)
		until(t, "it says where its proxy is", func() bool { return strings.HasSuffix(out.String(), "\n") })
		_, at, _ := strings.Cut(strings.TrimSpace(out.String()), "@")
		conn, err := net.Dial("tcp", at)
		if (err == nil) != (kind == Subreaper) {
			t.Errorf("from this machine, %s: %v", at, err)
		}
		if err == nil {
			_ = conn.Close()
		}
		c, _, ended := proxied(t, kind)
		c.Args = []string{"/absent"}
		var failed *StartError
		if _, err := Run(t.Context(), c); !errors.As(err, &failed) {
			t.Errorf("%v", err)
		}
		select {
		case <-ended:
			t.Error("a proxy was called for nothing")
		default:
		}
	})
}

// Rule: Start refuses an impossible configuration of the network or of paths.
func TestWallNetworkIsChecked(t *testing.T) {
	serve := func(net.Listener) {}
	for want, change := range map[string]func(c *Command){
		"unknown network":        func(c *Command) { c.Network = "some" },
		"without a proxy":        func(c *Command) { c.Network = ProxiedNetwork },
		"only a proxied network": func(c *Command) { c.Network, c.Proxy = NoNetwork, serve },
		"needs a token": func(c *Command) {
			c.Network, c.Proxy, c.ProxyToken = ProxiedNetwork, serve, "short"
		},
		"a proxied network needs": func(c *Command) {
			c.Network, c.Proxy, c.ProxyToken = ProxiedNetwork, serve, "has spaces in it, as none should"
		},
		"direct host": func(c *Command) {
			c.Network, c.Proxy, c.ProxyToken, c.Direct = ProxiedNetwork, serve, "a-token-of-this-run-alone",
				[]string{"*"}
		},
		`unknown wall "moat"`:      func(c *Command) { c.Insist = []Wall{"moat"} },
		`hidden path "tmp/.."`:     func(c *Command) { c.Hidden = []string{"tmp/.."} },
		`hidden path "/"`:          func(c *Command) { c.Hidden = []string{"/"} },
		`readable path "relative"`: func(c *Command) { c.Readable = []string{"relative"} },
		`directory for temporary`:  func(c *Command) { c.Tmp = "tmp" },
		`writable directory "/a/"`: func(c *Command) { c.Writable = []string{"/a/"} },
		`hidden path ""`:           func(c *Command) { c.Hidden = []string{""} },
	} {
		c := Command{ID: "r", Args: []string{"true"}, Dir: "/"}
		change(&c)
		if _, err := Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

// Rule: if a wall (a restriction of the sandbox) in Command.Insist is missing, the command is not
// started, and the error names the wall and the reason why it is missing.
func TestWallInsist(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		for wall, want := range map[Wall]string{
			WallUser: "the command has no user", WallSeal: "no directories were named", WallHidden: "no path was named",
			WallNetwork: "the command has the network of the machine", WallLimits: "the command has no limits",
		} {
			c, _ := shell(t, kind, "touch started")
			c.Insist = []Wall{wall}
			c.without = []string{byLandlock}
			var missing *WallError
			_, err := Run(t.Context(), c)
			if !errors.As(err, &missing) || missing.Wall != wall || missing.Isolation != kind ||
				!strings.Contains(missing.Reason, want) {
				t.Errorf("%s: %v", wall, err)
			}
			if _, err := os.Stat(c.Dir + "/started"); err == nil {
				t.Errorf("%s: it was started", wall)
			}
		}
		c, _ := sealed(t, kind)
		c.Args, c.without, c.Limits, c.bounds = []string{"true"}, []string{byLandlock}, Limits{CPU: 1}, byRlimit
		for wall, lacking := range map[Wall]bool{WallSeal: kind == Subreaper, WallApart: kind == Subreaper,
			WallLimits: true} {
			c.Insist = []Wall{wall}
			var missing *WallError
			if _, err := Run(t.Context(), c); errors.As(err, &missing) != lacking || lacking && missing.Wall != wall ||
				!lacking && err != nil {
				t.Errorf("%s: %v", wall, err)
			}
		}
	})
}
