package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// Rule: each call of Prepare uses the credentials that are configured at that time. They appear
// neither in the Repo of the workspace nor in its git remote, and Spec.Allow gets the URL without
// them.
func TestConfiguredCredentials(t *testing.T) {
	r, m := serve(t, repo(t)), open(t)
	login := Login{"jo", "s3cret'$(x)\""}
	asked := ""
	m.Credentials = func(url string) (string, string, bool, error) {
		asked = url
		return login.User.Reveal(), login.Password.Reveal(), login != Login{}, nil
	}
	w := prepare(t, m, Spec{Repo: r.URL + "/bare.git"})
	if asked != r.URL+"/bare.git" || w.Repo != asked || run(t, w.Dir, "remote", "get-url", "origin") != asked {
		t.Errorf("asked for %q, made %q", asked, w.Repo)
	}
	login = Login{}
	_, err := m.Prepare(t.Context(), Spec{ID: "run_2", Repo: r.URL + "/bare.git", Commit: strings.Repeat("0", 40)})
	wantCode(t, err, belay.CodeUnavailable)
	denied := &belay.Error{Code: belay.CodeForbidden, Message: "no"}
	src := repo(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(src, link); err != nil {
		t.Fatal(err)
	}
	judged := ""
	_, err = m.Prepare(t.Context(), Spec{ID: "run_3", Repo: link, Allow: func(repo string) error {
		judged = repo
		return denied
	}})
	if wantCode(t, err, belay.CodeForbidden); judged != src {
		t.Errorf("Allow was called with %q", judged)
	}
}
