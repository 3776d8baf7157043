package reach

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

const (
	// noHosts is the text of the policy that allows no host.
	noHosts = "none"
	// publicHosts is the pattern for all names and addresses of the public internet.
	publicHosts = "public"
)

// Parse parses the patterns of a policy. The error has one line for each invalid pattern. Parse
// refuses an empty list, because a person could expect that an empty list allows nothing, or that
// it allows everything.
func Parse(patterns []string) (*Policy, error) {
	if len(patterns) == 0 {
		return nil, fmt.Errorf("the list is empty; did you mean %q, which closes the network?", noHosts)
	}
	if len(patterns) == 1 && patterns[0] == noHosts {
		return &Policy{}, nil
	}
	p := &Policy{}
	var faults []error
	for _, text := range patterns {
		r, err := parseRule(text)
		if err != nil {
			faults = append(faults, explain(text, err))
			continue
		}
		if !slices.ContainsFunc(p.rules, func(have rule) bool { return have.String() == r.String() }) {
			p.rules = append(p.rules, r)
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return p, nil
}

var (
	errAll = fmt.Errorf("it would allow every host; list those that are needed, or %q for all public hosts",
		publicHosts)
	errStanding  = fmt.Errorf("%q must be the only entry of the list", noHosts)
	errWord      = errors.New("it is not a host")
	errWildcard  = errors.New("a star is only allowed at the beginning, before a dot, for the names below a domain")
	errTopLevel  = errors.New("it would allow everything below a top level domain; name one more part")
	errLocalhost = errors.New("a loopback address is listed as an address")
	errURL       = errors.New("it is a URL, but a pattern is HOST or HOST:PORT")
	errRange     = errors.New("it is not a range of addresses")
	errHostBits  = errors.New("the address has bits beyond the length of the range")
	errMixed     = errors.New("it contains addresses of several kinds, such as private addresses; list each " +
		"range separately")
)

// closingWords are words with which a person may mean that there is no network.
var closingWords = []string{"", "none", "no", "off", "nothing", "false", "null"}

func parseRule(text string) (rule, error) {
	switch {
	case text == noHosts:
		return rule{}, errStanding
	case slices.Contains(closingWords, lower(strings.Trim(text, " \t\n."))):
		return rule{}, errWord
	case text == "*" || text == "all" || text == "any" || strings.HasPrefix(text, "*:"):
		return rule{}, errAll
	case strings.Contains(text, "://"):
		return rule{}, errURL
	}
	host, port, err := splitPort(text)
	if err != nil {
		return rule{}, err
	}
	r := rule{ports: defaultPorts}
	if port != "" {
		n, err := parsePort(port)
		if err != nil {
			return rule{}, err
		}
		r.ports = []int{n}
	}
	if host == publicHosts {
		r.public = true
		return r, nil
	}
	if strings.Contains(host, "/") {
		r.prefix, err = parseRange(host)
		return r, err
	}
	if domain, ok := strings.CutPrefix(host, "*."); ok {
		r.below, host = true, domain
	}
	if strings.Contains(host, "*") {
		return rule{}, errWildcard
	}
	return r.withHost(host)
}

// withHost returns the rule r with the given host.
func (r rule) withHost(host string) (rule, error) {
	name, addr, err := canonical(host)
	switch {
	case err != nil:
		return rule{}, err
	case isLocalhost(name):
		return rule{}, errLocalhost
	case r.below && name == "":
		return rule{}, errWildcard
	case r.below && !strings.Contains(name, "."):
		return rule{}, errTopLevel
	case name == "":
		r.prefix = netip.PrefixFrom(addr, addr.BitLen())
	}
	r.name = name
	return r, nil
}

// isLocalhost reports whether a name always means the machine on which it is resolved.
func isLocalhost(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

func parseRange(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil || p.Addr().Is4In6():
		return p, errRange
	case p.Masked() != p:
		return p, errHostBits
	case kindOf(p.Addr()) != kindOf(last(p)):
		return p, errMixed
	}
	return p, nil
}

// explain returns the error for an invalid pattern. If suggest returns a valid pattern, the error
// suggests that pattern.
func explain(text string, err error) error {
	if better := suggest(text, err); better != "" {
		if _, bad := parseRule(better); bad == nil || better == noHosts {
			return fmt.Errorf("%s: %w; did you mean %s?", Printable(text), err, better)
		}
	}
	return fmt.Errorf("%s: %w", Printable(text), err)
}

// suggest returns the pattern that the operator may have meant; "" if there is no good suggestion.
func suggest(text string, err error) string {
	trimmed := strings.TrimSpace(text)
	switch {
	case errors.Is(err, errWord):
		return noHosts
	case trimmed != text:
		return trimmed
	case errors.Is(err, errURL):
		return fromURL(text)
	case errors.Is(err, errBare):
		return "[" + text + "]"
	case errors.Is(err, errHostBits):
		p, _ := netip.ParsePrefix(strings.Trim(text, "[]"))
		return p.Masked().String()
	case errors.Is(err, errRange) && strings.Contains(text, "."): // the form HOST/PATH
		host, _, _ := strings.Cut(text, "/")
		return host
	case errors.Is(err, errWildcard):
		return "*." + strings.TrimLeft(text, "*.")
	case strings.HasPrefix(text, "."):
		return "*" + text
	}
	host, port, ok := strings.Cut(text, ":")
	if ok {
		port = ":" + port
	}
	switch {
	case errors.Is(err, errLocalhost):
		return "127.0.0.1" + port
	case errors.Is(err, errOddAddress):
		if addr, ok := oddAddress(lower(host)); ok {
			return addr.String() + port
		}
	case ok:
		if n := services[lower(port[1:])]; n != "" {
			return host + ":" + n
		}
	}
	return ""
}

// services are the numbers of well-known ports, by name.
var services = map[string]string{
	"http": "80", "https": "443", "ssh": "22", "git": "9418", "postgres": "5432", "postgresql": "5432",
}

// fromURL returns the host and the port of a URL.
func fromURL(text string) string {
	scheme, rest, _ := strings.Cut(text, "://")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	if _, port, err := splitPort(rest); err == nil && port == "" && services[lower(scheme)] != "" {
		rest += ":" + services[lower(scheme)]
	}
	return rest
}

// oddAddress parses an IPv4 address as the C library does: one to four numbers, decimal, octal or
// hexadecimal; the last number fills the remaining bits. It is used only for suggestions, never to
// connect.
func oddAddress(text string) (netip.Addr, bool) {
	parts := strings.Split(text, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var all uint64
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 0, 64)
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (5 - len(parts))
		}
		if err != nil || n >= 1<<bits {
			return netip.Addr{}, false
		}
		all = all<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(all >> 24), byte(all >> 16), byte(all >> 8), byte(all)}), true
}
