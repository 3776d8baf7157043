package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// line is a line of output, at the time at which its end arrived.
type line struct {
	at    time.Duration
	spans []span
}

// span is a part of a line in one style.
type span struct {
	text  string
	style style
}

// style is how a terminal shows a text. colour is 0 for the normal one, or 31 to 36.
type style struct {
	bold, dim bool
	colour    int
}

// parse splits output into lines with styles. An escape sequence other than SGR is an error, because the picture would
// not show what the terminal shows.
func parse(chunks []chunk) (lines []line, err error) {
	var now style
	var text []byte
	is := line{}
	end := func() {
		if len(text) > 0 {
			is.spans = append(is.spans, span{string(text), now})
			text = nil
		}
	}
	var rest []byte
next:
	for _, c := range chunks {
		rest = append(rest, c.text...)
		for len(rest) > 0 {
			switch b := rest[0]; {
			case b == 0x1b:
				sequence, whole, err := sgr(rest)
				if err != nil {
					return nil, err
				}
				if !whole {
					continue next // the next chunk has the rest of the character or sequence
				}
				end()
				if now, err = now.with(string(sequence)); err != nil {
					return nil, err
				}
				rest = rest[len(sequence)+3:]
			case b == '\r':
				rest = rest[1:]
			case b == '\n':
				end()
				is.at = c.at
				lines, is, rest = append(lines, is), line{}, rest[1:]
			case b < ' ' || b == 0x7f:
				return nil, fmt.Errorf("the output has the control character %#x", b)
			case !utf8.FullRune(rest):
				continue next // the next chunk has the rest of the character or sequence
			default:
				_, n := utf8.DecodeRune(rest)
				text, rest = append(text, rest[:n]...), rest[n:]
			}
		}
	}
	if len(rest) > 0 || len(text) > 0 {
		return nil, fmt.Errorf("the output ends within a line")
	}
	return lines, nil
}

// sgr returns the parameters of the escape sequence at the begin of b, and whether b has all of it.
func sgr(b []byte) (parameters []byte, whole bool, err error) {
	if len(b) < 2 {
		return nil, false, nil
	}
	if b[1] != '[' {
		return nil, false, fmt.Errorf("the output has an escape sequence %q", b[:2])
	}
	i := bytes.IndexFunc(b[2:], func(r rune) bool { return r >= '@' })
	if i < 0 {
		return nil, false, nil
	}
	if b[2+i] != 'm' {
		return nil, false, fmt.Errorf("the output has the escape sequence %q, which changes more than colours", b[:3+i])
	}
	return b[2 : 2+i], true, nil
}

func (s style) with(parameters string) (style, error) {
	for p := range strings.SplitSeq(parameters, ";") {
		n, err := strconv.Atoi(p)
		switch {
		case p == "" || n == 0 && err == nil:
			s = style{}
		case n == 1:
			s.bold = true
		case n == 2:
			s.dim = true
		case n >= 31 && n <= 36:
			s.colour = n
		default:
			return s, fmt.Errorf("the output has the style %q, which record cannot draw", parameters)
		}
	}
	return s, nil
}
