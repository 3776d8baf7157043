package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

const (
	// maxDepth is how deep the values of a request's JSON may be nested.
	maxDepth = 100
	// fewKeys is how many keys of an object are compared one by one; more keys are kept in a map.
	fewKeys = 16
)

// checkJSON refuses a body that is not exactly one JSON value in UTF-8, is nested too deep, names a
// field twice, contains a NUL, or has a field that the shape does not have. Decoders treat such
// texts differently, so no decoder gets one.
func checkJSON(b []byte, sh *shape) error {
	if !utf8.Valid(b) {
		return malformed("the body is not valid UTF-8")
	}
	s := scanner{b: b}
	s.space()
	if err := s.value(1, sh); err != nil {
		return err
	}
	if s.space(); s.i < len(b) {
		return s.fail("something follows the JSON value")
	}
	return nil
}

// scanner reads JSON once, without copying it.
type scanner struct {
	b    []byte
	i    int
	keys [][]byte // the keys of all open objects
}

func (s *scanner) fail(what string) error {
	return malformed(fmt.Sprintf("the body is no JSON that Belay accepts: %s at byte %d", what, s.i))
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\n', '\t', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek is the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

func (s *scanner) value(depth int, sh *shape) error {
	if depth > maxDepth {
		return s.fail(fmt.Sprintf("nested deeper than %d", maxDepth))
	}
	switch c := s.peek(); {
	case c == '{':
		return s.object(depth, sh)
	case c == '[':
		return s.array(depth, sh.values())
	case c == '"':
		_, err := s.text()
		return err
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	case s.i == len(s.b):
		return s.fail("it ends too early")
	}
	return s.fail("unexpected character")
}

func (s *scanner) word(w string) error {
	if !bytes.HasPrefix(s.b[s.i:], []byte(w)) {
		return s.fail("unexpected character")
	}
	s.i += len(w)
	return nil
}

func (s *scanner) array(depth int, each *shape) error {
	s.i++
	if s.space(); s.peek() == ']' {
		s.i++
		return nil
	}
	for {
		s.space()
		if err := s.value(depth+1, each); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case ',':
			s.i++
		case ']':
			s.i++
			return nil
		default:
			return s.fail("expected , or ]")
		}
	}
}

func (s *scanner) object(depth int, sh *shape) error {
	s.i++
	first := len(s.keys)
	var many map[string]struct{}
	defer func() { s.keys = s.keys[:first] }()
	left := 0 // how many required fields are still missing
	if sh != nil {
		left = sh.needed
	}
	if s.space(); s.peek() == '}' {
		s.i++
		return s.whole(left, sh, first)
	}
	for {
		if s.space(); s.peek() != '"' {
			return s.fail("expected a field's name")
		}
		key, err := s.text()
		if err != nil {
			return err
		}
		if key, err = s.plain(key); err != nil {
			return err
		}
		if many, err = s.once(key, first, many); err != nil {
			return err
		}
		f, known := sh.of(key)
		if !known {
			return invalid("body."+string(bytes.Trim(key, `"`)), "there is no such field")
		}
		if s.space(); s.peek() != ':' {
			return s.fail("expected :")
		}
		s.i++
		if f.needed {
			left--
		}
		s.space()
		if err := s.value(depth+1, f.shape); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case ',':
			s.i++
		case '}':
			s.i++
			return s.whole(left, sh, first)
		default:
			return s.fail("expected , or }")
		}
	}
}

// whole refuses an object if left, the number of its missing required fields, is above 0. first is
// the index of the object's first key.
func (s *scanner) whole(left int, sh *shape, first int) error {
	if left == 0 {
		return nil
	}
	return invalid("body."+sh.missing(s.keys[first:]), "is missing")
}

// plain is a key with its escapes decoded, still in quotes.
func (s *scanner) plain(key []byte) ([]byte, error) {
	if bytes.IndexByte(key, '\\') < 0 {
		return key, nil
	}
	var plain string
	if err := json.Unmarshal(key, &plain); err != nil {
		return nil, s.fail("bad escape")
	}
	return []byte(`"` + plain + `"`), nil
}

// once adds a key to the object whose first key has the index first, and refuses a key that the
// object has already. If the object has more than fewKeys keys, they are in the map many.
func (s *scanner) once(key []byte, first int, many map[string]struct{}) (map[string]struct{}, error) {
	if many == nil {
		for _, k := range s.keys[first:] {
			if bytes.Equal(k, key) {
				return many, s.fail("a field is given twice, again")
			}
		}
		s.keys = append(s.keys, key)
		if len(s.keys)-first > fewKeys {
			many = make(map[string]struct{}, 4*fewKeys)
			for _, k := range s.keys[first:] {
				many[string(k)] = struct{}{}
			}
		}
		return many, nil
	}
	if _, twice := many[string(key)]; twice {
		return many, s.fail("a field is given twice, again")
	}
	many[string(key)] = struct{}{}
	return many, nil
}

// text reads a string and returns it as it is written, with its quotes.
func (s *scanner) text() ([]byte, error) {
	start := s.i
	for s.i++; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return s.b[start:s.i], nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return nil, err
			}
		case c < ' ':
			return nil, s.fail("control character in a string")
		}
	}
	return nil, s.fail("it ends too early")
}

// escape reads the rest of an escape after the backslash, up to its last byte.
func (s *scanner) escape() error {
	s.i++
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
	default:
		return s.fail("bad escape")
	}
	if s.i+4 >= len(s.b) {
		return s.fail("it ends too early")
	}
	for _, c := range s.b[s.i+1 : s.i+5] {
		if !('0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f') {
			return s.fail("bad escape")
		}
	}
	digits := s.b[s.i+1 : s.i+5]
	s.i += 4
	switch {
	case string(digits) == "0000":
		return s.fail("NUL in a string")
	case half(digits, '8', 'b'):
		return s.second()
	case half(digits, 'c', 'f'):
		return s.fail("half a surrogate pair")
	}
	return nil
}

// half reports whether the four digits of an escape are a surrogate whose second digit is between
// low and high.
func half(digits []byte, low, high byte) bool {
	c := digits[1]
	if c > '9' {
		c |= 0x20
	}
	return digits[0]|0x20 == 'd' && low <= c && c <= high
}

// second reads the second half of a surrogate pair.
func (s *scanner) second() error {
	rest := s.b[s.i+1:]
	if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' || !half(rest[2:6], 'c', 'f') {
		return s.fail("half a surrogate pair")
	}
	for _, c := range rest[4:6] {
		if !('0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f') {
			return s.fail("bad escape")
		}
	}
	s.i += 6
	return nil
}

func (s *scanner) number() error {
	if s.peek() == '-' {
		s.i++
	}
	switch c := s.peek(); {
	case c == '0':
		s.i++
	case '1' <= c && c <= '9':
		s.digits()
	default:
		return s.fail("bad number")
	}
	if s.peek() == '.' {
		s.i++
		if !s.digits() {
			return s.fail("bad number")
		}
	}
	if s.peek()|0x20 == 'e' {
		s.i++
		if c := s.peek(); c == '+' || c == '-' {
			s.i++
		}
		if !s.digits() {
			return s.fail("bad number")
		}
	}
	return nil
}

func (s *scanner) digits() bool {
	start := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > start
}
