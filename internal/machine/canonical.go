package machine

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// The versions of the form in which a submission's input is hashed. The last byte of a hash is the
// version. Hashes of plainInput contain no version, because they are older than the versions.
const (
	plainInput     = 1 // the input's bytes without white space between its parts
	canonicalInput = 2 // the input's canonical form
)

// appendCanonical appends the canonical form of a JSON text to b: all texts of the same value have
// the same canonical form. It is the form of RFC 8785, except that numbers keep all their digits.
// The members of an object are ordered by their names in UTF-16. Strings have only the necessary
// escapes. A number is written as its digits, without zeros at either end, and a power of ten:
// 1200, 1200.0 and 1.2e3 become 12e2. Two different numbers never get the same form, as they could
// if they were converted to floating point. The text must be valid JSON.
func appendCanonical(b, text []byte) []byte {
	c := canonical{rest: text}
	start := len(b)
	b = c.value(b)
	if len(c.unsorted) == 0 {
		return b
	}
	written := bytes.Clone(b)
	return appendSorted(b[:start], written, start, len(b), c.unsorted)
}

// canonical reads valid JSON, and writes its canonical form except for the order of members.
type canonical struct {
	rest []byte
	// unsorted are the outermost objects read so far whose members must still be sorted, in the
	// order in which they were written. They are sorted at the end, so that each byte is copied
	// once, however deep the objects are nested.
	unsorted []unsorted
}

// unsorted is an object whose members are not in the canonical order. They were written from the
// offset from to the offset to.
type unsorted struct {
	from, to int
	members  []member
}

// next returns the next byte that is not white space, and does not consume it.
func (c *canonical) next() byte {
	c.rest = bytes.TrimLeft(c.rest, " \t\r\n")
	if len(c.rest) == 0 {
		return 0
	}
	return c.rest[0]
}

// skip consumes the next byte that is not white space.
func (c *canonical) skip() {
	if c.next() != 0 {
		c.rest = c.rest[1:]
	}
}

// value appends the next value to b.
func (c *canonical) value(b []byte) []byte {
	switch c.next() {
	case '{':
		return c.object(b)
	case '[':
		return c.array(b)
	case '"':
		return appendText(b, c.text())
	}
	end := bytes.IndexAny(c.rest, ",]} \t\r\n")
	if end < 0 {
		end = len(c.rest)
	}
	word := c.rest[:end]
	c.rest = c.rest[end:]
	if len(word) > 0 && (word[0] == '-' || word[0] >= '0' && word[0] <= '9') {
		return appendNumber(b, string(word))
	}
	return append(b, word...)
}

func (c *canonical) array(b []byte) []byte {
	b = append(b, '[')
	c.skip()
	for first := true; c.next() != ']' && c.next() != 0; first = false {
		if !first {
			b = append(b, ',')
			c.skip()
		}
		b = c.value(b)
	}
	c.skip()
	return append(b, ']')
}

// member is a member of an object: its name without quotes and escapes, and the offsets between
// which the member was written.
type member struct {
	name     []byte
	from, to int
	inner    []unsorted // objects in its value
}

func (c *canonical) object(b []byte) []byte {
	var members []member
	b = append(b, '{')
	start, sorted, outer := len(b), true, len(c.unsorted)
	c.skip()
	for c.next() != '}' && c.next() != 0 {
		if len(members) > 0 {
			b = append(b, ',')
			c.skip()
			c.next()
		}
		m := member{from: len(b)}
		name := c.text()
		m.name = meaning(name)
		b = append(appendText(b, name), ':')
		c.skip() // the colon
		b = c.value(b)
		m.to = len(b)
		sorted = sorted && (len(members) == 0 || compareUTF16(members[len(members)-1].name, m.name) <= 0)
		members = append(members, m)
	}
	c.skip()
	if !sorted {
		c.unsorted = append(c.unsorted[:outer], newUnsorted(start, len(b), members, slices.Clone(c.unsorted[outer:])))
	}
	return append(b, '}')
}

