package belay

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// Cost is a cost in ten-thousandths of a token: Cost(2500) is a quarter of a token. The unit of a
// token is up to the programs that report costs. In JSON a Cost is the number of tokens with up to
// four decimals, such as 0.25. No conversion rounds: a number that is no Cost is an error.
type Cost int64

// MaxCost is the largest Cost. A larger sum becomes MaxCost.
const MaxCost Cost = math.MaxInt64

const (
	costDecimals = 4
	perToken     = 10_000 // 10^costDecimals
)

// CostOf returns the cost of a whole number of tokens, at most MaxCost and at least -MaxCost.
func CostOf(tokens int64) Cost {
	const most = int64(MaxCost / perToken)
	switch {
	case tokens > most:
		return MaxCost
	case tokens < -most:
		return -MaxCost
	}
	return Cost(tokens * perToken)
}

// Add returns the sum of two costs, neither of which is negative, or MaxCost if the sum is larger.
func (c Cost) Add(more Cost) Cost { return c + min(more, MaxCost-c) }

// Tokens returns the whole tokens of a cost, and the rest in ten-thousandths of a token.
func (c Cost) Tokens() (whole, rest int64) { return int64(c / perToken), int64(c % perToken) }

// String returns the tokens as a decimal number without needless zeros, such as "12" or "0.25".
func (c Cost) String() string { return string(c.append(nil)) }

func (c Cost) append(b []byte) []byte {
	whole, rest := c.Tokens()
	if c < 0 {
		b = append(b, '-')
		whole, rest = -whole, -rest
	}
	b = strconv.AppendInt(b, whole, 10)
	if rest > 0 {
		b = append(b, strings.TrimRight(fmt.Sprintf(".%0*d", costDecimals, rest), "0")...)
	}
	return b
}

// ParseCost reads a number of tokens in the form of a JSON number, such as "12", "0.25" or "1.5e3".
// It returns an error with CodeInvalid for any other text, and for a number that is negative, is
// above MaxCost, or has more than four decimals other than zeros.
func ParseCost(s string) (Cost, error) {
	n, ok := cutNumber(s)
	switch {
	case !ok:
		return 0, badCost("a cost is a number of tokens such as 12 or 0.25")
	case n.digits == "":
		return 0, nil
	case n.negative:
		return 0, badCost("a cost must not be negative")
	}
	zeros := n.exponent + costDecimals // the number of zeros after the digits, in the unit of Cost
	if zeros < 0 {
		return 0, badCost("a cost has at most four decimals")
	}
	const most = 19 // the number of digits of MaxCost
	if zeros <= int64(most-min(most, len(n.digits))) {
		v, err := strconv.ParseInt(n.digits+strings.Repeat("0", int(zeros)), 10, 64)
		if err == nil {
			return Cost(v), nil
		}
	}
	return 0, badCost("a cost is at most " + MaxCost.String() + " tokens")
}

func badCost(why string) error { return &Error{Code: CodeInvalid, Message: why} }

// decimal is a number: its digits, an integer without zeros at its beginning and end, times a power
// of ten. The digits of zero are empty.
type decimal struct {
	negative bool
	digits   string
	exponent int64
}

// cutNumber reads a JSON number.
func cutNumber(s string) (n decimal, ok bool) {
	s, n.negative = strings.CutPrefix(s, "-")
	whole, s := cutDigits(s)
	if whole == "" || whole[0] == '0' && len(whole) > 1 {
		return n, false
	}
	fraction := ""
	if rest, ok := strings.CutPrefix(s, "."); ok {
		if fraction, s = cutDigits(rest); fraction == "" {
			return n, false
		}
	}
	if s != "" {
		if s[0] != 'e' && s[0] != 'E' {
			return n, false
		}
		if n.exponent, ok = parseExponent(s[1:]); !ok {
			return n, false
		}
	}
	digits := whole + fraction
	n.digits = strings.TrimRight(digits, "0")
	n.exponent += int64(len(whole) - len(n.digits))
	n.digits = strings.TrimLeft(n.digits, "0")
	return n, true
}

// parseExponent reads an exponent. Instead of an exponent above 2^48 it returns 2^48, and instead
// of an exponent below -2^48 it returns -2^48: no text is long enough for this to make a
// difference.
func parseExponent(s string) (int64, bool) {
	sign := int64(1)
	if rest, ok := strings.CutPrefix(s, "-"); ok {
		s, sign = rest, -1
	} else {
		s = strings.TrimPrefix(s, "+")
	}
	digits, rest := cutDigits(s)
	if digits == "" || rest != "" {
		return 0, false
	}
	const far = 1 << 48
	v, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || v > far {
		v = far
	}
	return sign * v, true
}

// cutDigits divides a text after its leading digits.
func cutDigits(s string) (digits, rest string) {
	rest = strings.TrimLeft(s, "0123456789")
	return s[:len(s)-len(rest)], rest
}

// MarshalJSON writes the tokens as a number.
func (c Cost) MarshalJSON() ([]byte, error) { return c.append(nil), nil }

// UnmarshalJSON reads a number of tokens as ParseCost does. Like package json, it ignores null.
func (c *Cost) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	if kind := kindOf(b); kind != "number" {
		return &json.UnmarshalTypeError{Value: kind, Type: reflect.TypeFor[float64]()}
	}
	v, err := ParseCost(string(b))
	if err == nil {
		*c = v
	}
	return err
}

// kindOf returns the kind of a JSON value, as package json names it in its errors.
func kindOf(b []byte) string {
	if len(b) > 0 {
		switch b[0] {
		case '"':
			return "string"
		case '{':
			return "object"
		case '[':
			return "array"
		case 't', 'f':
			return "bool"
		}
	}
	return "number"
}
