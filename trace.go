package belay

import (
	"encoding/hex"
	"strings"
)

// MaxTracestate is the largest size of the State of a Trace, in bytes.
const MaxTracestate = 512

// maxTraceMembers is the largest number of members of a State.
const maxTraceMembers = 32

// Trace is the context of a distributed trace, in the form of the standard W3C Trace Context. The zero
// Trace is none.
type Trace struct {
	// Parent is the header traceparent: the id of the trace, the id of the span under which the spans of the
	// receiver belong, and whether the trace is recorded.
	Parent string
	// State is the header tracestate, the data of tracing systems.
	State string
}

// Valid returns t in the form in which Belay stores it, without the parts that the standard does not allow. If
// Parent is not valid, Valid returns the zero Trace. It is no error of a caller to send such a trace, because
// proxies and libraries add these headers.
func (t Trace) Valid() Trace {
	flags, ok := traceFlags(t.Parent)
	if !ok {
		return Trace{}
	}
	const digits = "0123456789abcdef"
	valid := Trace{Parent: "00" + t.Parent[2:53] + "0" + string(digits[flags&3])}
	if validState(t.State) {
		valid.State = t.State
	}
	return valid
}

// traceFlags returns the flags of a traceparent. A newer version of the standard may add fields at the end.
func traceFlags(s string) (flags byte, ok bool) {
	const size = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	if len(s) < size || len(s) > MaxTracestate || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return 0, false
	}
	version, ok := lowHex(s[:2])
	if !ok || version[0] == 0xff || len(s) > size && (version[0] == 0 || s[size] != '-') {
		return 0, false
	}
	for _, id := range []string{s[3:35], s[36:52]} {
		if _, ok := lowHex(id); !ok || strings.Trim(id, "0") == "" {
			return 0, false
		}
	}
	last, ok := lowHex(s[53:size])
	if !ok {
		return 0, false
	}
	return last[0], true
}

// lowHex decodes hexadecimal digits in lower case.
func lowHex(s string) ([]byte, bool) {
	b, err := hex.DecodeString(s)
	return b, err == nil && s == strings.ToLower(s)
}

// validState reports whether a text can be a tracestate: a list of KEY=VALUE in printable ASCII.
func validState(s string) bool {
	if s == "" || len(s) > MaxTracestate || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' }) {
		return false
	}
	members := strings.Split(s, ",")
	if len(members) > maxTraceMembers {
		return false
	}
	for _, m := range members {
		key, value, ok := strings.Cut(strings.TrimSpace(m), "=")
		if !ok || key == "" || value == "" || strings.Contains(value, "=") || strings.ContainsFunc(key, notInKey) {
			return false
		}
	}
	return true
}

func notInKey(c rune) bool {
	return (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("_-*/@", c)
}