// newUnsorted sorts the members of an object. Each member keeps the unsorted objects in its value.
func newUnsorted(from, to int, members []member, inner []unsorted) unsorted {
	for i := range members {
		n := 0
		for n < len(inner) && inner[n].to <= members[i].to {
			n++
		}
		members[i].inner, inner = inner[:n], inner[n:]
	}
	// Members with the same name keep their order, because a reader of the input may take the first
	// or the last.
	slices.SortStableFunc(members, func(a, b member) int { return compareUTF16(a.name, b.name) })
	return unsorted{from, to, members}
}

// appendSorted appends written[from:to] to b, with the members of the unsorted objects in canonical
// order.
func appendSorted(b, written []byte, from, to int, objects []unsorted) []byte {
	for _, o := range objects {
		b = append(b, written[from:o.from]...)
		for i, m := range o.members {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendSorted(b, written, m.from, m.to, m.inner)
		}
		from = o.to
	}
	return append(b, written[from:to]...)
}

// text consumes a string, with its quotes.
func (c *canonical) text() []byte {
	for i := 1; i < len(c.rest); i++ {
		switch c.rest[i] {
		case '\\':
			i++
		case '"':
			text := c.rest[:i+1]
			c.rest = c.rest[i+1:]
			return text
		}
	}
	text := c.rest
	c.rest = nil
	return text
}

// meaning returns the string that a JSON string in quotes stands for.
func meaning(text []byte) []byte {
	if bytes.IndexByte(text, '\\') < 0 {
		return bytes.Trim(text, `"`)
	}
	var s string
	if json.Unmarshal(text, &s) != nil {
		return text
	}
	return []byte(s)
}

// appendText appends a string with only the necessary escapes. A string that is not valid Unicode
// is appended unchanged, because decoding would replace the invalid parts, and different strings
// could become equal.
func appendText(b, text []byte) []byte {
	if bytes.IndexByte(text, '\\') < 0 {
		return append(b, text...)
	}
	s := meaning(text)
	if bytes.ContainsRune(s, utf8.RuneError) {
		return append(b, text...)
	}
	b = append(b, '"')
	for _, ch := range s {
		switch {
		case ch == '"' || ch == '\\':
			b = append(b, '\\', ch)
		case ch == '\b':
			b = append(b, `\b`...)
		case ch == '\t':
			b = append(b, `\t`...)
		case ch == '\n':
			b = append(b, `\n`...)
		case ch == '\f':
			b = append(b, `\f`...)
		case ch == '\r':
			b = append(b, `\r`...)
		case ch < ' ':
			b = append(append(b, `\u00`...), "0123456789abcdef"[ch>>4], "0123456789abcdef"[ch&15])
		default:
			b = append(b, ch)
		}
	}
	return append(b, '"')
}

// maxExponent is the largest number of digits in an exponent that appendNumber computes with. A
// number with a longer exponent is appended unchanged.
const maxExponent = 15

// appendNumber appends a number as its digits and a power of ten.
func appendNumber(b []byte, text string) []byte {
	digits, sign := strings.CutPrefix(text, "-")
	digits, power, _ := strings.Cut(strings.ToLower(digits), "e")
	whole, fraction, _ := strings.Cut(digits, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return append(b, '0') // -0 too
	}
	exponent := int64(0)
	if power = strings.TrimPrefix(power, "+"); power != "" {
		var err error
		if len(power) > maxExponent {
			return append(b, text...)
		}
		if exponent, err = strconv.ParseInt(power, 10, 64); err != nil {
			return append(b, text...)
		}
	}
	significant := strings.TrimRight(digits, "0")
	exponent += int64(len(digits)-len(significant)) - int64(len(fraction))
	if sign {
		b = append(b, '-')
	}
	b = append(b, significant...)
	if exponent != 0 {
		b = strconv.AppendInt(append(b, 'e'), exponent, 10)
	}
	return b
}

// compareUTF16 orders texts by their code units in UTF-16, as RFC 8785 requires. This is the order
// of their bytes in UTF-8, except for characters above U+FFFF, which are surrogates in UTF-16.
func compareUTF16(a, b []byte) int {
	const high = 0xee // the first byte, in UTF-8, of U+E000, the first character above the surrogates
	for _, text := range [][]byte{a, b} {
		if slices.ContainsFunc(text, func(b byte) bool { return b >= high }) {
			return slices.Compare(utf16.Encode([]rune(string(a))), utf16.Encode([]rune(string(b))))
		}
	}
	return bytes.Compare(a, b)
}
