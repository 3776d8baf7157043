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

	"github.com/belaydev/belay"
)

// Bounds of the texts on a page, in bytes.
const (
	maxLine    = 200      // a line in a table
	maxMessage = 2 << 10  // an error message that stands alone
	maxPayload = 16 << 10 // an input, an output, a stack
	maxDepth   = 40       // JSON that is nested deeper is not indented, because its indentation would be too long
)

// visible replaces characters that could mislead the reader of a finished page by visible
// characters: control characters, marks of text direction, line separators, and bytes that are not
// UTF-8. The templates themselves contain no such characters.
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
			out = utf8.AppendRune(out, r+0x2400) // the Unicode picture of the control character
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

// steers reports whether a character is invisible and can hide or move other characters. It returns
// false for the joiners that some scripts and emoji need.
func steers(r rune) bool {
	const joiner, nonJoiner = 0x200d, 0x200c
	if r == joiner || r == nonJoiner {
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Noncharacter_Code_Point)
}

// excerpt returns the beginning of a text, at most limit bytes long, in whole characters.
func excerpt(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}

// line returns the first line of a text, for a table.
func line(s string) string {
	first, rest, _ := strings.Cut(strings.TrimSpace(s), "\n")
	if strings.TrimSpace(rest) != "" {
		first = strings.TrimRight(first, " \r") + " …"
	}
	return excerpt(first, maxLine)
}

// payload is JSON or other text in the form in which a page shows it.
type payload struct {
	Text string
	// Cut is the size of the whole text if Text is only its beginning.
	Cut string
}

// show prepares JSON for a page, indented if the result stays small; nil if there is no JSON.
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

// unescape replaces the escapes that JSON writers use for HTML by the characters themselves,
// because html/template escapes the text again.
func unescape(s string) string {
	plain := strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&", `\u0027`, "'")
	return plain.Replace(s)
}

// block prepares a text of several lines for a page; nil for an empty text.
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

// depth returns how deep the brackets in a JSON text are nested. Brackets in strings count too.
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

// escapes matches the escape sequences that colour a terminal or move its cursor.
var escapes = regexp.MustCompile(`\x1b(?:\[[\x30-\x3f]*[\x20-\x2f]*[\x40-\x7e]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[\x40-\x7e])`)

// terminal returns the output of a command as a terminal shows it at the end: without colours, and
// with only the last text of each line that the command has overwritten.
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

// short formats a duration for people.
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
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// offset formats the time since the submission.
func offset(d time.Duration) string {
	if d = max(0, d); d < time.Minute {
		return fmt.Sprintf("+%.3fs", d.Seconds())
	}
	return "+" + short(d)
}

func bytesOf(n int) string {
	switch {
	case n < 1<<10:
		return several(n, "byte")
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// span is a piece of a sentence; a piece between backquotes is code.
type span struct {
	Text string
	Code bool
	To   string // the address of the execution that the text names; empty if it names none
}

// executionName matches the id of an execution in a sentence.
var executionName = regexp.MustCompile(`\bex_[0-9a-z]{26}\b`)

// spans splits a sentence at its backquotes, and around the ids of executions outside of these.
func spans(s string) []span {
	var out []span
	for i, part := range strings.Split(excerpt(s, maxMessage), "`") {
		switch {
		case i%2 == 0:
			out = append(out, linked(part)...)
		case part != "":
			out = append(out, span{part, true, ""})
		}
	}
	return out
}

// linked splits a text around the ids of executions.
func linked(s string) []span {
	var out []span
	add := func(text, to string) {
		if text != "" {
			out = append(out, span{text, false, to})
		}
	}
	from := 0
	for _, at := range executionName.FindAllStringIndex(s, -1) {
		name := s[at[0]:at[1]]
		if _, err := belay.ParseExecutionID(name); err == nil {
			add(s[from:at[0]], "")
			add(name, "/executions/"+name)
			from = at[1]
		}
	}
	add(s[from:], "")
	return out
}

// moment is a time in three forms.
type moment struct {
	Ago   string // for people, relative to now
	Exact string // for people, the exact time in UTC
	ISO   string // for programs, as RFC 3339; HTML allows milliseconds at most
}

// when returns the moment of a time; nil for the zero time.
func when(t, now time.Time) *moment {
	if t.IsZero() {
		return nil
	}
	ago := short(now.Sub(t)) + " ago"
	if d := t.Sub(now); d > 0 {
		ago = "in " + short(d)
	}
	return &moment{
		Ago: ago, Exact: t.UTC().Format("2006-01-02 15:04:05.000 UTC"), ISO: t.UTC().Format("2006-01-02T15:04:05.000Z07:00"),
	}
}

// timeLayouts are the forms in which people, fields of forms and the API write a time.
var timeLayouts = []string{
	time.RFC3339, seconds, "2006-01-02T15:04", time.DateTime, "2006-01-02 15:04", time.DateOnly,
}

// readTime reads a time. A time without a zone is in UTC, and an empty text is the zero time.
func readTime(text string) (at time.Time, ok bool) {
	if text == "" {
		return at, true
	}
	for _, layout := range timeLayouts {
		if at, err := time.Parse(layout, text); err == nil {
			return at, true
		}
	}
	return at, false
}
