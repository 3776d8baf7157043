package webui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of what a page shows of somebody's text, in bytes.
const (
	maxLine    = 200      // in a table
	maxMessage = 2 << 10  // a message by itself
	maxPayload = 16 << 10 // an input, an output, a stack
	maxDepth   = 40       // deeper JSON is not laid out: its indentation would outgrow it
)

// visible makes what would steer the eye visible in a finished page: control
// characters, marks of direction, line separators, bytes that are no text. None
// of them is part of a template.
func visible(page []byte) []byte {
	plain := true
	for _, c := range page {
		plain = plain && (c >= ' ' && c < 0x7f || c == '\n')
	}
	if plain {
		return page
	}
	out := make([]byte, 0, len(page)+len(page)/8)
	for _, r := range string(page) {
		switch {
		case r == '\n' || r == '\t':
			out = utf8.AppendRune(out, r)
		case r < ' ':
			out = utf8.AppendRune(out, r+0x2400) // its picture
		case r == 0x7f:
			out = utf8.AppendRune(out, '␡')
		case steers(r):
			out = fmt.Appendf(out, "⟨U+%04X⟩", r)
		default:
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// steers reports whether a character shows nothing itself and changes where or
// whether others are shown. The joiners of scripts and emoji do not count.
func steers(r rune) bool {
	const joiner, nonJoiner = 0x200d, 0x200c
	if r == joiner || r == nonJoiner {
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Noncharacter_Code_Point)
}

// excerpt is the beginning of a text, whole characters only.
func excerpt(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}

// line is the first line of a text, for a table.
func line(s string) string {
	first, rest, _ := strings.Cut(strings.TrimSpace(s), "\n")
	if strings.TrimSpace(rest) != "" {
		first = strings.TrimRight(first, " \r") + " …"
	}
	return excerpt(first, maxLine)
}

// payload is JSON or other text as a page shows it.
type payload struct {
	Text string
	// Cut says how much there is when not all is shown.
	Cut string
}

// show lays JSON out if that stays small; nil for nothing.
func show(raw json.RawMessage) *payload {
	if len(raw) == 0 {
		return nil
	}
	text := string(raw[:min(len(raw), maxPayload)])
	if len(raw) <= maxPayload && depth(raw) <= maxDepth {
		var b bytes.Buffer
		if json.Indent(&b, raw, "", "  ") == nil && b.Len() <= 4*maxPayload {
			return &payload{Text: unescape(b.String())}
		}
	}
	return bounded(text, len(raw))
}

// unescape shows the characters that JSON writers escape for the sake of HTML as
// themselves: it is escaped for HTML here anyway.
func unescape(s string) string {
	plain := strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&", `\u0027`, "'")
	return plain.Replace(s)
}

// block is a text of several lines; nil for nothing.
func block(s string) *payload {
	if s == "" {
		return nil
	}
	return bounded(s, len(s))
}

func bounded(s string, whole int) *payload {
	if whole <= maxPayload {
		return &payload{Text: s}
	}
	return &payload{Text: excerpt(s, maxPayload-utf8.UTFMax), Cut: bytesOf(whole)}
}

// depth is how deep brackets nest, those in strings included.
func depth(raw []byte) int {
	deepest, now := 0, 0
	for _, c := range raw {
		switch c {
		case '{', '[':
			now++
			deepest = max(deepest, now)
		case '}', ']':
			now--
		}
	}
	return deepest
}

// escapes are the sequences that colour a terminal or move its cursor.
var escapes = regexp.MustCompile(`\x1b(?:\[[\x30-\x3f]*[\x20-\x2f]*[\x40-\x7e]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[\x40-\x7e])`)

// terminal is what a command wrote as a terminal would have left it: without
// colours, and of a line that was overwritten only the last state.
func terminal(s string) string {
	s = escapes.ReplaceAllString(s, "")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	if !strings.Contains(s, "\r") {
		return s
	}
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		l = strings.TrimRight(l, "\r")
		lines[i] = l[strings.LastIndexByte(l, '\r')+1:]
	}
	return strings.Join(lines, "\n")
}

// short is a duration that a person reads at a glance.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm %02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh %02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd %02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// offset is when something was, counted from the beginning.
func offset(d time.Duration) string {
	if d = max(0, d); d < time.Minute {
		return fmt.Sprintf("+%.3fs", d.Seconds())
	}
	return "+" + short(d)
}

func bytesOf(n int) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// span is a piece of a sentence; what stands between backquotes is code.
type span struct {
	Text string
	Code bool
}

// spans takes a sentence apart at its backquotes.
func spans(s string) []span {
	var out []span
	for i, part := range strings.Split(excerpt(s, maxMessage), "`") {
		if part != "" {
			out = append(out, span{part, i%2 == 1})
		}
	}
	return out
}

// moment is a time for people: how long ago, and exactly.
type moment struct {
	Ago   string
	Exact string // for people
	ISO   string // for programs
}

// when is a moment seen from now; nil for never.
func when(t, now time.Time) *moment {
	if t.IsZero() {
		return nil
	}
	ago := short(now.Sub(t)) + " ago"
	if d := t.Sub(now); d > 0 {
		ago = "in " + short(d)
	}
	return &moment{
		Ago: ago, Exact: t.UTC().Format("2006-01-02 15:04:05.000 UTC"), ISO: t.UTC().Format(time.RFC3339Nano),
	}
}
