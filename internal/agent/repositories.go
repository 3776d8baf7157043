package agent

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/workspace"
)

// Repositories says which repositories jobs may work on. Those that are named may be
// anything: paths, of ssh, and such as the operator has credentials for. Unless any are
// named beside Own, all public ones over https may be asked for, and no others.
type Repositories struct {
	// Own is what is worked on unless a job names another.
	Own string
	// Named are others, as patterns of [workspace.ParsePattern].
	Named []string
	// Credentials are the operator's: a URL for which there are some is not public.
	Credentials workspace.Credentials
	// Elsewhere says that jobs run on other machines, whose paths cannot be looked at.
	Elsewhere bool
}

// errRepository is the one answer to who names a repository that is not allowed, is not
// there, or is none: more would tell strangers what is on this machine.
var errRepository = &belay.Error{Code: belay.CodeForbidden,
	Message: "that repository may not be worked on here, or there is none: " +
		"jobs may ask for those that agent.repo and agent.repos name, and where agent.repos is not set, for any that " +
		"is public over https"}

// Check refuses a repository that a job may not ask for. It looks at no path that is not
// named. The error is a [belay.Error] with CodeInvalid for what is no repository by its
// form, or holds credentials, and else with CodeForbidden, in the same words for all.
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

// named reports whether a location is among those that are named, as it is written and
// by where it leads.
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

// CheckNamed refuses patterns that name no repositories.
func (r *Repositories) CheckNamed() error {
	for _, text := range r.Named {
		if _, err := workspace.ParsePattern(text); err != nil {
			return err
		}
	}
	return nil
}
