package egress

import "net/url"

// Variables are what makes programs use a proxy at HOST:PORT: those of curl, git,
// Go, Python and Node. The token, which may be "", is the password in the address.
func Variables(address, token string) map[string]string {
	u := url.URL{Scheme: "http", Host: address}
	if token != "" {
		u.User = url.UserPassword("job", token)
	}
	proxy := u.String()
	return map[string]string{
		"http_proxy": proxy, "https_proxy": proxy, "HTTP_PROXY": proxy, "HTTPS_PROXY": proxy,
		"no_proxy": "", "NO_PROXY": "", // a machine's own exceptions would lead nowhere
		"NODE_USE_ENV_PROXY": "1",
	}
}
