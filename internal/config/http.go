package config

import (
	"net/url"
	"strings"
)

// HTTP is the configuration of the built-in workflow "http".
type HTTP struct {
	Concurrency int      // 0 for none
	Egress      []string // the hosts that requests may reach; see package reach
	Proxy       string   // the URL of a forward proxy, or ""; it may contain a password, see Shown
}

// httpKeys are the keys of the workflow "http", and of the secrets of tasks.
var httpKeys = []Key{
	{Name: "http.concurrency", Doc: "How many executions of the built-in workflow \"http\" this process runs at the " +
		"same time; 0 for none. belay worker runs them only if this key is set for it.",
		of: func(c *Config) kind { return number{&c.HTTP.Concurrency, 0, 10_000} }},
	{Name: "http.egress", Doc: "The hosts that HTTP requests may reach: public for all public hosts at the ports 443 " +
		"and 80, public:8443 for another port, names like api.example.org, *.example.org and git.example.org:8080, " +
		"addresses and ranges like 10.20.0.0/16:8080, or none. A name may lead to a private address only if it is " +
		"listed exactly; a loopback address must be listed itself.",
		of: func(c *Config) kind { return places{&c.HTTP.Egress} }},
	{Name: "http.proxy", Doc: "The URL of a forward proxy for all HTTP requests; unless set, requests use no proxy, " +
		"whatever the environment says. With a proxy, Belay checks the names of hosts, and the proxy must check the " +
		"addresses to which they resolve.",
		of: func(c *Config) kind { return proxy{&c.HTTP.Proxy} }},
	{Name: "secrets.allow", Doc: "The secrets to which tasks may refer, one rule for each, in the form NAME [from " +
		"SOURCE] for WORKFLOW,… [to HOST,…], where SOURCE is env:VARIABLE, file:PATH or git:URL; unless set, tasks " +
		"have no secrets. The word to lists the hosts to which an HTTP request may send the secret.",
		of: func(c *Config) kind {
			return words{&c.Secrets, `rules, such as ["API_TOKEN for http to api.example.org"]`}
		}},
}

// proxy is the kind of a value that is the URL of a forward proxy.
type proxy struct{ to *string }

func (k proxy) set(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return false
	}
	*k.to = s
	return true
}
func (proxy) want() string   { return "a URL such as http://proxy.example.org:3128" }
func (k proxy) show() string { return Shown(*k.to) }
func (proxy) word() string   { return "text" }
func (proxy) tags() []string { return []string{"!!str"} }
