package process

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// Network is the network that a run can reach.
type Network string

// The networks of a run. NoNetwork and ProxiedNetwork need a network namespace or a filter of
// system calls; ProxiedNetwork with such a filter also needs Landlock. Start returns a [*WallError]
// if the machine does not support them.
const (
	// HostNetwork allows every network that the machine can reach.
	HostNetwork Network = ""
	// NoNetwork allows only the run's own loopback; without a network namespace it allows no
	// network.
	NoNetwork Network = "none"
	// ProxiedNetwork is like NoNetwork but also allows one address on the loopback, at which
	// Command.Proxy answers.
	ProxiedNetwork Network = "proxied"
)

// proxyPort is the port of the proxy in the network namespace of a run. In that namespace no
// process of another run can use the port.
const proxyPort = 17420

// proxyUser is the user name in the proxy's address; the token is the password.
const proxyUser = "job"

// leastToken is the minimum length of a token; a shorter token could be guessed.
const leastToken = 16

var tokenText = regexp.MustCompile(`^[A-Za-z0-9._~-]+$`)

func (c *Command) validateNetwork() error {
	switch c.Network {
	case HostNetwork, NoNetwork:
		if c.Proxy != nil {
			return fmt.Errorf("a proxy for the network %q: only a proxied network has a proxy", c.Network)
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

// proxyEnvironment returns the variables that make programs use the proxy at address. curl, git, Go
// and Python read these variables; a further variable makes Node read them too. hosts are the hosts
// to which programs connect without the proxy.
func proxyEnvironment(address, token string, hosts []string) map[string]string {
	u := (&url.URL{Scheme: "http", User: url.UserPassword(proxyUser, token), Host: address}).String()
	direct := strings.Join(hosts, ",")
	return map[string]string{
		"http_proxy": u, "https_proxy": u, "HTTP_PROXY": u, "HTTPS_PROXY": u, "ALL_PROXY": u, "all_proxy": u,
		"no_proxy": direct, "NO_PROXY": direct, "NODE_USE_ENV_PROXY": "1",
	}
}
