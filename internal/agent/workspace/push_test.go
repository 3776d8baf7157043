//go:build linux

package workspace

import (
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
)

// forge is a git server on loopback, over https. The user reader may fetch, and the user writer may
// push.
type forge struct {
	*httptest.Server
	dir    string
	pushes atomic.Int64
}

const readerPassword, writerPassword = "may-only-read-7", "may-also-write-9"

func newForge(t *testing.T, src string) *forge {
	t.Helper()
	f := &forge{dir: filepath.Join(t.TempDir(), "bare.git")}
	run(t, "/", "clone", "-q", "--bare", src, f.dir)
	run(t, f.dir, "config", "http.receivepack", "true")
	backend := &cgi.Handler{
		Path: filepath.Join(run(t, "/", "--exec-path"), "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(f.dir), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1",
			"GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}
	f.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		user, password, _ := q.BasicAuth()
		push := strings.Contains(q.URL.RequestURI(), "git-receive-pack")
		writes := user == "writer" && password == writerPassword
		if !writes && (push || user != "reader" || password != readerPassword) {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		if push && q.Method == http.MethodPost {
			f.pushes.Add(1)
		}
		backend.ServeHTTP(w, q)
	}))
	t.Cleanup(f.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})))
	t.Setenv("SSL_CERT_FILE", ca)
	return f
}

func (f *forge) repo() string { return f.URL + "/bare.git" }

func login(user, password string) Credentials {
	return func(string) (string, string, bool, error) { return user, password, true, nil }
}

var writing = login("writer", writerPassword)

func (f *forge) branches(t *testing.T) string {
	t.Helper()
	return run(t, f.dir, "for-each-ref", "--format=%(objectname) %(refname)")
}

var someTime = time.Unix(1_700_000_000, 0)

// pushOf salvages the changes in w and makes a commit of them.
func pushOf(t *testing.T, m *Manager, w *Workspace, branch string) Push {
	t.Helper()
	c, err := m.Compose(t.Context(), w, salvageOf(t, m, w), "the message", someTime)
	if err != nil {
		t.Fatal(err)
	}
	return Push{Composed: c, Branch: branch, Credentials: writing}
}

func pushed(t *testing.T) (*forge, *Manager, *Workspace) {
	t.Helper()
	f, m := newForge(t, repo(t)), open(t)
	m.Credentials = login("reader", readerPassword)
	return f, m, prepare(t, m, Spec{Repo: f.repo()})
}

// Rule: Push makes a branch with the commits of the command and one commit of its other changes.
// The same call makes the same commit, and a repeated push succeeds and changes nothing. No
// password is in any file of the manager.
func TestPush(t *testing.T) {
	f, m, w := pushed(t)
	write(t, filepath.Join(w.Dir, "new.txt"), "committed\n")
	made := commit(t, w.Dir, "by the agent")
	write(t, filepath.Join(w.Dir, "a.txt"), "not committed\n")
	write(t, filepath.Join(w.Dir, "more.txt"), "untracked\n")
	p := pushOf(t, m, w, "belay/one")
	if again := pushOf(t, m, w, "belay/one"); again.Commit != p.Commit {
		t.Errorf("the commit is %s, and then %s", p.Commit, again.Commit)
	}
	for range 2 {
		if err := m.Push(t.Context(), w, p); err != nil {
			t.Fatal(err)
		}
	}
	if got := run(t, f.dir, "log", "--format=%H %an %s", "-2", "belay/one"); got != p.Commit+" Belay the message\n"+
		made+" T by the agent" {
		t.Errorf("the branch has\n%s", got)
	}
	if diff := cmp.Diff("not committed\nuntracked", run(t, f.dir, "show", "belay/one:a.txt")+"\n"+run(t, f.dir, "show",
		"belay/one:more.txt")); diff != "" {
		t.Error(diff)
	}
	if f.pushes.Load() != 1 {
		t.Errorf("%d pushes changed the repository, want 1", f.pushes.Load())
	}
	for _, secret := range []string{writerPassword, readerPassword} {
		if out, err := exec.Command("grep", "-r", secret, m.dir).Output(); err == nil {
			t.Errorf("a password is kept:\n%s", out)
		}
	}
}

