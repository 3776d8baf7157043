package config

import (
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kind converts one field of a Config from text and to text.
type kind interface {
	// set sets the field and returns true if the text is a valid value. Otherwise it leaves the
	// field as it is and returns false.
	set(text string) bool
	// want describes the valid values, for error messages.
	want() string
	// show returns the value as text that set accepts.
	show() string
	// word names the kind of the values in one word.
	word() string
	// tags are the YAML types of the values that are accepted in a file.
	tags() []string
}

type text struct {
	to   *string
	what string
}

func (k text) set(s string) bool {
	if strings.TrimSpace(s) == "" || strings.ContainsRune(s, 0) {
		return false
	}
	*k.to = s
	return true
}
func (k text) want() string { return k.what }
func (k text) show() string { return *k.to }
func (text) word() string   { return "text" }
func (text) tags() []string { return []string{"!!str"} }

type address struct{ to *string }

func (k address) set(s string) bool {
	_, port, err := net.SplitHostPort(s)
	n, nerr := strconv.Atoi(port)
	if err != nil || nerr != nil || n < 0 || n > 65535 {
		return false
	}
	*k.to = s
	return true
}
func (address) want() string {
	return "HOST:PORT, such as 127.0.0.1:7420 or [::1]:7420, or :7420 for every address of the machine"
}
func (k address) show() string { return *k.to }
func (address) word() string   { return "address" }
func (address) tags() []string { return []string{"!!str"} }

type boolean struct{ to *bool }

func (k boolean) set(s string) bool {
	if s != "true" && s != "false" {
		return false
	}
	*k.to = s == "true"
	return true
}
func (boolean) want() string   { return "true or false" }
func (k boolean) show() string { return strconv.FormatBool(*k.to) }
func (boolean) word() string   { return "bool" }
func (boolean) tags() []string { return []string{"!!bool"} }

type number struct {
	to          *int
	least, most int
}

func (k number) set(s string) bool {
	n, err := strconv.Atoi(s)
	if err != nil || n < k.least || n > k.most {
		return false
	}
	*k.to = n
	return true
}
func (k number) want() string { return fmt.Sprintf("a whole number from %d to %d", k.least, k.most) }
func (k number) show() string { return strconv.Itoa(*k.to) }
func (number) word() string   { return "number" }
func (number) tags() []string { return []string{"!!int"} }

// maxDuration is a round number of days a little below the longest time.Duration.
const maxDuration = 100_000 * 24 * time.Hour

type duration struct {
	to          *time.Duration
	least, most time.Duration
}

func (k duration) set(s string) bool {
	d, err := time.ParseDuration(s)
	if n, ferr := strconv.ParseFloat(s, 64); ferr == nil && n <= maxDuration.Seconds() {
		d, err = time.Duration(math.Round(n*1000))*time.Millisecond, nil
	}
	if err != nil || d < k.least || d > k.most {
		return false
	}
	*k.to = d
	return true
}
func (k duration) want() string {
	return fmt.Sprintf(`a duration such as "90s" or "15m", or seconds such as 90, from %s to %s`, brief(k.least),
		brief(k.most))
}
func (k duration) show() string { return brief(*k.to) }
func (duration) word() string   { return "duration" }
func (duration) tags() []string { return []string{"!!str", "!!int", "!!float"} }

// optional is a duration that may also be 0, although 0 is below the minimum.
type optional struct{ duration }

func (k optional) set(s string) bool {
	var d time.Duration
	if !(duration{&d, 0, k.most}).set(s) || d != 0 && d < k.least {
		return false
	}
	*k.to = d
	return true
}
func (k optional) want() string { return k.duration.want() + ", or 0" }

// brief formats a duration without the trailing zero units that Go writes: 15m, not 15m0s.
func brief(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// units are the units of a size, the largest first.
var units = []struct {
	name string
	n    int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

type size struct {
	to          *int64
	least, most int64
}

func (k size) set(s string) bool {
	number, unit := s, int64(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(s, u.name); ok {
			number, unit = strings.TrimSpace(n), u.n
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > k.most/unit || n*unit < k.least {
		return false
	}
	*k.to = n * unit
	return true
}
func (k size) want() string {
	return fmt.Sprintf("a size such as 16MiB or 512KiB, or bytes such as 65536, from %s to %s", sized(k.least),
		sized(k.most))
}
func (k size) show() string { return sized(*k.to) }
func (size) word() string   { return "size" }
func (size) tags() []string { return []string{"!!str", "!!int"} }

func sized(n int64) string {
	for _, u := range units {
		if n >= u.n && n%u.n == 0 {
			return strconv.FormatInt(n/u.n, 10) + u.name
		}
	}
	return "0B"
}

type list struct {
	to   *[]string
	what string
}

// set reads a text in which commas separate the items.
func (k list) set(s string) bool {
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item == "" || strings.ContainsAny(item, " \t\r\n/\x00") {
			return false
		}
		items = append(items, item)
	}
	*k.to = items
	return true
}
func (k list) want() string { return k.what }
func (k list) show() string { return strings.Join(*k.to, ",") }
func (list) word() string   { return "list" }
func (list) tags() []string { return []string{"!!seq"} }

// origins is the kind of a value that is a list of origins of web pages. Only the form in which
// browsers write an origin is accepted, because an origin in another form would never match, and no
// error would show it.
type origins struct{ list }

const wantOrigins = "origins as browsers write them, such as https://app.example.org or http://localhost:3000, and no *"

func (k origins) set(s string) bool {
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		if !isOrigin(item) {
			return false
		}
		items = append(items, item)
	}
	*k.to = items
	return true
}

// isOrigin reports whether s is an origin of a web page in the form of browsers: scheme, host in
// lower case, and the port unless it is the default port of the scheme.
func isOrigin(s string) bool {
	scheme, host, ok := strings.Cut(s, "://")
	own := map[string]string{"http": ":80", "https": ":443"}[scheme]
	if !ok || own == "" || strings.HasSuffix(host, own) || s != strings.ToLower(s) ||
		strings.ContainsAny(host, "*/\\?#@% \t\r\n\x00\"'<>") {
		return false
	}
	u, err := url.Parse(s)
	return err == nil && u.Hostname() != "" && u.Host == host && !strings.HasSuffix(host, ":")
}

// networks is the kind of a value that is a list of networks of IP addresses.
type networks struct{ to *[]netip.Prefix }

// set reads a text in which commas separate the networks. An address without a prefix length means
// only this address.
func (k networks) set(s string) bool {
	var all []netip.Prefix
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		if a, err := netip.ParseAddr(item); err == nil {
			item = fmt.Sprintf("%s/%d", a, a.BitLen())
		}
		p, err := netip.ParsePrefix(item)
		if err != nil || p != p.Masked() || p.Addr().Is4In6() {
			return false
		}
		all = append(all, p)
	}
	*k.to = all
	return true
}
func (networks) want() string {
	return "networks or addresses, such as 10.20.0.0/16, fd00:1::/32 or 192.0.2.7"
}
func (k networks) show() string {
	all := make([]string, len(*k.to))
	for i, p := range *k.to {
		all[i] = p.String()
	}
	return strings.Join(all, ",")
}
func (networks) word() string   { return "list" }
func (networks) tags() []string { return []string{"!!seq"} }

type choice struct {
	to   *string
	from []string
}

func (k choice) set(s string) bool {
	if !slices.Contains(k.from, s) {
		return false
	}
	*k.to = s
	return true
}
func (k choice) want() string { return oneOf(k.from) }
func (k choice) show() string { return *k.to }
func (choice) word() string   { return "text" }
func (choice) tags() []string { return []string{"!!str"} }

func oneOf(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

type level struct{ to *slog.Level }

var levels = []string{"debug", "info", "warn", "error"}

func (k level) set(s string) bool {
	return slices.Contains(levels, s) && k.to.UnmarshalText([]byte(s)) == nil
}
func (level) want() string   { return oneOf(levels) }
func (k level) show() string { return strings.ToLower(k.to.String()) }
func (level) word() string   { return "text" }
func (level) tags() []string { return []string{"!!str"} }
