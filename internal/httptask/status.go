package httptask

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/belaydev/belay/internal/reach"
)

// Statuses is a set of HTTP statuses. In JSON it is a status, a class such as "2xx", a range such as
// "200-299", or a list of these.
type Statuses []Span

// Span is a range of statuses, both ends included.
type Span struct{ From, To int }

var (
	success  = Statuses{{200, 299}}
	retrying = Statuses{{408, 408}, {425, 425}, {429, 429}, {500, 500}, {502, 504}}
)

// has reports whether a status is in the set.
func (s Statuses) has(status int) bool {
	return slices.ContainsFunc(s, func(r Span) bool { return status >= r.From && status <= r.To })
}

// IsZero reports whether the set is not given; an empty set is given.
func (s Statuses) IsZero() bool { return s == nil }

// UnmarshalJSON reads one range or a list of ranges.
func (s *Statuses) UnmarshalJSON(data []byte) error {
	var list []any
	if numbers(data).Decode(&list) != nil {
		var single any
		if err := numbers(data).Decode(&single); err != nil {
			return err
		}
		list = []any{single}
	}
	all := make(Statuses, 0, len(list))
	for _, x := range list {
		span, ok := spanOf(fmt.Sprint(x))
		if !ok {
			return invalid(`%s is not an HTTP status; write a status such as 404, a class such as "2xx" or a range such as `+
				`"200-299"`, reach.Printable(fmt.Sprint(x)))
		}
		all = append(all, span)
	}
	*s = all
	return nil
}

func spanOf(text string) (Span, bool) {
	if class, ok := strings.CutSuffix(strings.ToLower(text), "xx"); ok {
		n, err := strconv.Atoi(class)
		return Span{n * 100, n*100 + 99}, err == nil && n >= 1 && n <= 5
	}
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	a, err := strconv.Atoi(from)
	b, err2 := strconv.Atoi(to)
	return Span{a, b}, err == nil && err2 == nil && a >= 100 && a <= b && b <= 599
}

// MarshalJSON writes a list of statuses and ranges.
func (s Statuses) MarshalJSON() ([]byte, error) {
	list := make([]any, len(s))
	for i, r := range s {
		if list[i] = r.From; r.From != r.To {
			list[i] = fmt.Sprintf("%d-%d", r.From, r.To)
		}
	}
	return json.Marshal(list)
}
