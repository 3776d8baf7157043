package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// op is one thing that a workflow does. A script of them is an execution's
// input, so that what it must return can be told from its input.
type op struct {
	Do string `json:"do"`
	Ms int    `json:"ms,omitempty"`
	N  int    `json:"n,omitempty"`
	// Pad makes the script larger.
	Pad string `json:"pad,omitempty"`
	// Sub is the script of a child or of the first branch, Other that of the
	// second.
	Sub   []op `json:"sub,omitempty"`
	Other []op `json:"other,omitempty"`
}

func (o op) d() time.Duration { return time.Duration(o.Ms) * time.Millisecond }

// What ops answer that have no answer of their own.
const (
	childEnded = "the child did not succeed"
	childDone  = "the child succeeded"
)

// writeScript makes a script up. Those of children and branches are short.
func writeScript(r *rand.Rand, depth int) []op {
	n := 1 + r.IntN(2)
	if depth > 0 {
		n = 1 + r.IntN(4)
	}
	var script []op
	for range n {
		o := writeOp(r, depth)
		if o.Do == "count" && slices.ContainsFunc(script, func(o op) bool { return o.Do == "count" }) {
			o = op{Do: "step", Ms: o.Ms} // an execution has one state
		}
		script = append(script, o)
	}
	return script
}

func writeOp(r *rand.Rand, depth int) op {
	ms := func(most int) int { return 1 + r.IntN(most) }
	switch x := r.IntN(100); {
	case x < 45:
		return op{Do: "step", Ms: ms(60)}
	case x < 57:
		return op{Do: "sleep", Ms: ms(2000)}
	case x < 69 && depth > 0:
		return op{Do: "signal"}
	case x < 77 && depth > 0:
		return op{Do: "child", Sub: writeScript(r, depth-1)}
	case x < 82 && depth > 0:
		return op{Do: "both", Sub: writeScript(r, 0), Other: writeScript(r, 0)}
	case x < 88 && depth > 0:
		return op{Do: "count", Ms: ms(50), N: 1 + r.IntN(4)}
	case x < 95:
		return op{Do: "fail", N: 1 + r.IntN(3)}
	case x < 96:
		return op{Do: "panic", N: 1}
	case x < 97:
		return op{Do: "permanent"}
	default:
		return op{Do: "step", Ms: 100 + r.IntN(600)}
	}
}

// signals is how many signals a script waits for. Those of children and branches
// wait for none.
func signals(script []op) int {
	n := 0
	for _, o := range script {
		if o.Do == "signal" {
			n++
		}
	}
	return n
}

// expected takes what a script must return off what was returned, and gives the
// rest.
func expected(script []op, prefix string, out []string) ([]string, error) {
	for i, o := range script {
		var err error
		if out, err = expectedOf(o, fmt.Sprintf("%s%d", prefix, i), out); err != nil {
			return out, err
		}
	}
	return out, nil
}

func expectedOf(o op, name string, out []string) ([]string, error) {
	is := func(want string) error {
		if len(out) == 0 || out[0] != want {
			return fmt.Errorf("op %s (%s) returned %.60q, not %q", name, o.Do, out, want)
		}
		out = out[1:]
		return nil
	}
	switch o.Do {
	case "step":
		err := is("did " + name)
		return out, err
	case "large":
		err := is(fmt.Sprint("large ", o.N))
		return out, err
	case "count":
		err := is(fmt.Sprint(name, " counted to ", o.N))
		return out, err
	case "signal":
		if len(out) == 0 || len(out[0]) < 4 || out[0][:3] != "sig" {
			return out, fmt.Errorf("op %s returned %.60q, not a signal's payload", name, out)
		}
		return out[1:], nil
	case "child":
		if len(out) > 0 && out[0] == childEnded {
			return out[1:], nil
		}
		if err := is(childDone); err != nil {
			return out, err
		}
		return expected(o.Sub, "", out)
	case "both":
		out, err := expected(o.Sub, "", out)
		if err != nil {
			return out, err
		}
		return expected(o.Other, "", out)
	}
	return out, nil
}