// Rule: a push of unchanged work composes the commit that was checked out.
func TestComposeOfUnchangedWork(t *testing.T) {
	_, m, w := pushed(t)
	if p := pushOf(t, m, w, "belay/one"); p.Commit != w.Commit || len(p.Pack) != 0 {
		t.Errorf("the commit %s, want %s", p.Commit, w.Commit)
	}
}

// Rule: a push extends a branch, but never removes commits from it.
func TestPushOverwritesNothing(t *testing.T) {
	f, m, w := pushed(t)
	first := pushOf(t, m, w, "belay/one")
	write(t, filepath.Join(w.Dir, "a.txt"), "mine\n")
	mine := pushOf(t, m, w, "belay/one")
	run(t, f.dir, "update-ref", "refs/heads/belay/two", w.Commit)
	mine.Branch = "belay/two"
	if err := m.Push(t.Context(), w, mine); err != nil {
		t.Fatal(err)
	}
	other := run(t, f.dir, "commit-tree", "-p", w.Commit, "-m", "of another", w.Commit+"^{tree}")
	run(t, f.dir, "update-ref", "refs/heads/belay/one", other)
	run(t, f.dir, "update-ref", "refs/heads/belay/older", w.Commit)
	before := f.branches(t)
	for _, p := range []Push{{Composed: mine.Composed, Branch: "belay/one"}, {Composed: first.Composed,
		Branch: "belay/two"}} {
		p.Credentials = writing
		text := wantCode(t, m.Push(t.Context(), w, p), belay.CodeConflict)
		if !strings.Contains(text, p.Branch+" of "+f.repo()+" has other commits already") {
			t.Error(text)
		}
	}
	if diff := cmp.Diff(before, f.branches(t)); diff != "" {
		t.Error(diff)
	}
}

// Rule: nothing that the command leaves in its repository changes where Belay pushes, which objects
// it pushes, or which programs it runs.
func TestPushIgnoresTheRepositoryOfTheCommand(t *testing.T) {
	f, m, w := pushed(t)
	lure := newForge(t, repo(t))
	t.Setenv("SSL_CERT_FILE", bothAuthorities(t, f, lure))
	marker := filepath.Join(t.TempDir(), "ran")
	evil := filepath.Join(w.Dir, ".git", "evil")
	write(t, evil, "#!/bin/sh\nenv >>"+marker+"\n")
	if err := os.Chmod(evil, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, hook := range []string{"pre-push", "post-commit", "reference-transaction", "pre-commit", "commit-msg"} {
		write(t, filepath.Join(w.Dir, ".git", "hooks", hook), "#!/bin/sh\nenv >>"+marker+"\n")
		if err := os.Chmod(filepath.Join(w.Dir, ".git", "hooks", hook), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(w.Dir, ".gitattributes"), "* filter=evil diff=evil merge=evil\n")
	write(t, filepath.Join(w.Dir, "a.txt"), "changed\n")
	for key, value := range map[string]string{
		"url." + lure.repo() + ".insteadOf": f.repo(), "url." + lure.repo() + ".pushInsteadOf": f.repo(),
		"remote.origin.pushurl": lure.repo(), "credential.helper": "!" + evil, "core.sshCommand": evil,
		"core.askPass": evil, "core.fsmonitor": evil, "core.hooksPath": filepath.Join(w.Dir, ".git", "hooks"),
		"filter.evil.clean": evil, "filter.evil.smudge": evil, "diff.evil.command": evil, "diff.evil.textconv": evil,
		"http.proxy": "http://127.0.0.1:1", "http.sslVerify": "false", "push.followTags": "true",
		"remote.origin.push": "+refs/heads/*:refs/heads/*", "push.gpgSign": "true", "gpg.program": evil,
	} {
		run(t, w.Dir, "config", key, value)
	}
	for _, file := range []string{filepath.Join(w.Home, ".gitconfig"), filepath.Join(w.Home, ".netrc")} {
		write(t, file, "[credential]\n\thelper = !"+evil+"\n")
	}
	tree := run(t, w.Dir, "rev-parse", "HEAD^{tree}")
	secretly := run(t, w.Dir, "commit-tree", "-m", "replaced", tree)
	write(t, filepath.Join(w.Dir, ".git", "refs", "replace", w.Commit), secretly+"\n")
	write(t, filepath.Join(w.Dir, ".git", "refs", "heads", "belay", "one"), secretly+"\n")
	_ = os.Remove(marker) // the commands of this test have run hooks
	p := pushOf(t, m, w, "belay/one")
	if err := m.Push(t.Context(), w, p); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(marker); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program of the command ran:\n%s", text)
	}
	if got := run(t, f.dir, "rev-list", "belay/one"); !strings.HasPrefix(got, p.Commit+"\n"+w.Commit+"\n") {
		t.Errorf("the branch has\n%s", got)
	}
	if strings.Contains(lure.branches(t), "belay/") || strings.Count(f.branches(t), "\n") !=
		strings.Count(lure.branches(t), "\n")+1 {
		t.Errorf("other refs were pushed:\n%s\n%s", f.branches(t), lure.branches(t))
	}
}

func bothAuthorities(t *testing.T, all ...*forge) string {
	t.Helper()
	var text strings.Builder
	for _, f := range all {
		if err := pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw}); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "both.pem")
	write(t, path, text.String())
	return path
}

