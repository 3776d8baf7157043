package main

import (
	"path/filepath"

	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/internal/config"
)

// credentials returns the logins for repositories that the configuration names, or nil if it names
// none. A login in the URL of a repository is for this repository alone; the logins for other
// repositories come from the credential file.
func credentials(c *config.Config) workspace.Credentials {
	a := c.Agent
	var file workspace.Credentials
	if a.GitCredentials != "" {
		path := a.GitCredentials
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		file = workspace.CredentialFile(path)
	}
	if file == nil && len(a.Logins) == 0 {
		return nil
	}
	return func(url string) (user, password string, ok bool, err error) {
		for repo, l := range a.Logins {
			if workspace.Same(repo, url) {
				return l.User.Reveal(), l.Password.Reveal(), true, nil
			}
		}
		if file == nil {
			return "", "", false, nil
		}
		return file(url)
	}
}

// withLogin returns credentials in which one repository has the login that the user typed in its
// URL, and all other repositories have the logins in others.
func withLogin(repo string, login workspace.Login, others workspace.Credentials) workspace.Credentials {
	if login == (workspace.Login{}) {
		return others
	}
	return func(url string) (user, password string, ok bool, err error) {
		switch {
		case workspace.Same(repo, url):
			return login.User.Reveal(), login.Password.Reveal(), true, nil
		case others == nil:
			return "", "", false, nil
		}
		return others(url)
	}
}
