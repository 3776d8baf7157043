package workspace

import (
	"errors"
	"strings"
)

// ErrUnreachable is wrapped by errors of [Manager.Prepare] that trying again may mend:
// the repository is elsewhere, and did not say that it is not there or not for us.
var ErrUnreachable = errors.New("the repository cannot be reached")

// answers are what git says, in LC_ALL=C, where the other side was reached and refused.
var answers = []string{
	"authentication failed", "could not read username", "could not read password", "permission denied",
	"host key verification failed",
	"repository not found", "does not appear to be a git repository", "no such file or directory",
	"returned error: 400", "returned error: 401", "returned error: 403", "returned error: 404", "returned error: 410",
	"not valid: is this a git repository", "unable to find remote helper", "certificate",
}

// refused reports whether what git said of a remote repository is an answer, so that
// asking again gets the same.
func refused(said string) bool {
	said = strings.ToLower(said)
	for _, r := range answers {
		if strings.Contains(said, r) {
			return true
		}
	}
	return false
}
