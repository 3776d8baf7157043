package probe

import (
	"net/netip"
	"strings"
	"testing"
)

// Rule: a worker cannot aim the probes of a server at another machine, at services of a machine, or at an address that
// does not belong to one machine alone (such as a multicast address), unless the configuration allows it.
func TestAWorkerCannotAimProbesElsewhere(t *testing.T) {
	all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	some := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	local := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for _, c := range []struct {
		health, from string
		allow        []netip.Prefix
		want         string // an address, or a part of the refusal
	}{
		{":9090", "10.0.0.7", nil, "10.0.0.7:9090"},
		{":9090", "fd00::7", nil, "[fd00::7]:9090"},
		{":9090", "::ffff:10.0.0.7", nil, "10.0.0.7:9090"},
		{"10.0.0.7:9090", "10.0.0.7", nil, "10.0.0.7:9090"},
		{"[::ffff:10.0.0.7]:9090", "10.0.0.7", nil, "10.0.0.7:9090"},
		{"[::1]:9090", "127.0.0.1", nil, "[::1]:9090"},
		{"10.1.2.3:9090", "10.0.0.7", some, "10.1.2.3:9090"},
		{"10.1.2.3:9090", "", some, "10.1.2.3:9090"},
		{"127.0.0.1:9090", "", local, "127.0.0.1:9090"},

		{"10.0.0.8:9090", "10.0.0.7", nil, "does not contain 10.0.0.8"},
		{"10.2.0.1:9090", "10.0.0.7", some, "does not contain 10.2.0.1"},
		{"127.0.0.1:9090", "10.0.0.7", nil, "does not contain 127.0.0.1"},
		{"127.0.0.1:9090", "10.0.0.7", all, "does not contain 127.0.0.1"},
		{"[::ffff:127.0.0.1]:9090", "10.0.0.7", all, "does not contain 127.0.0.1"},
		{"[::1]:9090", "10.0.0.7", all, "does not contain ::1"},
		{"10.0.0.7:9090", "127.0.0.1", nil, "does not contain 10.0.0.7"},
		{":9090", "", all, "connects through a proxy"},
		{"10.2.0.1:9090", "", some, "connects through a proxy"},
		{"0.0.0.0:9090", "0.0.0.0", all, "not the address of one machine"},
		{"[::]:9090", "10.0.0.7", all, "not the address of one machine"},
		{"255.255.255.255:9090", "10.0.0.7", all, "not the address of one machine"},
		{"224.0.0.1:9090", "10.0.0.7", all, "not the address of one machine"},
		{"[ff02::1]:9090", "10.0.0.7", all, "not the address of one machine"},
		{"169.254.169.254:8080", "10.0.0.7", all, "not the address of one machine"},
		{"[::ffff:169.254.169.254]:8080", "10.0.0.7", all, "not the address of one machine"},
		{":8080", "169.254.169.254", all, "not the address of one machine"},
		{"[fe80::1]:9090", "fe80::1", all, "not the address of one machine"},
		{"[fe80::1%eth0]:9090", "fe80::1", all, "not IP:PORT"},
		{":80", "10.0.0.7", all, "port 80 is below 1024"},
		{":0", "10.0.0.7", all, "port 0 is below 1024"},
		{"10.0.0.7:22", "10.0.0.7", all, "port 22 is below 1024"},
		{":65536", "10.0.0.7", all, "not IP:PORT"},
		{":9090/x", "10.0.0.7", all, "not IP:PORT"},
		{":9090@10.1.1.1:9090", "10.0.0.7", all, "not IP:PORT"},
		{"localhost:9090", "127.0.0.1", all, "not IP:PORT"},
		{"metadata.google.internal:9090", "10.0.0.7", all, "not IP:PORT"},
		{"0x7f000001:9090", "10.0.0.7", all, "not IP:PORT"},
		{"2130706433:9090", "10.0.0.7", all, "not IP:PORT"},
		{"127.1:9090", "127.0.0.1", all, "not IP:PORT"},
		{"http://10.0.0.7:9090", "10.0.0.7", all, "not IP:PORT"},
		{"9090", "10.0.0.7", all, "not IP:PORT"},
		{":", "10.0.0.7", all, "not IP:PORT"},
	} {
		var from netip.Addr
		if c.from != "" {
			from = netip.MustParseAddr(c.from)
		}
		r := Rules{Allow: c.allow}
		to, err := r.Target(c.health, from)
		got := to.String()
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != c.want || err != nil && !strings.Contains(got, c.want) {
			t.Errorf("%q of a worker at %q, allowed %v: %s, want %s", c.health, c.from, c.allow, got, c.want)
		}
	}
}