// Rule: a push needs a credential of its own: the credential for fetches is not used. A refused
// credential is not tried again, and is in no error.
func TestPushNeedsItsCredential(t *testing.T) {
	f, m, w := pushed(t)
	write(t, filepath.Join(w.Dir, "a.txt"), "mine\n")
	p := pushOf(t, m, w, "belay/one")
	before := f.branches(t)
	for name, tt := range map[string]struct {
		of   Credentials
		code belay.Code
	}{
		"none":       {nil, belay.CodeForbidden},
		"no line":    {func(string) (string, string, bool, error) { return "", "", false, nil }, belay.CodeForbidden},
		"may read":   {login("reader", readerPassword), belay.CodeUnavailable},
		"is invalid": {login("writer", "wr0ng-passw0rd"), belay.CodeUnavailable},
	} {
		p.Credentials = tt.of
		err := m.Push(t.Context(), w, p)
		text := wantCode(t, err, tt.code)
		if strings.Contains(text, "wr0ng") || strings.Contains(text, readerPassword) || errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p.Credentials = writing
	f.Close()
	if err := m.Push(t.Context(), w, p); !errors.Is(err, ErrUnreachable) {
		t.Errorf("without the server: %v", err)
	}
	if diff := cmp.Diff(before, f.branches(t)); diff != "" {
		t.Error(diff)
	}
}

// Rule: a name that git could take for an option, for another ref or for several refs is refused
// before anything is pushed.
func TestHostileBranches(t *testing.T) {
	f, m, w := pushed(t)
	write(t, filepath.Join(w.Dir, "a.txt"), "mine\n")
	p := pushOf(t, m, w, "")
	before := f.branches(t)
	for _, name := range []string{
		"", "-f", "--force", "--receive-pack=touch /tmp/x", "+main", "+x:main", "a:b", ":main", "a b", "a..b", "a/../b",
		"/main", "main/", "a//b", ".a", "a/.b", "a.lock", "a.lock/b", "HEAD", "@", "a@{1}", "a\nb", "a\x00b", "a~1",
		"a^", "a?", "a*", "a[b", "a\\b", "a\x7f", strings.Repeat("a", 3000), strings.Repeat("a", 201), "a.", "\u0085x",
		strings.Repeat("a", 40), "refs/heads/../x",
	} {
		p.Branch = name
		if code := belay.CodeOf(m.Push(t.Context(), w, p)); code != belay.CodeInvalid {
			t.Errorf("%q: code %s", name, code)
		}
	}
	if diff := cmp.Diff(before, f.branches(t)); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"belay/x", "agents/exe_01", "fix-1", "späte"} {
		if err := CheckBranch(name); err != nil {
			t.Error(err)
		}
	}
}

