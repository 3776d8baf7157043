package screen

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"
)

// Painter is a writer that may show colours. Paints reports whether it does, and Raw returns the writer to which
// text with colours goes, which passes escape sequences on unchanged.
type Painter interface {
	io.Writer
	Paints() bool
	Raw() io.Writer
}

// raw returns the writer for text with colours, or nil if w shows no colours.
func raw(w io.Writer) io.Writer {
	if p, ok := w.(Painter); ok && p.Paints() {
		return p.Raw()
	}
	return nil
}

// stateColours are the colours of state words, as parameters of the escape sequence SGR.
var stateColours = map[string]string{
	"running": "36", "scheduled": "34", "swapping": "34",
	"succeeded": "32", "open": "32", "ready": "32",
	"waiting": "33", "paused": "33", "pausing": "33", "cancelling": "33", "draining": "33", "cordoned": "33",
	"full": "33", "failed": "31", "lost": "31", "unhealthy": "31", "shut": "31",
	"cancelled": "2", "closed": "2", "drained": "2", "skipped": "2",
}

// Mark marks a state word for Paint, if w shows colours. Each letter of a marked word is one byte that is not
// UTF-8: it counts as one character, so that columns stay aligned, and safe text (see Line) cannot contain it.
// Other words than lower-case ones are returned unchanged.
func Mark(w io.Writer, word string) string {
	if raw(w) == nil {
		return word
	}
	return mark(word)
}

func mark(word string) string {
	b := []byte(word)
	for i, c := range b {
		if c < 'a' || c > 'z' {
			return word
		}
		b[i] = c | 0x80
	}
	return string(b)
}

// Paint makes a text safe like Text, except that it shows the words that Mark has marked, in the colours of
// their states.
func Paint(text []byte) []byte {
	var out []byte
	for len(text) > 0 {
		plain := len(text)
		if i := bytes.IndexFunc(text, func(r rune) bool { return r == utf8.RuneError }); i >= 0 {
			plain = i
		}
		out = append(out, Text(string(text[:plain]))...)
		text = text[plain:]
		var word []byte
		for len(text) > 0 {
			r, n := utf8.DecodeRune(text)
			if r != utf8.RuneError || n != 1 || text[0] < 'a'|0x80 || text[0] > 'z'|0x80 {
				break
			}
			word = append(word, text[0]&0x7f)
			text = text[1:]
		}
		switch colour := stateColours[string(word)]; {
		case colour != "":
			out = append(out, "\x1b["+colour+"m"+string(word)+"\x1b[0m"...)
		case len(word) > 0:
			out = append(out, word...)
		case len(text) > 0:
			_, n := utf8.DecodeRune(text)
			out = append(out, string(utf8.RuneError)...)
			text = text[n:]
		}
	}
	return out
}

// Write writes a text whose state words Mark has marked for w. A Painter with the method KeepsMarks gets the text
// with the marks, to paint it later.
func Write(w io.Writer, text string) error {
	to := raw(w)
	if to == nil {
		_, err := io.WriteString(w, text)
		return err
	}
	if _, keeps := w.(interface{ KeepsMarks() }); keeps {
		_, err := io.WriteString(to, text)
		return err
	}
	_, err := to.Write(Paint([]byte(text)))
	return err
}

// Cut returns the first characters of a line, at most limit, also of a line with marked words.
func Cut(line string, limit int) string {
	n := 0
	for i := range line {
		if n == limit {
			return line[:i]
		}
		n++
	}
	return line
}

// stateColumn returns the index of the column of states, or -1 if there is none.
func stateColumn(head []string) int {
	for i, name := range head {
		if strings.EqualFold(name, "state") {
			return i
		}
	}
	return -1
}
