package agent

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/workspace"
)

// Repositories are the repositories that jobs may use. The repositories in Own and Named may be of
// any kind: paths, ssh, and URLs for which the operator has credentials. If Named is empty, jobs
// may also use all public https repositories.
type Repositories struct {
	// Own is the repository for jobs that name no repository.
	Own string
	// Named are patterns of other repositories, in the form of [workspace.ParsePattern].
	Named []string
	// Credentials are the operator's credentials; a URL for which there are credentials is not
	// public.
	Credentials workspace.Credentials
	// Elsewhere says that jobs run on other machines, so that paths cannot be checked on this
	// machine.
	Elsewhere bool
}

// errRepository is returned in three cases: the repository is not allowed, its path does not exist,
// or the path is not a repository. A more precise error would reveal which paths exist on this
// machine.
var errRepository = &belay.Error{Code: belay.CodeForbidden,
	Message: "that repository is not allowed here, or does not exist: " +
		"jobs may use the repositories in agent.repo and agent.repos or, if agent.repos is not set, any that " +
		"is public over https"}

// Check returns an error for a repository that a job may not use. It accesses a path only if the
// path matches Own or Named. The error is a [belay.Error]: CodeInvalid for an invalid repository or
// a URL with credentials, else CodeForbidden, always with the same text.
func (r *Repositories) Check(repo string) error {
	at, err := workspace.Locate(repo)
	if err != nil {
		return err
	}
	named, err := r.named(at)
	switch {
	case err != nil || named:
		return err
	case len(r.Named) > 0 || at.Scheme != "https":
		return errRepository
	case r.Credentials == nil:
		return nil
	}
	_, _, private, err := r.Credentials(at.String())
	if err == nil && private {
		err = errRepository
	}
	return err
}

// named reports whether Own or a pattern in Named matches a location. The same pattern must match
// both the location as it is written and the location to which its symbolic links lead. If
// Elsewhere is true, named resolves no symbolic links.
func (r *Repositories) named(at workspace.Location) (bool, error) {
	patterns := r.Named
	if r.Own != "" {
		patterns = append([]string{r.Own}, patterns...)
	}
	for _, text := range patterns {
		p, err := workspace.ParsePattern(text)
		if err != nil {
			return false, err
		}
		real := p
		if !r.Elsewhere {
			real = p.Resolve()
		}
		if !p.Matches(at) && !real.Matches(at) {
			continue
		}
		if r.Elsewhere {
			return true, nil
		}
		to, err := at.Resolve()
		if err != nil {
			return false, errRepository
		}
		if real.Matches(to) {
			return true, nil
		}
	}
	return false, nil
}

// CheckNamed returns an error if a pattern in Named is invalid.
func (r *Repositories) CheckNamed() error {
	for _, text := range r.Named {
		if _, err := workspace.ParsePattern(text); err != nil {
			return err
		}
	}
	return nil
}
