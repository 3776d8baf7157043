package runner

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// spans is a set of numbers, as sorted ranges without gaps between two of them. Its text is like "0-41,43".
type spans []span //nolint:recvcheck // a map of spans is written as JSON, which needs MarshalText on the value

type span struct{ from, to int } // both inclusive

// has reports whether n is in the set.
func (s *spans) has(n int) bool {
	i, _ := s.find(n)
	return i < len(*s) && (*s)[i].from <= n
}

// find returns the number of the first span that ends at n or later.
func (s *spans) find(n int) (int, bool) {
	return slices.BinarySearchFunc(*s, n, func(x span, n int) int { return x.to - n })
}

// add adds n to the set.
func (s *spans) add(n int) {
	i, _ := s.find(n)
	if i < len(*s) && (*s)[i].from <= n {
		return
	}
	joinsLeft := i > 0 && (*s)[i-1].to == n-1
	joinsRight := i < len(*s) && (*s)[i].from == n+1
	switch {
	case joinsLeft && joinsRight:
		(*s)[i-1].to = (*s)[i].to
		*s = slices.Delete(*s, i, i+1)
	case joinsLeft:
		(*s)[i-1].to = n
	case joinsRight:
		(*s)[i].from = n
	default:
		*s = slices.Insert(*s, i, span{n, n})
	}
}

// count returns how many numbers are in the set.
func (s *spans) count() int {
	n := 0
	for _, x := range *s {
		n += x.to - x.from + 1
	}
	return n
}

// MarshalText writes the set.
func (s spans) MarshalText() ([]byte, error) {
	var b []byte
	for i, x := range s {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(x.from), 10)
		if x.to != x.from {
			b = append(b, '-')
			b = strconv.AppendInt(b, int64(x.to), 10)
		}
	}
	return b, nil
}

// UnmarshalText reads the set.
func (s *spans) UnmarshalText(b []byte) error {
	*s = nil
	if len(b) == 0 {
		return nil
	}
	for _, part := range strings.Split(string(b), ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		x := span{}
		var err1, err2 error
		x.from, err1 = strconv.Atoi(from)
		x.to, err2 = strconv.Atoi(to)
		if err1 != nil || err2 != nil || x.to < x.from || len(*s) > 0 && (*s)[len(*s)-1].to >= x.from-1 {
			return fmt.Errorf("%q is no set of numbers", b)
		}
		*s = append(*s, x)
	}
	return nil
}
