// Package screen makes text of others fit for a terminal: names, messages and output
// are somebody's input, and a terminal obeys what stands in them.
//
// What reaches a screen is printable text in UTF-8, spaces, and where there are lines
// their ends and tabs. Sequences that colour the screen or move the cursor are left
// out whole. Marks that turn the direction of text, and characters that cannot be seen,
// are shown as U+FFFD: by them one text looks like another. What is no UTF-8 is shown
// as U+FFFD too.
package screen

import (
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Hostile reports whether a rune reaches no screen: controls, those of the eight-bit
// sets among them, marks of direction, and characters that cannot be seen.
func Hostile(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}

// Line is a text in one line: ends of lines and tabs become spaces.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, Text(s))
}

// Text is a text of any number of lines.
func Text(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool {
		return r == utf8.RuneError || Hostile(r) && r != '\n' && r != '\t'
	}) {
		return s
	}
	var b strings.Builder
	w := NewWriter(&b)
	_, _ = w.Write([]byte(s)) // a Builder takes all
	_ = w.Flush()
	return b.String()
}

// Writer passes on what is written to it as a Text. It may be written to in pieces that
// end anywhere.
type Writer struct {
	to   io.Writer
	at   state
	long int    // how much of a sequence was left out
	rest []byte // the beginning of a character
	cr   bool   // a carriage return was the last
	out  []byte
}

// state is where in a sequence of a terminal the text is.
type state int

const (
	ground  state = iota
	escape        // after ESC
	middle        // between ESC and the final character of a short sequence
	control       // after ESC [, until a final character
	text          // after ESC ], ESC P and the like, until ST or BEL
	textEsc       // after an ESC in it
)

// maxSequence is how long a sequence may be: of one without an end no more is left out,
// and of one that is text to its end no more than its line.
const maxSequence = 4096

// NewWriter makes a Writer.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Write passes on what is whole of p.
func (w *Writer) Write(p []byte) (int, error) {
	b := p
	if len(w.rest) > 0 {
		b = slices.Concat(w.rest, p)
	}
	w.rest, w.out = nil, w.out[:0]
	for len(b) > 0 {
		if !utf8.FullRune(b) {
			w.rest = append([]byte(nil), b...)
			break
		}
		r, n := utf8.DecodeRune(b)
		w.take(r)
		b = b[n:]
	}
	return len(p), w.pass()
}

// Flush passes on what is left at the end.
func (w *Writer) Flush() error {
	w.out = w.out[:0]
	if len(w.rest) > 0 {
		w.rest = nil
		w.take(utf8.RuneError)
	}
	w.carriage(false)
	return w.pass()
}

func (w *Writer) pass() error {
	if len(w.out) == 0 {
		return nil
	}
	_, err := w.to.Write(w.out)
	return err
}

// carriage ends a line that a carriage return would have begun anew, unless an end of
// line follows.
func (w *Writer) carriage(followed bool) {
	if w.cr && !followed {
		w.out = append(w.out, '\n')
	}
	w.cr = false
}

// take takes one character.
func (w *Writer) take(r rune) {
	if w.at != ground {
		if w.long++; w.long <= maxSequence && w.sequence(r) {
			return
		}
		w.at = ground
	}
	w.carriage(r == '\n')
	switch {
	case r == 0x1b:
		w.at, w.long = escape, 0
	case r == 0x9b:
		w.at, w.long = control, 0
	case r == 0x90, r == 0x98, r >= 0x9d && r <= 0x9f:
		w.at, w.long = text, 0
	case r == '\n', r == '\t':
		w.out = append(w.out, byte(r))
	case r == '\r':
		w.cr = true
	case unicode.IsControl(r): // a bell, a backspace: nothing to be seen
	case Hostile(r):
		w.out = append(w.out, string(utf8.RuneError)...)
	default:
		w.out = utf8.AppendRune(w.out, r)
	}
}

// sequence takes a character of a sequence, and reports whether it is one.
func (w *Writer) sequence(r rune) bool {
	switch w.at {
	case ground:
	case escape, middle:
		switch {
		case w.at == escape && r == '[':
			w.at = control
		case w.at == escape && (r == ']' || r == 'P' || r == 'X' || r == '^' || r == '_'):
			w.at = text
		case r >= 0x20 && r <= 0x2f:
			w.at = middle
		case r >= 0x30 && r <= 0x7e:
			w.at = ground
		default:
			return false
		}
		return true
	case control:
		if r >= 0x40 && r <= 0x7e {
			w.at = ground
			return true
		}
		return r >= 0x20 && r <= 0x3f
	case text:
		switch r {
		case 0x07, 0x9c:
			w.at = ground
		case 0x1b:
			w.at = textEsc
		case '\n', '\r':
			return false
		}
		return true
	case textEsc:
		if w.at = ground; r == '\\' {
			return true
		}
		w.at = escape // a new sequence
		return w.sequence(r)
	}
	return false
}
