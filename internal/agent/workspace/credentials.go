package workspace

import (
	"bytes"
	"fmt"
	"net/url"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/secret"
)

// Login is a user name and a password for a server with repositories. Either of the two may be
// empty.
type Login struct{ User, Password secret.Text }

// Credentials finds the user name and password for a repository's URL. It is called before each
// fetch. If it returns an error, that fetch fails.
type Credentials func(url string) (user, password string, ok bool, err error)

// maxCredentials is the maximum size of a file of credentials, in bytes.
const maxCredentials = 1 << 20

// CredentialFile finds logins in a file of the format of git's credential store, with one login on
// each line:
//
//	https://USER:PASSWORD@HOST
//	https://USER:PASSWORD@HOST/PATH
//
// A line applies to the repositories on its host and port, at or below its path. If several lines
// apply, the line with the longest path wins; among lines with equal paths, the first line wins.
// Lines of other schemes and lines that begin with # are ignored. An error contains the number of
// the invalid line, and never its text.
func CredentialFile(path string) Credentials {
	return func(url string) (user, password string, ok bool, err error) {
		text, err := secret.Read(path, maxCredentials)
		if err == nil {
			var login Login
			if login, ok, err = lookUp(text, url); err == nil {
				return login.User.Reveal(), login.Password.Reveal(), ok, nil
			}
		}
		return "", "", false, &belay.Error{
			Code:    belay.CodeUnavailable,
			Message: "the credentials for repositories cannot be read (agent.git_credentials, agent.push_credentials)",
			Err:     err,
		}
	}
}

// lookUp finds the login for a repository in the text of a credentials file.
func lookUp(text []byte, repo string) (found Login, ok bool, err error) {
	at, err := Locate(repo)
	if err != nil || at.Scheme != "https" {
		return Login{}, false, nil // a repository without an https location has no login
	}
	longest := -1
	n := 0
	for line := range bytes.Lines(text) {
		n++
		login, of, used, err := credential(strings.TrimSpace(string(line)))
		if err != nil {
			return Login{}, false, fmt.Errorf("line %d: %w", n, err)
		}
		if used && of.Host == at.Host && below(at.Path, of.Path) && len(of.Path) > longest {
			longest, found, ok = len(of.Path), login, true
		}
	}
	return found, ok, nil
}

// below reports whether path equals the directory dir or lies below it.
func below(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// credential parses one line of a credentials file.
func credential(line string) (login Login, of Location, used bool, err error) {
	scheme, rest, ok := strings.Cut(line, "://")
	if line == "" || line[0] == '#' || ok && isScheme(scheme) && !strings.EqualFold(scheme, "https") {
		return login, of, false, nil
	}
	u, perr := url.Parse("https://" + rest) // perr is not reported, because its text contains the password
	if !ok || perr != nil || u.User == nil || !hostForm.MatchString(u.Host) || u.RawQuery != "" || u.Fragment != "" {
		return login, of, false, invalid("it is not of the form https://USER:PASSWORD@HOST/PATH")
	}
	segments, err := segmentsOf(u.EscapedPath())
	if err != nil {
		return login, of, false, err
	}
	login = loginIn(u)
	of = Location{
		Scheme: "https", Host: plainHost("https", u.Host), Path: withoutGit("/" + strings.Join(segments, "/")),
	}
	return login, of, login != Login{}, nil
}

// Reveal splits the credentials from a repository URL that the user of this process named, so that
// they are not stored with the URL.
func Reveal(repo string) (bare string, login Login, err error) {
	scheme, rest, ok := strings.Cut(repo, "://")
	if !ok || !strings.EqualFold(scheme, "https") && !strings.EqualFold(scheme, "ssh") {
		return repo, Login{}, nil
	}
	u, err := url.Parse(strings.ToLower(scheme) + "://" + rest)
	if err != nil {
		return "", Login{}, invalid("repository: the %s:// URL cannot be read; %s", strings.ToLower(scheme), allowed)
	}
	if u.User == nil || u.Scheme == "ssh" && !hasPassword(u) {
		return repo, Login{}, nil
	}
	if u.Scheme == "ssh" { // ssh ignores a password in the URL
		u.User = url.User(u.User.Username())
		return u.String(), Login{}, nil
	}
	login = loginIn(u)
	u.User = nil
	return u.String(), login, nil
}

func loginIn(u *url.URL) Login {
	password, _ := u.User.Password()
	return Login{secret.Text(u.User.Username()), secret.Text(password)}
}

// Same reports whether two names, such as a URL and a path, refer to the same repository.
func Same(a, b string) bool {
	at, err := Locate(a)
	bt, err2 := Locate(b)
	return err == nil && err2 == nil && at == bt
}
