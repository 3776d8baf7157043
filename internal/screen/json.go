package screen

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON returns a writer that passes JSON on to another writer and escapes each hostile character
// (see [Hostile]) as \u with the number of the character. Hostile characters occur only in JSON
// strings, so the escaped JSON has the same value. Each Write must end after a complete character.
func JSON(to io.Writer) io.Writer { return escaping{to} }

type escaping struct{ to io.Writer }

// Write writes p, escaped.
func (e escaping) Write(p []byte) (int, error) {
	if _, err := e.to.Write(Escaped(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Escaped returns JSON with hostile characters escaped; see JSON.
func Escaped(p []byte) []byte {
	if !bytes.ContainsFunc(p, func(r rune) bool { return Hostile(r) && r != '\n' && r != '\t' }) {
		return p
	}
	var out []byte
	for len(p) > 0 {
		r, n := utf8.DecodeRune(p)
		switch {
		case !Hostile(r) || r == '\n' || r == '\t':
			out = append(out, p[:n]...)
		case r > 0xffff:
			a, b := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, a, b)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		p = p[n:]
	}
	return out
}
