package secret

import (
	"strings"
	"testing"
)

// Rule: a Hider removes each secret from the output, even if two writes have a part of the secret
// each, and even if the secret is a part of another secret. It does not change text that only
// begins like a secret.
func TestHidersRemoveSecrets(t *testing.T) {
	hidden := []Hidden{{"INNER", "abcdefgh"}, {"LONG", "abcdefghij-1"}, {"NONE", ""}}
	const output = "xy abcdefg abcdefghij-1 abcdefgh! abcdefghij-2 abcdef"
	const want = "xy abcdefg [LONG] [INNER]! [INNER]ij-2 abcdef"
	for piece := 1; piece <= len(output); piece++ {
		h := NewHider(hidden)
		var b strings.Builder
		for rest := output; rest != ""; {
			n := min(piece, len(rest))
			b.Write(h.Pass([]byte(rest[:n])))
			rest = rest[n:]
		}
		b.Write(h.Rest())
		if b.String() != want {
			t.Errorf("in pieces of %d: %q", piece, b.String())
		}
	}
}
