package workspace

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// remote is a server on loopback that serves a bare copy of a repository over https. It requires
// the right password and counts the fetches.
type remote struct {
	*httptest.Server
	dir   string
	looks atomic.Int64
}

func serve(t *testing.T, src string) *remote {
	t.Helper()
	r := &remote{dir: filepath.Join(t.TempDir(), "bare.git")}
	run(t, "/", "clone", "-q", "--bare", src, r.dir)
	run(t, r.dir, "update-server-info")
	files := http.FileServer(http.Dir(filepath.Dir(r.dir)))
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if user, password, _ := q.BasicAuth(); user != "jo" || password != "s3cret'$(x)\"" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		if strings.HasSuffix(q.URL.Path, "/info/refs") {
			r.looks.Add(1)
		}
		files.ServeHTTP(w, q)
	}))
	t.Cleanup(r.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw})))
	t.Setenv("SSL_CERT_FILE", ca)
	return r
}

// urlWith returns the repository's URL with the given user name and password.
func (r *remote) urlWith(userinfo string) string {
	return strings.Replace(r.URL, "https://", "https://"+userinfo+"@", 1) + "/bare.git"
}

const rightUser = "jo:s3cret'$(x)%22"

// Rule: Prepare uses the credentials in a URL to fetch the repository. The credentials appear
// neither in the checkout, nor in the base (the cached clone), nor in errors.
func TestCredentials(t *testing.T) {
	r, m := serve(t, repo(t)), open(t)
	w := prepare(t, m, Spec{Repo: r.urlWith(rightUser)})
	if want := r.URL + "/bare.git"; w.Repo != want || run(t, w.Dir, "remote", "get-url", "origin") != want {
		t.Errorf("repository %q, want %q", w.Repo, want)
	}
	if out, err := exec.Command("grep", "-r", "s3cret", m.dir).Output(); err == nil {
		t.Errorf("the password is kept:\n%s", out)
	}
	_, err := open(t).Prepare(t.Context(), Spec{ID: "run_1", Repo: r.urlWith("jo:wr0ng")})
	if text := wantCode(t, err, belay.CodeUnavailable); strings.Contains(text, "wr0ng") {
		t.Error(text)
	}
}

// Rule: if a server redirects git to another host, git sends no credentials to that host.
func TestRedirectionGetsNoCredentials(t *testing.T) {
	r := serve(t, repo(t))
	var asked, told atomic.Int64
	other := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked.Add(1)
		if _, _, ok := q.BasicAuth(); ok {
			told.Add(1)
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		http.Error(w, "no", http.StatusUnauthorized)
	}))
	other.TLS = r.TLS.Clone()
	other.StartTLS()
	defer other.Close()
	lure := httptest.NewUnstartedServer(http.RedirectHandler(other.URL+"/bare.git/info/refs?service=git-upload-pack",
		http.StatusFound))
	lure.TLS = r.TLS.Clone()
	lure.StartTLS()
	defer lure.Close()
	_, err := open(t).Prepare(t.Context(), Spec{
		ID: "run_1", Repo: strings.Replace(lure.URL, "https://", "https://"+rightUser+"@", 1) + "/bare.git",
	})
	wantCode(t, err, belay.CodeUnavailable)
	if asked.Load() == 0 || told.Load() > 0 {
		t.Errorf("the other host got %d requests and the credentials %d times", asked.Load(), told.Load())
	}
}

// Rule: Prepare fetches a remote repository at most once within Debounce, with two exceptions: for
// an unknown ref or commit it fetches at once, and for a known commit it does not fetch.
func TestDebounce(t *testing.T) {
	src := repo(t)
	r, m := serve(t, src), open(t)
	now := time.Now()
	m.Now = func() time.Time { return now }
	url := r.urlWith(rightUser)
	publish := func() string {
		t.Helper()
		made := commit(t, src, "more")
		run(t, src, "push", "-q", "--all", r.dir)
		run(t, r.dir, "update-server-info")
		return made
	}
	at := func(s Spec) (string, bool) {
		t.Helper()
		before := r.looks.Load()
		s.Repo = url
		w := prepare(t, m, s)
		return w.Commit, r.looks.Load() > before
	}
	old, _ := at(Spec{})
	newer := publish()
	for _, step := range []struct {
		name   string
		later  time.Duration
		spec   Spec
		commit string
		looked bool
	}{
		{"within the debounce", 29 * time.Second, Spec{}, old, false},
		{"after it", 2 * time.Second, Spec{}, newer, true},
		{"the clock was put back", -time.Hour, Spec{}, newer, true},
		{"a known commit", time.Hour, Spec{Commit: old}, old, false},
	} {
		now = now.Add(step.later)
		if commit, looked := at(step.spec); commit != step.commit || looked != step.looked {
			t.Errorf("%s: commit %s, looked %v, want %s, %v", step.name, commit, looked, step.commit, step.looked)
		}
	}
	at(Spec{})
	run(t, src, "checkout", "-q", "-b", "new")
	newest := publish()
	if commit, looked := at(Spec{Ref: "new"}); commit != newest || !looked {
		t.Errorf("an unknown ref: commit %s, looked %v", commit, looked)
	}
	newest = publish()
	if commit, looked := at(Spec{Commit: newest}); commit != newest || !looked {
		t.Errorf("an unknown commit: commit %s, looked %v", commit, looked)
	}
	r.Close()
	at(Spec{Commit: old})
	now = now.Add(time.Hour)
	_, err := m.Prepare(t.Context(), Spec{ID: "run_away", Repo: url})
	wantCode(t, err, belay.CodeUnavailable)
	if _, err := os.Stat(filepath.Join(m.dir, "base")); err != nil {
		t.Fatal(err)
	}
	at(Spec{Commit: newest}) // the base still exists and has the commit
}
