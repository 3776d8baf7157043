package promise

import (
	"fmt"
	"strings"
	"time"
)

// player is the name of the workflow whose input is a script.
const player = "play"

// Op is one operation of a workflow. The input of an execution is a script of operations, so that
// its output can be computed from its input.
type Op struct {
	Do string `json:"do"`
	Ms int    `json:"ms,omitempty"`
	N  int    `json:"n,omitempty"`
	// Target is the target that a step calls; empty if it calls none. The step fails in the first N
	// attempts.
	Target string `json:"target,omitempty"`
	// Cost is the cost that each try of a step reports, in ten-thousandths of a token.
	Cost int64 `json:"cost,omitempty"`
	// Pad only makes the script larger.
	Pad string `json:"pad,omitempty"`
	// Sub is the script of a child, or the script of the first branch; Other is the script of the
	// second branch.
	Sub   []Op `json:"sub,omitempty"`
	Other []Op `json:"other,omitempty"`
}

// D returns the duration of the operation.
func (o Op) D() time.Duration { return time.Duration(o.Ms) * time.Millisecond }

// The texts that operations without a result add to the output of the script.
const (
	TimedOut   = "timeout"
	ChildEnded = "the child did not succeed"
	ChildDone  = "the child succeeded"
)

// expected checks that out begins with the output that the script must have, and returns the rest
// of out.
func expected(script []Op, prefix string, out []string) ([]string, error) {
	for i, o := range script {
		var err error
		if out, err = expectedOf(o, fmt.Sprintf("%s%d", prefix, i), out); err != nil {
			return out, err
		}
	}
	return out, nil
}

func expectedOf(o Op, name string, out []string) ([]string, error) {
	take := func(want string, is func(string) bool) error {
		if len(out) == 0 || !is(out[0]) {
			return fmt.Errorf("op %s (%s) returned %.60q, not %q", name, o.Do, out, want)
		}
		out = out[1:]
		return nil
	}
	is := func(want string) error { return take(want, func(s string) bool { return s == want }) }
	var err error
	switch o.Do {
	case "step":
		err = is("did " + name)
	case "large":
		err = is(fmt.Sprint("large ", o.N))
	case "state":
		err = is(fmt.Sprint(name, " counted to ", o.N))
	case "signal":
		err = take("a signal's payload", func(s string) bool {
			return s == TimedOut && o.Ms > 0 || len(s) > 3 && strings.HasPrefix(s, "sig")
		})
	case "child":
		if len(out) > 0 && out[0] == ChildEnded {
			return out[1:], nil
		}
		if err = is(ChildDone); err == nil {
			return expected(o.Sub, "", out)
		}
	case "both":
		if out, err = expected(o.Sub, "", out); err == nil {
			return expected(o.Other, "", out)
		}
	}
	return out, err
}
