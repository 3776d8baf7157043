package agent

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/secret"
)

// fileSuffix is the suffix of a variable whose value is the path of a file: NAME_FILE names the
// file that has the value of NAME.
const fileSuffix = "_FILE"

const (
	maxSecret = 64 << 10
	// minHidden is the minimum length, in bytes, of a secret that is removed from output, because a
	// shorter secret occurs in too many other words.
	minHidden = 8
)

// secrets returns the values of the variables in names that come from files: for a variable NAME,
// the variable NAME_FILE has the path of the file. The files are read again for each command, so
// that a changed secret takes effect immediately. The values appear only in the environment of the
// command.
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

// hider removes secrets from output, even if two writes have a part of a secret each. It does not
// find a secret that a command writes in another form, such as Base64.
type hider struct {
	values [][]byte
	words  [][]byte // the texts that replace the values, in the same order
	held   []byte   // the end of the output that has arrived; held back because a secret may begin there
}

func newHider(hidden map[string]string) *hider {
	h := &hider{}
	var names []string
	for name, value := range hidden {
		if len(value) >= minHidden {
			names = append(names, name)
		}
	}
	// The longest secret comes first, because a secret may be a part of another secret.
	slices.SortFunc(names, func(a, b string) int { return len(hidden[b]) - len(hidden[a]) })
	for _, name := range names {
		h.values = append(h.values, []byte(hidden[name]))
		h.words = append(h.words, []byte("["+name+"]"))
	}
	return h
}

// pass filters p and returns the output that can be passed on. It keeps back the end of p if a
// secret may begin there.
func (h *hider) pass(p []byte) []byte {
	if len(h.values) == 0 {
		return p
	}
	return h.scan(append(h.held, p...), false)
}

// rest returns, after the last call of pass, the output that pass has kept back.
func (h *hider) rest() []byte { return h.scan(h.held, true) }

// scan replaces the secrets in b. It keeps back the end of b if a secret may begin there, unless
// last is true.
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
