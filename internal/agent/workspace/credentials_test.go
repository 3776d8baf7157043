package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/secret"
)

const store = `# of the robots
https://bot:tok%40en@git.example
https://other:word@git.example:8443
https://team:team-secret@git.example/team
https://app:app-secret@git.example/team/app.git
https://late:late-secret@git.example/team
http://plain:plain-secret@git.example/team/app
https://only-a-token@tokens.example

https://ipv6:six@[0:0::1]/
`

func loginOf(c Credentials, url string) (Login, bool, error) {
	user, password, ok, err := c(url)
	return Login{secret.Text(user), secret.Text(password)}, ok, err
}

// Rule: if several lines match a repository's URL, the line with the longest path wins. A line
// matches only its own host and port; different spellings of the same URL get the same login.
func TestCredentialFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(path, []byte(store), 0o600); err != nil {
		t.Fatal(err)
	}
	known := CredentialFile(path)
	for repo, want := range map[string]Login{
		"https://git.example/x":                    {"bot", "tok@en"},
		"https://GIT.example:443/x/y.git":          {"bot", "tok@en"},
		"https://git.example/teams/x":              {"bot", "tok@en"},
		"https://git.example/team":                 {"team", "team-secret"},
		"https://git.example/team/x":               {"team", "team-secret"},
		"https://git.example/team/app":             {"app", "app-secret"},
		"https://git.example/team/app.git/":        {"app", "app-secret"},
		"https://git.example/team/application":     {"team", "team-secret"},
		"https://git.example:8443/team/app":        {"other", "word"},
		"https://tokens.example/x":                 {"only-a-token", ""},
		"https://[::1]:443/x":                      {"ipv6", "six"},
		"https://git.example.evil/team/app":        {},
		"https://xgit.example/team/app":            {},
		"https://git.example:444/team/app":         {},
		"ssh://git.example/team/app":               {},
		"git@git.example:team/app":                 {},
		"/team/app":                                {},
		"https://elsewhere.example/git.example/x/": {},
	} {
		got, ok, err := loginOf(known, repo)
		if err != nil || got != want || ok != (want != Login{}) {
			t.Errorf("%s: %+v, %v, %v; want %+v", repo, got, ok, err, want)
		}
	}
	// Each call of the Credentials reads the file again.
	if err := os.WriteFile(path, []byte("https://new:new-secret@git.example"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := loginOf(known, "https://git.example/team/app"); !ok || err != nil || got.User != "new" {
		t.Errorf("after a change: %+v, %v, %v", got, ok, err)
	}
	for _, broken := range []string{"https://git.example/no-user", "bot:s3cret@git.example", "https://bot:s3cret@",
		"https://bot:s3cret@git.example/%2e%2e/x", "https://bot:s3cret%zz@git.example"} {
		if err := os.WriteFile(path, []byte("\n"+broken+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, ok, err := loginOf(known, "https://git.example/x")
		if ok || belay.CodeOf(err) != belay.CodeUnavailable || !strings.Contains(err.Error(), "line 2: ") ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v, %v", broken, ok, err)
		}
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := loginOf(known, "https://git.example/x"); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("others can read it: %v", err)
	}
}

// Rule: Reveal removes the user name and the password from a URL, and the remaining URL names the
// same repository.
func TestReveal(t *testing.T) {
	for repo, want := range map[string]struct {
		bare  string
		login Login
	}{
		"https://bot:s3c%40ret@git.example/x.git":       {"https://git.example/x.git", Login{"bot", "s3c@ret"}},
		"HTTPS://s3cret@git.example:8443/x":             {"https://git.example:8443/x", Login{"s3cret", ""}},
		"https://git.example/x":                         {"https://git.example/x", Login{}},
		"ssh://git:s3cret@git.example/x":                {"ssh://git@git.example/x", Login{}},
		"ssh://git@git.example/x":                       {"ssh://git@git.example/x", Login{}},
		"git@git.example:x":                             {"git@git.example:x", Login{}},
		"/srv/x":                                        {"/srv/x", Login{}},
		"./https:/x":                                    {"./https:/x", Login{}},
		"https://bot:s3cret@git.example/x?y=z#fragment": {"https://git.example/x?y=z#fragment", Login{"bot", "s3cret"}},
	} {
		bare, login, err := Reveal(repo)
		if err != nil || bare != want.bare || login != want.login || strings.Contains(bare, "s3c") {
			t.Errorf("%s: %q, %+v, %v", repo, bare, login, err)
		}
	}
	if bare, _, err := Reveal("https://bot:s3cret%zz@git.example/x"); err == nil ||
		strings.Contains(bare+err.Error(), "s3cret") {
		t.Errorf("an invalid URL: %q, %v", bare, err)
	}
}
