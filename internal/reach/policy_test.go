package reach

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func policy(t testing.TB, patterns ...string) *Policy {
	t.Helper()
	p, err := Parse(patterns)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Rule: a policy allows a listed name or address in any spelling, at the ports of its pattern, and
// nothing else.
func TestAllows(t *testing.T) {
	p := policy(t, "API.Anthropic.com.:443", "*.githubusercontent.com", "127.0.0.1:11434", "[::1]:8080",
		"10.0.0.0/8:5432", "[fd00::/8]", "git_1.example")
	for _, tt := range []struct {
		host string
		port int
		want bool
	}{
		{"api.anthropic.com", 443, true},
		{"API.ANTHROPIC.COM.", 443, true},
		{"api.anthropic.com", 80, false},
		{"anthropic.com", 443, false},
		{"x.api.anthropic.com", 443, false},
		{"api.anthropic.com.evil.org", 443, false},
		{"raw.githubusercontent.com", 443, true},
		{"a.b.githubusercontent.com", 80, true},
		{"raw.githubusercontent.com", 22, false},
		{"githubusercontent.com", 443, false},
		{"evilgithubusercontent.com", 443, false},
		{".githubusercontent.com", 443, false},
		{"*.githubusercontent.com", 443, false},
		{"127.0.0.1", 11434, true},
		{"127.0.0.1.", 11434, true},
		{"::ffff:127.0.0.1", 11434, true},
		{"127.0.0.1", 80, false},
		{"localhost", 11434, false},
		{"127.1", 11434, false},
		{"2130706433", 11434, false},
		{"0x7f.0.0.1", 11434, false},
		{"0x7f000001", 11434, false},
		{"0177.0.0.1", 11434, false},
		{"127.0.0.01", 11434, false},
		{"127.0.0.1.0x", 11434, false},
		{"１２７.0.0.1", 11434, false},
		{"127。0。0。1", 11434, false},
		{"::1", 8080, true},
		{"0:0:0:0:0:0:0:1", 8080, true},
		{"[::1]", 8080, false},
		{"::1%lo", 8080, false},
		{"::127.0.0.1", 11434, false},
		{"10.255.0.1", 5432, true},
		{"11.0.0.1", 5432, false},
		{"fd12::1", 443, true},
		{"fd00:ec2::254", 80, false}, // the address of a metadata service, which no range allows
		{"git_1.example", 443, true},
		{"api.anthropic.com\x00.evil.org", 443, false},
		{"api.anthropic.com%00", 443, false},
		{"api.anthropic.com/..", 443, false},
		{"user@api.anthropic.com", 443, false},
		{"api.anthropic.com:443", 443, false},
		{"api..anthropic.com", 443, false},
		{"api.anthropic.com..", 443, false},
		{" api.anthropic.com", 443, false},
		{"\u212Apple.githubusercontent.com", 443, false}, // Unicode treats the Kelvin sign as a k
		{"bücher.githubusercontent.com", 443, false},
		{"xn--bcher-kva.githubusercontent.com", 443, true},
		{strings.Repeat("a", 64) + ".githubusercontent.com", 443, false},
		{strings.Repeat("a.", 150) + "githubusercontent.com", 443, false},
		{"", 443, false},
		{".", 443, false},
		{"api.anthropic.com", 0, false},
		{"api.anthropic.com", 65536 + 443, false},
		{"api.anthropic.com", -443, false},
	} {
		if got := p.Allows(tt.host, tt.port); got != tt.want {
			t.Errorf("Allows(%q, %d) = %v, want %v", tt.host, tt.port, got, tt.want)
		}
	}
}

// Rule: a nil policy, an empty policy and the policy "none" allow no host.
func TestNoneAllowsNothing(t *testing.T) {
	for _, p := range []*Policy{nil, {}, policy(t, "none")} {
		if p.Allows("127.0.0.1", 80) || p.Allows("example.com", 443) || !p.None() || p.String() != "none" {
			t.Errorf("%v is not none", p)
		}
	}
	if policy(t, "example.com").None() {
		t.Error("a policy with a pattern reports None")
	}
}

// Rule: Parse refuses an invalid pattern with a reason, and with a suggestion if a similar pattern
// is valid.
func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"https://api.example.com/v1":      `did you mean api.example.com:443?`,
		"http://bot:pw@example.com:8080/": `did you mean example.com:8080?`,
		"ftp://example.com":               `did you mean example.com?`,
		"*":                               `it would allow every host`,
		"*:443":                           `it would allow every host`,
		"*.com":                           `a top level domain`,
		"*example.com":                    `a star is only allowed at the beginning, before a dot, for the names below a domain; did you mean *.example.com?`,
		"a.*.example.com":                 `a star is only allowed at the beginning`,
		"*.10.0.0.1":                      `a star is only allowed`,
		".example.com":                    `did you mean *.example.com?`,
		"localhost:11434":                 `did you mean 127.0.0.1:11434?`,
		"::1":                             `an IPv6 address must be in brackets; did you mean [::1]?`,
		"fd00::1:443":                     `an IPv6 address must be in brackets`,
		"[example.com]:443":               `only an IPv6 address may be in brackets`,
		"fe80::1%eth0":                    `an IPv6 address must be in brackets`,
		"[fe80::1%eth0]":                  `zone`,
		"127.1:80":                        `four decimal numbers without leading zeros; did you mean 127.0.0.1:80?`,
		"0x7f000001":                      `did you mean 127.0.0.1?`,
		"010.0.0.1":                       `did you mean 8.0.0.1?`,
		"1.2.3.4.5":                       `four decimal numbers`,
		"10.1.2.3/8":                      `bits beyond the length of the range; did you mean 10.0.0.0/8?`,
		"10.0.0.0/33":                     `not a range`,
		"example.com/path":                `did you mean example.com?`,
		"0.0.0.0/0":                       `several kinds`,
		"10.0.0.0/7":                      `several kinds`,
		"[::/0]":                          `several kinds`,
		"[::ffff:10.0.0.0/104]":           `not a range`,
		"example.com:https":               `port "https" is not a number from 1 to 65535; did you mean example.com:443?`,
		"example.com:0":                   `not a number from 1 to 65535`,
		"example.com:0443":                `not a number`,
		"example.com:+443":                `not a number`,
		"example.com:65536":               `not a number`,
		"example.com:":                    `no port after it`,
		"example.com:443@evil.org":        `not a number`,
		"bücher.example":                  `begins with xn--`,
		"exam ple.com":                    `" " is not allowed in the name`,
		" example.com":                    `did you mean example.com?`,
		"exa\u202emple.com":               `"exa\u202emple.com"`,
		"None":                            `did you mean none?`,
		"off":                             `it is not a host; did you mean none?`,
		"NONE.":                           `it is not a host`,
		// a name without a dot is allowed, because internal names have this form
		"gitlab":     ``,
		"":           `did you mean none?`,
		"-a.example": `hyphen`,
		"a..example": `two dots`,
	} {
		p, err := Parse([]string{text})
		if want == "" {
			if err != nil {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%q was parsed as %s", text, p)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
	_, err := Parse([]string{"none", "ok.example", "*"})
	want := "\"none\": \"none\" must be the only entry of the list\n\"*\": it would allow every host; list those that are needed, or \"public\" for all public hosts"
	if err == nil || err.Error() != want {
		t.Errorf("several faults: %v", err)
	}
	if _, err := Parse(nil); err == nil || !strings.Contains(err.Error(), `did you mean "none"`) {
		t.Errorf("an empty list: %v", err)
	}
}

// Rule: String returns patterns from which Parse makes the same policy again.
func TestPolicyAsText(t *testing.T) {
	p := policy(t, "Example.COM.", "*.example.com:8443", "127.0.0.1:11434", "[::1]", "[fd00::/8]:5432", "10.0.0.0/8",
		"example.com")
	const want = "example.com,*.example.com:8443,127.0.0.1:11434,[::1],[fd00::/8]:5432,10.0.0.0/8"
	if diff := cmp.Diff(want, p.String()); diff != "" {
		t.Error(diff)
	}
	if again := policy(t, strings.Split(p.String(), ",")...); again.String() != want {
		t.Errorf("again: %s", again)
	}
}

// Rule: kindOf returns the kind that the IANA registries give to each address.
func TestKindsOfAddresses(t *testing.T) {
	for text, want := range map[string]kind{
		"8.8.8.8": public, "2606:4700::1111": public, "172.32.0.1": public, "64:ff9b::8.8.8.8": public,
		"::ffff:8.8.8.8": public,
		"10.1.2.3":       private, "172.31.255.255": private, "192.168.1.1": private, "100.64.0.1": private,
		"fd12::1": private, "64:ff9b::10.0.0.1": private,
		"127.0.0.1": loopback, "127.255.255.254": loopback, "::1": loopback, "::ffff:127.0.0.1": loopback,
		"64:ff9b::7f00:1": loopback,
		"169.254.0.1":     linkLocal, "fe80::1": linkLocal,
		"169.254.169.254": metadata, "::ffff:169.254.169.254": metadata, "64:ff9b::a9fe:a9fe": metadata,
		"fd00:ec2::254": metadata, "168.63.129.16": metadata,
		"0.0.0.0": unspecified, "0.1.2.3": unspecified, "::": unspecified,
		"224.0.0.1": multicast, "ff02::1": multicast,
		"255.255.255.255": reserved, "198.18.0.1": reserved, "2002:7f00:1::": reserved, "2001:0:4136:e378::": reserved,
		"::127.0.0.1": reserved, "fec0::1": reserved, "64:ff9b:1::a00:1": reserved,
	} {
		if got := kindOf(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

// Rule: a job may reach a listed name at public addresses. If the whole name is listed, and not
// only a wildcard, the job may also reach it at private addresses. It may reach the name at any
// other address only if the policy also lists that address.
func TestNamesLeadToPermittedKindsOfAddresses(t *testing.T) {
	p := policy(t, "git.example.org:443", "*.example.com:443", "ollama.example.org:443", "127.0.0.1:443",
		"169.254.0.0/16:443", "10.9.0.0/16:443")
	for _, tt := range []struct {
		name, addr string
		want       bool
	}{
		{"git.example.org", "93.184.216.34", true},
		{"git.example.org", "10.1.2.3", true},
		{"git.example.org", "fd12::1", true},
		{"git.example.org", "127.0.0.1", true}, // the list also has the address itself
		{"git.example.org", "127.0.0.2", false},
		{"git.example.org", "::1", false},
		{"git.example.org", "0.0.0.0", false},
		{"git.example.org", "169.254.1.1", true},
		{"git.example.org", "169.254.169.254", false},
		{"git.example.org", "224.0.0.1", false},
		{"a.example.com", "93.184.216.34", true},
		{"a.example.com", "192.168.1.1", false},
		{"a.example.com", "10.9.1.1", true},
		{"a.example.com", "64:ff9b::192.168.1.1", false},
		{"a.example.com", "fd00:ec2::254", false},
	} {
		if got := p.admits(Target{name: tt.name, port: 443}, netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("%s at %s: %v, want %v", tt.name, tt.addr, got, tt.want)
		}
	}
	if !policy(t, "169.254.169.254:80").Allows("169.254.169.254", 80) {
		t.Error("an address that is listed by itself is refused")
	}
}

// Rule: a policy allows a target only if a second, simple implementation finds a pattern that lists
// the target. Parse either refuses a pattern or does not change its meaning.
func FuzzPolicy(f *testing.F) {
	for _, s := range []string{
		"api.example.com", "*.example.com", "127.0.0.1", "0x7f.1", "[::1]:80", "10.0.0.0/8:5432", "a@b:443",
		"::ffff:1.2.3.4", "none", "*", "xn--a.example.com",
		"a.example.com.", "A.EXAMPLE.COM:443", "[fe80::1%lo]:1", "https://x.y", "127.1", "1.2.3.4/33", "%31", "[::1",
		"a:b:c", "\u212A.example.com",
	} {
		f.Add(s, s, 443)
	}
	fixed := policy(f, "api.example.com", "*.example.com:443", "127.0.0.1:80", "10.0.0.0/8:443", "[::1]:443")
	f.Fuzz(func(t *testing.T, pattern, host string, port int) {
		if fixed.Allows(host, port) {
			plain := strings.ToLower(strings.TrimSuffix(host, "."))
			addr, err := netip.ParseAddr(plain)
			addr = addr.Unmap()
			named := err != nil && (plain == "api.example.com" && slices.Contains(defaultPorts, port) ||
				strings.HasSuffix(plain, ".example.com") && len(plain) > 12 && port == 443)
			listed := err == nil && (addr.String() == "127.0.0.1" && port == 80 || (addr.String() == "::1" ||
				addr.Is4() && addr.As4()[0] == 10) && port == 443)
			if !named && !listed || strings.ContainsAny(host, "@/%[]\\ \x00") {
				t.Errorf("%q:%d is allowed", host, port)
			}
		}
		got, err := ParseTarget(host, 443)
		if err == nil {
			again, err := ParseTarget(got.String(), 0)
			if err != nil || again != got {
				t.Errorf("%q is %v, and that is %v, %v", host, got, again, err)
			}
		}
		p, err := Parse([]string{pattern})
		if err != nil {
			return
		}
		if again, err := Parse([]string{p.String()}); err != nil || again.String() != p.String() {
			t.Errorf("%q is %s, and that is %v, %v", pattern, p, again, err)
		}
		if p.Allows("localhost", 80) || p.Allows("127.0.0.1", 443) && !strings.Contains(pattern, "127") ||
			p.Allows("169.254.169.254", 80) && !strings.Contains(lower(pattern), "169.254.169.254") &&
				!strings.Contains(lower(pattern), "a9fe") {
			t.Errorf("%q opens more than it says", pattern)
		}
	})
}

// Rule: Direct lists the names of the job's own machine. It omits addresses that the policy lists,
// because these addresses then mean the host.
func TestOwnNamesNeedNoProxy(t *testing.T) {
	for patterns, want := range map[string]string{
		"none": "localhost 127.0.0.1 ::1 [::1]", "example.org": "localhost 127.0.0.1 ::1 [::1]",
		"10.0.0.0/8":      "localhost 127.0.0.1 ::1 [::1]",
		"127.0.0.1:11434": "localhost ::1 [::1]", "[::1]:1,127.0.0.2:2": "localhost 127.0.0.1",
		"127.0.0.0/8:5432": "localhost ::1 [::1]",
	} {
		p, err := Parse(strings.Split(patterns, ","))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(p.Direct(), " "); got != want {
			t.Errorf("%s: %q, want %q", patterns, got, want)
		}
	}
	if got := strings.Join((*Policy)(nil).Direct(), " "); got != "localhost 127.0.0.1 ::1 [::1]" {
		t.Errorf("of nothing: %q", got)
	}
}
