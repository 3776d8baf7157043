// Package screen makes text from other people safe for a terminal: names, messages and output may
// contain escape sequences, which a terminal obeys.
//
// Safe text consists of printable UTF-8 and spaces, and in texts of several lines also line ends
// and tabs. Whole escape sequences, which colour the screen or move the cursor, are left out. Marks
// of text direction and invisible characters, with which one text can look like another, are
// replaced by U+FFFD. Bytes that are not UTF-8 are replaced by U+FFFD too.
package screen

import (
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Hostile reports whether a character must not reach a terminal: a control character (also of an
// eight-bit character set), a mark of text direction, or an invisible character.
func Hostile(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}

// Line makes a text safe and puts it into one line: line ends and tabs become spaces.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, Text(s))
}

// Text makes a text of any number of lines safe.
func Text(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool {
		return r == utf8.RuneError || Hostile(r) && r != '\n' && r != '\t'
	}) {
		return s
	}
	var b strings.Builder
	w := NewWriter(&b)
	_, _ = w.Write([]byte(s)) // a strings.Builder returns no error
	_ = w.Flush()
	return b.String()
}

// Writer makes the text that is written to it safe, like Text, and passes it on. Each write may end
// anywhere, also within a character or an escape sequence.
type Writer struct {
	to   io.Writer
	at   state
	long int    // how many characters of the current sequence were left out
	rest []byte // the beginning of an incomplete character
	cr   bool   // the last character was a carriage return
	out  []byte
}

// state says in which part of an escape sequence the next character is.
type state int

const (
	ground  state = iota // outside of a sequence
	escape               // after ESC
	middle               // between ESC and the final character of a short sequence
	control              // after ESC [, until a final character
	text                 // after ESC ], ESC P and the like, until ST (string terminator) or BEL
	textEsc              // in the state text, after an ESC
)

// maxSequence is the greatest number of characters that are left out as one sequence, so that a
// sequence without an end does not hide all further text. A sequence with text, such as a title,
// also ends at the end of its line.
const maxSequence = 4096

// NewWriter makes a Writer.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Write passes on the complete characters of p and keeps the beginning of an incomplete character
// for the next Write.
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

// Flush ends the text: if the last character is incomplete, Flush writes U+FFFD in its place.
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

// carriage handles a carriage return, with which a program could overwrite a line. The carriage
// return becomes a line end, unless a line end follows anyway.
func (w *Writer) carriage(followed bool) {
	if w.cr && !followed {
		w.out = append(w.out, '\n')
	}
	w.cr = false
}

// take handles one character.
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
	case unicode.IsControl(r): // a bell, a backspace and the like are left out
	case Hostile(r):
		w.out = append(w.out, string(utf8.RuneError)...)
	default:
		w.out = utf8.AppendRune(w.out, r)
	}
}

// sequence handles the next character inside an escape sequence. It reports whether the character
// belongs to the sequence.
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
