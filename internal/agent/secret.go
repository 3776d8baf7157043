package agent

import (
	"fmt"
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

// newHider returns a Hider for the secrets, given by their names.
func newHider(hidden map[string]string) *secret.Hider {
	var all []secret.Hidden
	for name, value := range hidden {
		if len(value) >= minHidden {
			all = append(all, secret.Hidden{Name: name, Value: secret.Text(value)})
		}
	}
	return secret.NewHider(all)
}
