package reach

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// maxName is the maximum length of a name in DNS.
const maxName = 253

// Target is the destination of a request: a name or an address, in canonical form, and a port.
type Target struct {
	name string     // "" for an address
	addr netip.Addr // the zero Addr for a name
	port int
}

// Host returns the name or the address, without brackets.
func (t Target) Host() string {
	if t.name != "" {
		return t.name
	}
	return t.addr.String()
}

// String returns HOST:PORT, with brackets around an IPv6 address.
func (t Target) String() string { return net.JoinHostPort(t.Host(), strconv.Itoa(t.port)) }

// NewTarget makes a target from a port and a host, which may have any form that a request can
// contain.
func NewTarget(host string, port int) (Target, error) {
	if port < 1 || port > 65535 {
		return Target{}, fmt.Errorf("port %d is not from 1 to 65535", port)
	}
	name, addr, err := canonical(host)
	return Target{name: name, addr: addr, port: port}, err
}

// ParseTarget parses HOST:PORT. A text without a port gets defaultPort; if defaultPort is 0, such a
// text is refused.
func ParseTarget(text string, defaultPort int) (Target, error) {
	host, port, err := splitPort(text)
	if err != nil {
		return Target{}, err
	}
	n := defaultPort
	if port != "" {
		if n, err = parsePort(port); err != nil {
			return Target{}, err
		}
	}
	if n == 0 {
		return Target{}, errors.New("it names no port")
	}
	return NewTarget(host, n)
}

// splitPort splits HOST, HOST:PORT, [V6] and [V6]:PORT. It returns the port as text; "" if there is
// no port.
func splitPort(text string) (host, port string, err error) {
	rest := ""
	if inner, after, ok := strings.Cut(text, "]"); ok && strings.HasPrefix(inner, "[") {
		host, rest = inner[1:], after
		if !strings.Contains(host, ":") {
			return "", "", errors.New("only an IPv6 address may be in brackets")
		}
	} else if i := strings.IndexByte(text, ':'); i >= 0 {
		host, rest = text[:i], text[i:]
	} else {
		host = text
	}
	if rest == "" {
		return host, "", nil
	}
	port, ok := strings.CutPrefix(rest, ":")
	switch {
	case !ok, strings.ContainsAny(port, "[]"):
		return "", "", errors.New("it is not HOST:PORT")
	case strings.Contains(port, ":"):
		return "", "", errBare
	case port == "":
		return "", "", errors.New("there is a colon and no port after it")
	}
	return host, port, nil
}

// errBare is the error for an IPv6 address without brackets. The last part of such an address could
// also be a port.
var errBare = errors.New("an IPv6 address must be in brackets")

func parsePort(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || text[0] < '1' || text[0] > '9' {
		return 0, fmt.Errorf("port %s is not a number from 1 to 65535", Printable(text))
	}
	return int(n), nil
}

// canonical returns a host in the form in which hosts are compared and dialled: either as a name or
// as an address.
func canonical(host string) (string, netip.Addr, error) {
	none := netip.Addr{}
	if strings.ContainsAny(host, ":%") {
		addr, err := netip.ParseAddr(host)
		switch {
		case err != nil:
			return "", none, errors.New("it is neither a name nor an address")
		case addr.Zone() != "":
			return "", none, errors.New("an address with a zone means another place on each machine")
		}
		return "", addr.Unmap(), nil
	}
	name := strings.TrimSuffix(host, ".")
	if addr, err := netip.ParseAddr(name); err == nil {
		return "", addr, nil
	}
	name = lower(name)
	if err := checkName(name); err != nil {
		return "", none, err
	}
	return name, none, nil
}

// lower converts only ASCII letters to lower case. strings.ToLower would turn some other letters,
// such as the Kelvin sign, into ASCII letters; lower keeps these letters, so that checkName refuses
// them.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// checkName returns an error for a name that is not a valid host name in DNS, and for a name that
// some programs would interpret as an address.
func checkName(name string) error {
	if name == "" {
		return errors.New("it names no host")
	}
	if len(name) > maxName {
		return fmt.Errorf("a name has %d characters at most", maxName)
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if err := checkLabel(label); err != nil {
			return err
		}
		last = label
	}
	if numeric(last) {
		return errOddAddress
	}
	return nil
}

var (
	errOddAddress = errors.New("an IPv4 address is written as four decimal numbers without leading zeros")
	errNotASCII   = errors.New("a name outside of ASCII is written in its encoded form, which begins with xn--")
)

func checkLabel(label string) error {
	for _, r := range label {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
		case r >= 0x80:
			return errNotASCII
		default:
			return fmt.Errorf("%s is not allowed in the name of a host", Printable(string(r)))
		}
	}
	switch {
	case label == "":
		return errors.New("two dots follow each other in it, or it begins with one")
	case len(label) > 63:
		return errors.New("a part of a name between two dots has 63 characters at most")
	case label[0] == '-', label[len(label)-1] == '-':
		return errors.New("no part of a name begins or ends with a hyphen")
	}
	return nil
}

// numeric reports whether label, the last part of a name, is a decimal, octal or hexadecimal
// number. Programs interpret such a name as an IPv4 address; no top-level domain is a number.
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// Printable returns text of unknown origin in a printable form: quoted ASCII of limited length, without
// control characters and direction marks.
func Printable(text string) string {
	const most = 300
	if len(text) > most {
		return strconv.QuoteToASCII(text[:most]) + "…"
	}
	return strconv.QuoteToASCII(text)
}
