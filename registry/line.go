package registry

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"
)

// The text around the entries in a state file that this package has written.
const (
	entriesBegin = ",\n\"workflows\": ["
	entriesEnd   = "\n]}\n"
)

// decodeOwn parses a state file in the form that encode writes. ok is false for every other file, which
// decode parses with package json. A file of twenty entries takes a tenth of the time in this way, and
// all other processes wait for that time.
func decodeOwn(data []byte) (doc document, ok bool) {
	at := bytes.Index(data, []byte(entriesBegin))
	if at < 0 || !bytes.HasSuffix(data, []byte(entriesEnd)) || at+len(entriesBegin) > len(data)-len(entriesEnd) ||
		!utf8.Valid(data) {
		return document{}, false
	}
	if err := json.Unmarshal(append(data[:at:at], '}'), &doc); err != nil || doc.Version != formatVersion {
		return document{}, false
	}
	rest := data[at+len(entriesBegin) : len(data)-len(entriesEnd)]
	for first := true; len(rest) > 0; first = false {
		l := line{rest: rest, ok: true}
		if !first {
			l.expect(",")
		}
		l.expect("\n")
		e := l.entry()
		if !l.ok {
			return document{}, false
		}
		doc.Workflows = append(doc.Workflows, e.workflow())
		rest = l.rest
	}
	return doc, true
}

// line is the rest of a text that begins with an entry. Its methods set ok to false if the text is not
// of the form that entry.append writes.
type line struct {
	rest []byte
	ok   bool
}

func (l *line) entry() (e entry) {
	l.expect(`{"name":`)
	e.Name = l.text()
	l.expect(`,"recipe":`)
	e.Recipe = l.text()
	l.expect(`,"owner_pid":`)
	e.OwnerPID = int(l.number())
	l.expect(`,"owner_start_ns":`)
	e.OwnerStartNS = l.number()
	if l.optional(`,"owner_boot_id":`) {
		e.OwnerBootID = l.text()
	}
	if l.optional(`,"owner_pid_namespace":`) {
		e.OwnerPIDNamespace = l.number()
	}
	l.expect(`,"started_at":`)
	e.StartedAt = l.moment()
	l.expect(`,"last_renewed_at":`)
	e.LastRenewedAt = l.moment()
	if l.optional(`,"last_renewed_boot_ns":`) {
		e.LastRenewedBootNS = int64(l.number())
	}
	l.expect(`,"ttl_seconds":`)
	var err error
	e.TTLSeconds, err = strconv.ParseFloat(string(l.digits("0123456789.")), 64)
	l.ok = l.ok && err == nil
	if l.optional(`,"preempt_signal_path":`) {
		e.PreemptSignalPath = l.text()
	}
	l.expect(`,"preemptible":`)
	if e.Preemptible = l.optional("true"); !e.Preemptible {
		l.expect("false")
	}
	l.expect("}")
	return e
}

func (l *line) optional(text string) bool {
	if !bytes.HasPrefix(l.rest, []byte(text)) {
		return false
	}
	l.rest = l.rest[len(text):]
	return true
}

func (l *line) expect(text string) { l.ok = l.optional(text) && l.ok }

// text reads a string without escapes.
func (l *line) text() string {
	l.expect(`"`)
	for i, c := range l.rest {
		switch {
		case c == '"':
			s := string(l.rest[:i])
			l.rest = l.rest[i+1:]
			return s
		case c == '\\' || c < ' ':
			l.ok = false
			return ""
		}
	}
	l.ok = false
	return ""
}

func (l *line) digits(allowed string) []byte {
	n := 0
	for n < len(l.rest) && bytes.IndexByte([]byte(allowed), l.rest[n]) >= 0 {
		n++
	}
	d := l.rest[:n]
	l.rest = l.rest[n:]
	return d
}

// number reads a number that an int64 has room for.
func (l *line) number() uint64 {
	d := l.digits("0123456789")
	n, err := strconv.ParseInt(string(d), 10, 64)
	l.ok = l.ok && err == nil && (d[0] != '0' || len(d) == 1)
	return uint64(max(n, 0))
}

func (l *line) moment() time.Time {
	t, err := time.Parse(time.RFC3339Nano, l.text())
	l.ok = l.ok && err == nil
	return t
}