// Rule: Belay pushes over https and ssh only.
func TestPushToPaths(t *testing.T) {
	for _, name := range []string{"/srv/app.git", "file:///srv/app.git"} {
		if code := belay.CodeOf(CheckPush(name)); code != belay.CodeInvalid {
			t.Errorf("%s: code %s", name, code)
		}
	}
	for _, name := range []string{"https://example.org/app.git", "git@example.org:app.git", "ssh://example.org/app"} {
		if err := CheckPush(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Rule: objects that are damaged or incomplete are not pushed, and no server is asked.
func TestPushChecksTheObjects(t *testing.T) {
	f, m, w := pushed(t)
	write(t, filepath.Join(w.Dir, "a.txt"), "mine\n")
	commit(t, w.Dir, "one")
	good := pushOf(t, m, w, "belay/one")
	damaged, cut, absent := good, good, good
	damaged.Pack = append([]byte(nil), good.Pack...)
	damaged.Pack[len(damaged.Pack)/2] ^= 1
	cut.Pack = good.Pack[:len(good.Pack)/2]
	absent.Commit = strings.Repeat("1", 40)
	for name, p := range map[string]Push{"damaged": damaged, "cut": cut, "absent": absent} {
		if err := m.Push(t.Context(), w, p); err == nil || !strings.Contains(err.Error(), "cannot be pushed") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if f.pushes.Load() != 0 || strings.Contains(f.branches(t), "belay/") {
		t.Error("a push happened")
	}
}

// Rule: the keeper follows no redirection, so that no other address gets the commit or the login.
func TestPushFollowsNoRedirection(t *testing.T) {
	f, m, w := pushed(t)
	write(t, filepath.Join(w.Dir, "a.txt"), "mine\n")
	p := pushOf(t, m, w, "belay/one")
	lure := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		http.Redirect(rw, q, f.URL+q.URL.RequestURI(), http.StatusFound)
	}))
	lure.TLS = f.TLS.Clone()
	lure.StartTLS()
	defer lure.Close()
	w.Repo = lure.URL + "/bare.git"
	if err := m.Push(t.Context(), w, p); err == nil {
		t.Error("the push followed a redirection")
	}
	if strings.Contains(f.branches(t), "belay/") {
		t.Error("a push happened")
	}
}

// Rule: with users of their own, the steward of a push runs as the user of the workspace and the
// keeper as its own user, and the push works. The keeper cannot write to the base.
func TestPushAsOtherUsers(t *testing.T) {
	asRoot(t)
	f := newForge(t, repo(t))
	m := open(t)
	giveUsers(t, m)
	m.Credentials = login("reader", readerPassword)
	w := prepare(t, m, Spec{Repo: f.repo()})
	for path := m.dir; path != filepath.Dir(path) && path != "/tmp"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			break
		}
	}
	runAs(t, w.User.UID, w.Dir, "echo mine >a.txt; git commit -qam mine; echo more >more.txt")
	p := pushOf(t, m, w, "belay/one")
	before := contents(t, filepath.Join(m.dir, "base", w.key))
	if err := m.Push(t.Context(), w, p); err != nil {
		t.Fatal(err)
	}
	if got := run(t, f.dir, "log", "--format=%an", "-2", "belay/one"); got != "Belay\nT" {
		t.Errorf("the branch has commits of %s", got)
	}
	if diff := cmp.Diff(before, contents(t, filepath.Join(m.dir, "base", w.key))); diff != "" {
		t.Error(diff)
	}
}
