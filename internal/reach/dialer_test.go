package reach

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// world is a simulated internet that records what a Dialer does.
type world struct {
	answers map[string][][]string // for each name, the addresses of the first lookup, the second, and so on
	asked   []string
	dialled []string
}

var errDialled = errors.New("dialled")

func (w *world) dialer(p *Policy) *Dialer {
	return &Dialer{
		Policy: p,
		Resolve: func(_ context.Context, name string) (all []netip.Addr, err error) {
			w.asked = append(w.asked, name)
			plain := strings.TrimSuffix(name, ".")
			if turns := w.answers[plain]; len(turns) > 0 {
				for _, a := range turns[0] {
					all = append(all, netip.MustParseAddr(a))
				}
				if len(turns) > 1 {
					w.answers[plain] = turns[1:]
				}
			}
			return all, nil
		},
		Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			w.dialled = append(w.dialled, address)
			return nil, errDialled
		},
	}
}

// Rule: the word public allows every name and address of the public internet at its ports, and
// nothing else: no private, loopback, link-local or other special address, in whatever form, and no
// name that resolves to such an address.
func TestPublicIsOnlyTheInternet(t *testing.T) {
	special := []string{
		"127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "::ffff:10.0.0.1", "172.16.0.1", "192.168.0.1",
		"100.64.0.1",
		"169.254.169.254", "169.254.0.1", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "fe80::1", "fc00::1",
		"fd00:ec2::254",
		"64:ff9b::10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::a00:1", "2002:a00:1::", "2002:7f00:1::1",
		"2001:0:4136:e378::",
		"::10.0.0.1", "255.255.255.255", "192.0.0.192", "198.18.0.1", "fec0::1",
	}
	p := policy(t, "public", "public:8443")
	w := &world{answers: map[string][][]string{}}
	d := w.dialer(p)
	connect := func(host string, port int) error {
		target, err := NewTarget(host, port)
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.Connect(t.Context(), target)
		return err
	}
	for _, a := range special {
		if err := connect(a, 443); !Denied(err) {
			t.Errorf("%s: %v", a, err)
		}
		w.answers["x.example"] = [][]string{{a}}
		if err := connect("x.example", 443); !Denied(err) || strings.Contains(err.Error(), a) {
			t.Errorf("a name at %s: %v", a, err)
		}
	}
	w.answers["localhost"] = [][]string{{"93.184.216.34"}}
	if err := connect("localhost", 443); !errors.Is(err, ErrUnlisted) {
		t.Errorf("localhost: %v", err)
	}
	if len(w.dialled) > 0 {
		t.Errorf("dialled %q", w.dialled)
	}
	w.answers["x.example"] = [][]string{{"10.0.0.1", "93.184.216.34"}}
	for _, port := range []int{443, 80, 8443} {
		if err := connect("x.example", port); !errors.Is(err, errDialled) {
			t.Errorf("port %d: %v", port, err)
		}
	}
	for _, port := range []int{22, 25, 6379} {
		if err := connect("x.example", port); !errors.Is(err, ErrUnlisted) {
			t.Errorf("port %d: %v", port, err)
		}
	}
	if err := connect("8.8.8.8", 443); !errors.Is(err, errDialled) {
		t.Errorf("a public address: %v", err)
	}
	if diff := cmp.Diff([]string{"93.184.216.34:443", "93.184.216.34:80", "93.184.216.34:8443", "8.8.8.8:443"},
		w.dialled); diff != "" {
		t.Error(diff)
	}
	if p.String() != "public,public:8443" {
		t.Errorf("as text: %s", p)
	}
}

// Rule: beside the word public, an exactly listed name may lead to a private address, and a listed
// address may be loopback; the metadata services of clouds stay closed.
func TestPublicAndAHostInside(t *testing.T) {
	w := &world{answers: map[string][][]string{
		"git.example": {{"10.0.0.1"}}, "other.example": {{"10.0.0.1"}}, "meta.example": {{"169.254.169.254"}},
	}}
	d := w.dialer(policy(t, "public", "git.example:443", "127.0.0.1:9000", "meta.example:443"))
	for text, want := range map[string]bool{
		"git.example:443": true, "other.example:443": false, "127.0.0.1:9000": true, "127.0.0.1:443": false,
		"meta.example:443": false,
	} {
		target, err := ParseTarget(text, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Connect(t.Context(), target); errors.Is(err, errDialled) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Rule: the address that was checked is the address that is dialled, even if the name resolves to
// another address a moment later.
func TestRebindingDoesNotPass(t *testing.T) {
	w := &world{answers: map[string][][]string{"rebind.example": {{"93.184.216.34"}, {"127.0.0.1"}}}}
	d := w.dialer(policy(t, "public"))
	target, _ := NewTarget("rebind.example", 443)
	_, first := d.Connect(t.Context(), target)
	_, second := d.Connect(t.Context(), target)
	if !errors.Is(first, errDialled) || !Denied(second) {
		t.Errorf("%v; %v", first, second)
	}
	if diff := cmp.Diff([]string{"93.184.216.34:443"}, w.dialled); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"rebind.example.", "rebind.example."}, w.asked); diff != "" {
		t.Error(diff)
	}
}

// Rule: an address of Belay itself is refused even if the policy lists it.
func TestClosedAddressesStayClosed(t *testing.T) {
	w := &world{}
	d := w.dialer(policy(t, "127.0.0.1:7420"))
	d.Closed = func(a netip.AddrPort) bool { return a.Port() == 7420 }
	target, _ := NewTarget("127.0.0.1", 7420)
	if _, err := d.Connect(t.Context(), target); !errors.Is(err, ErrOwn) || len(w.dialled) > 0 {
		t.Errorf("%v; dialled %q", err, w.dialled)
	}
}
