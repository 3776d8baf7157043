package config

import (
	"net/url"
	"path/filepath"
	"strings"

	"github.com/belaydev/belay/internal/secret"
)

// Login is the user name and password, or token, for a repository.
type Login struct{ User, Password secret.Text }

// reveal splits a repository's URL into the URL without credentials and the login. ok is false if
// the URL has credentials that cannot be parsed.
func reveal(repo string) (bare string, login Login, ok bool) {
	scheme, rest, isURL := strings.Cut(repo, "://")
	if !isURL || !strings.Contains(rest, "@") {
		return repo, Login{}, true
	}
	u, err := url.Parse(scheme + "://" + rest)
	if err != nil {
		return "", Login{}, false // the URL may contain a password, so no part of it may be shown
	}
	if _, has := u.User.Password(); u.User == nil || !has && strings.EqualFold(scheme, "ssh") {
		return repo, Login{}, true // the user in an ssh URL is part of the address
	}
	password, _ := u.User.Password()
	login = Login{secret.Text(u.User.Username()), secret.Text(password)}
	u.User = nil
	if strings.EqualFold(scheme, "ssh") { // ssh ignores a password in the URL
		u.User, login = url.User(login.User.Reveal()), Login{}
	}
	return u.String(), login, true
}

// keep stores the login of a repository, if it has one, under the URL without credentials.
func (a *Agent) keep(bare string, l Login) {
	if l == (Login{}) {
		return
	}
	if a.Logins == nil {
		a.Logins = make(map[string]Login)
	}
	a.Logins[bare] = l
}

// repository is the kind of a value that is the path or the URL of a repository. Credentials in the
// URL are moved to Agent.Logins, so that Belay neither shows nor stores them with the URL.
type repository struct{ agent *Agent }

func (k repository) set(s string) bool {
	bare, login, ok := reveal(s)
	if !ok || strings.TrimSpace(bare) == "" || strings.ContainsRune(bare, 0) {
		return false
	}
	k.agent.keep(bare, login)
	k.agent.Repo = bare
	return true
}
func (repository) want() string {
	return "a path or URL, such as https://example.org/app.git"
}
func (k repository) show() string { return k.agent.Repo }
func (repository) word() string   { return "text" }
func (repository) tags() []string { return []string{"!!str"} }

// repositories is the kind of a value that is a list of repositories and of patterns that end with
// *. Credentials in the URL of a repository are moved to Agent.Logins. Credentials in a pattern are
// refused.
type repositories struct{ agent *Agent }

func (k repositories) set(s string) bool {
	var items []string
	if !(words{&items, ""}).set(s) {
		return false
	}
	logins := make(map[string]Login)
	for i, item := range items {
		bare, login, ok := reveal(item)
		if !ok || login != (Login{}) && strings.Contains(bare, "*") {
			return false
		}
		items[i], logins[bare] = bare, login
	}
	k.agent.Repos = items
	for bare, login := range logins {
		k.agent.keep(bare, login)
	}
	return true
}
func (repositories) want() string {
	return `repositories, such as ["https://example.org/*"]; those that end with * without credentials, which belong in the file of agent.git_credentials`
}
func (k repositories) show() string { return words{&k.agent.Repos, ""}.show() }
func (repositories) word() string   { return "list" }
func (repositories) tags() []string { return []string{"!!seq", "!!str"} }

// paths is the kind of a value that is a list of absolute paths.
type paths struct{ to *[]string }

func (k paths) set(s string) bool {
	var items []string
	if !(words{&items, ""}).set(s) {
		return false
	}
	for i, p := range items {
		if items[i] = filepath.Clean(p); !filepath.IsAbs(p) || items[i] == "/" {
			return false
		}
	}
	*k.to = items
	return true
}
func (paths) want() string   { return `absolute paths, such as ["/srv/secrets"]` }
func (k paths) show() string { return words{k.to, ""}.show() }
func (paths) word() string   { return "list" }
func (paths) tags() []string { return []string{"!!seq", "!!str"} }

// places is the kind of a value that is the list of names and addresses that jobs may reach over
// the network, or the word none.
type places struct{ to *[]string }

func (k places) set(s string) bool {
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item == "" || strings.ContainsAny(item, " \t\r\n\x00") || item == "none" &&
			len(items) > 0 {
			return false
		}
		if len(items) == 1 && items[0] == "none" {
			return false
		}
		items = append(items, item)
	}
	*k.to = items
	return true
}
func (places) want() string {
	return "names or addresses, such as api.example.org or git.example.org:443, or none"
}
func (k places) show() string { return strings.Join(*k.to, ",") }
func (places) word() string   { return "list" }
func (places) tags() []string { return []string{"!!seq", "!!str"} }

// secretive reports whether a value may contain credentials. Such a value is refused on the command
// line, which all users of the machine can read.
func (k Key) secretive(text string) bool {
	switch k.of(Default()).(type) {
	case repository, repositories:
		return HasPassword(text) || strings.Contains(text, "://") && strings.Contains(text, "@") &&
			!strings.Contains(strings.ToLower(text), "ssh://")
	}
	return HasPassword(text)
}
