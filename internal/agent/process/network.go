package process

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// Network is what a run can reach beyond itself.
type Network string

// The networks of a run. NoNetwork and ProxiedNetwork need a network namespace, or else a filter of
// system calls; ProxiedNetwork without a namespace needs Landlock as well. If these are not
// available, Start fails with a [*WallError].
const (
	// HostNetwork is every network that the machine can reach.
	HostNetwork Network = ""
	// NoNetwork is only the run's own loopback, or no network at all if there are no namespaces.
	NoNetwork Network = "none"
	// ProxiedNetwork is NoNetwork plus one address on the loopback, at which Command.Proxy answers.
	ProxiedNetwork Network = "proxied"
)

// proxyPort is the port at which the proxy listens in a network namespace, where no other process
// can have taken it.
const proxyPort = 17420

// proxyUser is the user name in the address of the proxy; the password is the token.
const proxyUser = "job"

// leastToken is the length that makes a token impossible to guess.
const leastToken = 16

var tokenText = regexp.MustCompile(`^[A-Za-z0-9._~-]+$`)

func (c *Command) validateNetwork() error {
	switch c.Network {
	case HostNetwork, NoNetwork:
		if c.Proxy != nil {
			return fmt.Errorf("a proxy for the network %q: only a proxied one has one", c.Network)
		}
		return nil
	case ProxiedNetwork:
		if c.Proxy == nil {
			return errors.New("a proxied network without a proxy")
		}
		if len(c.ProxyToken) < leastToken || !tokenText.MatchString(c.ProxyToken) {
			return fmt.Errorf("a proxied network needs a token of at least %d letters and digits", leastToken)
		}
		for _, host := range c.Direct {
			if host == "" || host == "*" || strings.ContainsAny(host, ", \x00") {
				return fmt.Errorf("direct host %q: want one name or address", host)
			}
		}
		return nil
	}
	return fmt.Errorf("unknown network %q", c.Network)
}

// proxyEnvironment returns the variables that send programs to the proxy at address: those that
// curl, git, Go and Python read, and the one that makes Node read them. Requests to the direct
// hosts do not use the proxy.
func proxyEnvironment(address, token string, hosts []string) map[string]string {
	u := (&url.URL{Scheme: "http", User: url.UserPassword(proxyUser, token), Host: address}).String()
	direct := strings.Join(hosts, ",")
	return map[string]string{
		"http_proxy": u, "https_proxy": u, "HTTP_PROXY": u, "HTTPS_PROXY": u, "ALL_PROXY": u, "all_proxy": u,
		"no_proxy": direct, "NO_PROXY": direct, "NODE_USE_ENV_PROXY": "1",
	}
}
