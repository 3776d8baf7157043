package agent

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/secret"
)

// fileSuffix of a variable says that its value is the path of a file with the
// value of the variable without it.
const fileSuffix = "_FILE"

const (
	maxSecret = 64 << 10
	// minHidden is the shortest secret that is taken out of output: a shorter
	// one is a part of too much else.
	minHidden = 8
)

// secrets reads those variables among names whose value is in a file: NAME_FILE
// names it. They are read anew for each command, so that a changed secret counts
// at once, and are in its environment only.
func secrets(names []string, lookup func(string) string) (map[string]string, error) {
	var all map[string]string
	for _, name := range names {
		path := lookup(name + fileSuffix)
		if path == "" {
			continue
		}
		value, err := secret.Read(path, maxSecret)
		if err != nil {
			return nil, &belay.Error{
				Code: belay.CodeUnavailable, Message: fmt.Sprintf("the secret %s cannot be read", name), Err: err,
			}
		}
		if all == nil {
			all = make(map[string]string)
		}
		all[name] = strings.TrimRight(string(value), "\r\n")
	}
	return all, nil
}

// hider takes secrets out of output, also where a write ends in the middle of
// one. It is no wall: who writes a secret in another form gets it through.
type hider struct {
	values [][]byte
	words  [][]byte // what stands in their place
	held   []byte   // may be the beginning of one
}

func newHider(hidden map[string]string) *hider {
	h := &hider{}
	var names []string
	for name, value := range hidden {
		if len(value) >= minHidden {
			names = append(names, name)
		}
	}
	// The longest first: one may be a part of another.
	slices.SortFunc(names, func(a, b string) int { return len(hidden[b]) - len(hidden[a]) })
	for _, name := range names {
		h.values = append(h.values, []byte(hidden[name]))
		h.words = append(h.words, []byte("["+name+"]"))
	}
	return h
}

// pass gives what of the output so far can be shown.
func (h *hider) pass(p []byte) []byte {
	if len(h.values) == 0 {
		return p
	}
	return h.scan(append(h.held, p...), false)
}

// rest gives what was held back, at the end of the output.
func (h *hider) rest() []byte { return h.scan(h.held, true) }

// scan replaces the secrets in b. From where one may begin that b does not hold
// wholly, it is held back, unless there is no more to come.
func (h *hider) scan(b []byte, last bool) []byte {
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
