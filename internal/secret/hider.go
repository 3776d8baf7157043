package secret

import (
	"bytes"
	"slices"
)

// Hidden is a text that must not be shown, and the name that is shown in its place.
type Hidden struct {
	Name  string
	Value Text
}

// Hider removes secrets from output, even if two writes have a part of a secret each. It does not
// find a secret that the writer has changed, such as one in another encoding.
type Hider struct {
	values [][]byte
	words  [][]byte // the texts that replace the values, in the same order
	held   []byte   // the end of the output that has arrived; held back because a secret may begin there
}

// NewHider returns a Hider that puts [NAME] in the place of each value. It ignores empty values.
func NewHider(all []Hidden) *Hider {
	h := &Hider{}
	all = slices.DeleteFunc(slices.Clone(all), func(x Hidden) bool { return x.Value == "" })
	// The longest secret comes first, because a secret may be a part of another secret.
	slices.SortStableFunc(all, func(a, b Hidden) int { return len(b.Value) - len(a.Value) })
	for _, x := range all {
		h.values = append(h.values, []byte(x.Value))
		h.words = append(h.words, []byte("["+x.Name+"]"))
	}
	return h
}

// Text returns a whole text without the secrets.
func (h *Hider) Text(s string) string {
	if len(h.values) == 0 {
		return s
	}
	return string((&Hider{values: h.values, words: h.words}).scan([]byte(s), true))
}

// Pass filters p and returns the output that can be passed on. It keeps back the end of p if a
// secret may begin there.
func (h *Hider) Pass(p []byte) []byte {
	if len(h.values) == 0 {
		return p
	}
	return h.scan(append(h.held, p...), false)
}

// Rest returns, after the last call of Pass, the output that Pass has kept back.
func (h *Hider) Rest() []byte { return h.scan(h.held, true) }

// scan replaces the secrets in b. It keeps back the end of b if a secret may begin there, unless
// last is true.
func (h *Hider) scan(b []byte, last bool) []byte {
	var out []byte
	for i := 0; i < len(b); {
		found := -1
		for v, value := range h.values {
			if !last && len(b)-i < len(value) && bytes.HasPrefix(value, b[i:]) {
				h.held = append([]byte(nil), b[i:]...)
				return out
			}
			if found < 0 && bytes.HasPrefix(b[i:], value) {
				found = v
			}
		}
		if found < 0 {
			out = append(out, b[i])
			i++
			continue
		}
		out = append(out, h.words[found]...)
		i += len(h.values[found])
	}
	h.held = nil
	return out
}
