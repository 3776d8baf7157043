package chaos

import (
	"math/rand/v2"
	"slices"

	"github.com/belaydev/belay/internal/testkit/promise"
)

type op = promise.Op

// writeScript makes a random script. The scripts of children and branches are short.
func writeScript(r *rand.Rand, depth int) []op {
	n := 1 + r.IntN(2)
	if depth > 0 {
		n = 1 + r.IntN(4)
	}
	var script []op
	for range n {
		o := writeOp(r, depth)
		if o.Do == "state" && slices.ContainsFunc(script, func(o op) bool { return o.Do == "state" }) {
			o = op{Do: "step", Ms: o.Ms} // an execution has only one free-form state, so a script sets it in one op
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
		return op{Do: "state", Ms: ms(50), N: 1 + r.IntN(4)}
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

// signals returns the number of signals for which a script waits. The scripts of children and
// branches wait for none.
func signals(script []op) int {
	n := 0
	for _, o := range script {
		if o.Do == "signal" {
			n++
		}
	}
	return n
}
