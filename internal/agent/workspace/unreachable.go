package workspace

import (
	"errors"
	"strings"
)

// ErrUnreachable is wrapped by an error of [Manager.Prepare] if a retry may succeed: the repository
// is on another machine, and that machine has not answered that the repository is missing or
// forbidden.
var ErrUnreachable = errors.New("the repository cannot be reached")

// answers are parts of error messages of git (with LC_ALL=C). Each shows that the other machine has
// answered and refused the request.
var answers = []string{
	"authentication failed", "could not read username", "could not read password", "permission denied",
	"host key verification failed",
	"repository not found", "does not appear to be a git repository", "no such file or directory",
	"returned error: 400", "returned error: 401", "returned error: 403", "returned error: 404", "returned error: 410",
	"not valid: is this a git repository", "unable to find remote helper", "certificate",
}

// refused reports whether the output of git shows that the other machine has answered; a retry
// would then get the same answer.
func refused(said string) bool {
	said = strings.ToLower(said)
	for _, r := range answers {
		if strings.Contains(said, r) {
			return true
		}
	}
	return false
}
