package test

import (
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// forge is a git server on loopback, over https. Everybody may fetch, and a client with the token
// may push.
type forge struct {
	*httptest.Server
	dir, ca, logins string
	token           string // no process of a job may see it

	mu sync.Mutex
	// during is called while a push runs, before the branch exists; after is called when the branch
	// exists, before the client gets the response.
	during, after func()
	pushes        int
}

func (p *place) forge() *forge {
	p.t.Helper()
	f := &forge{dir: p.path("forge/app.git"), ca: p.path("forge-ca.pem"), logins: p.path("push-credentials"),
		token: "pu5h-t0ken-" + rand.Text()}
	p.git(p.root, "clone", "-q", "--bare", p.repository(), f.dir)
	p.git(f.dir, "config", "http.receivepack", "true")
	backend := &cgi.Handler{
		Path: filepath.Join(p.git(p.root, "--exec-path"), "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(f.dir), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1",
			"GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}
	f.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		push := strings.Contains(r.URL.RequestURI(), "git-receive-pack")
		if _, password, _ := r.BasicAuth(); push && password != f.token {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		if !push || r.Method != http.MethodPost {
			backend.ServeHTTP(w, r)
			return
		}
		f.mu.Lock()
		during, after := f.during, f.after
		f.pushes++
		f.mu.Unlock()
		if during != nil {
			during()
		}
		got := httptest.NewRecorder()
		backend.ServeHTTP(got, r)
		if after != nil {
			after()
		}
		for name, values := range got.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(got.Code)
		_, _ = w.Write(got.Body.Bytes())
	}))
	p.t.Cleanup(f.Close)
	p.write(f.ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})), 0o644)
	p.write(f.logins, strings.Replace(f.URL, "https://", "https://bot:"+f.token+"@", 1)+"\n", 0o600)
	return f
}

func (p *place) write(path, text string, mode os.FileMode) {
	p.t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		p.t.Fatal(err)
	}
}

func (f *forge) repo() string { return f.URL + "/app.git" }

// scripted is the command of an agent whose prompt is a shell script.
const scripted = `BELAY_AGENT_COMMAND=["sh","-c","eval \"$1\"","agent","{{prompt}}"]`

// pushing starts a server that may push to the forge.
func (p *place) pushing(f *forge, env []string, args ...string) agents {
	p.t.Helper()
	return p.assisted(append([]string{scripted, "SSL_CERT_FILE=" + f.ca}, env...), append([]string{
		"--agent-repo", f.repo(), "--agent-push", "--agent-push-credentials", f.logins, "--agent-max-concurrency", "4",
	}, args...)...)
}

// execute sends a prompt with further fields, and returns the id of the job.
func (a agents) execute(prompt, fields string) string {
	a.api.t.Helper()
	text, err := json.Marshal(prompt)
	if err != nil {
		a.api.t.Fatal(err)
	}
	return a.want(http.StatusAccepted, "POST", "/execute", `{"prompt":`+string(text)+fields+`}`).string("job_id")
}

// hunt is a shell script that looks for both secrets wherever a process can look, and prints the
// places in which it has found one. Its own arguments do not match its pattern.
const hunt = `hunt() {
p='pu5h[-]t0ken|0pen[-]t0ken|b4[i]t'
for d in /proc/[0-9]*; do
for f in environ cmdline maps; do tr '\0' '\n' <$d/$f 2>/dev/null | grep -E "$p" | sed "s|^|FOUND $d/$f |"; done
for f in $d/fd/*; do [ -f "$f" ] && head -c 65536 "$f" 2>/dev/null | grep -aoE "($p).{0,40}" | sed "s|^|FOUND $f |"; done
done
{ env; git config --list --show-origin; git remote -v; } 2>/dev/null | grep -E "$p" | sed 's|^|FOUND setting |'
grep -raoEs "($p).{0,40}" . "$HOME" "$TMPDIR" /tmp /var/tmp /dev/shm %[1]s %[2]s 2>/dev/null | head -50 |
cut -c1-300 | sed 's|^|FOUND file |'
}
`

// alive reports whether a process has a text in its arguments.
func alive(text string) bool {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		if raw, _ := os.ReadFile(path); strings.Contains(string(raw), text) {
			return true
		}
	}
	return false
}

// Rule: a job pushes a branch, and no process of the job and of other jobs can read the credential.
// The jobs look for it in the environments, arguments, memory maps and open files of all processes,
// in all files, and in the configuration of git; a second job looks while the push runs. A process
// that the agent leaves behind is dead before the push begins. The command for a pull request gets a
// secret of its own.
func TestAPushedBranchAndItsCredential(t *testing.T) {
	for _, users := range []string{"auto", "none"} {
		t.Run("agent.users "+users, func(t *testing.T) {
			t.Parallel()
			huntDuringAPush(t, users)
		})
	}
}

func huntDuringAPush(t *testing.T, users string) {
	p := newPlace(t)
	f := p.forge()
	openToken := "0pen-t0ken-" + rand.Text()
	opener, opened := p.path("open-pr"), p.path("opened")
	p.write(opener, "#!/bin/sh\nfor a; do printf '<%s>' \"$a\"; done >"+opened+"\nenv | sed s/0pen/OPEN/ >>"+opened+
		"\necho working\necho https://forge.example/pr/7\n", 0o755)
	a := p.pushing(f, []string{"GH_TOKEN=" + openToken}, "--agent-users", users,
		"--agent-push-env", "GH_TOKEN", "--agent-push-open",
		fmt.Sprintf(`[%q,"{{repo}}","{{branch}}","{{base}}","{{title}}","{{commit}}"]`, opener))
	looking := fmt.Sprintf(hunt, p.root, filepath.Dir(f.dir))
	looker := a.execute("true other\n"+looking+"until [ -e stop ]; do hunt; echo looked; done", "")
	left := "left-behind-by-the-agent-" + users
	dead := false
	f.mu.Lock()
	f.during = func() {
		dead = !alive(left)
		before := strings.Count(a.job(looker).string("output"), "looked")
		until(t, "the other job has looked twice while the push runs", func() bool {
			return strings.Count(a.job(looker).string("output"), "looked") >= before+2
		})
	}
	f.mu.Unlock()
	until(t, "the other job looks", func() bool { return strings.Contains(a.job(looker).string("output"), "looked") })
	id := a.execute("--title -x $(touch /tmp/no)\n"+looking+"echo b4it >bait.txt\n"+
		"BAIT=b4it sleep 5 & BAIT=b4it hunt; rm bait.txt\n"+
		"(setsid sh -c 'while :; do sleep 1; done' "+left+" &) >/dev/null 2>&1\n"+
		"mkdir -p .git/hooks; echo 'env >/tmp/leak; exit 1' >.git/hooks/pre-push; chmod +x .git/hooks/pre-push\n"+
		"git config credential.helper '!env >/tmp/leak; false'; git config remote.origin.pushurl https://127.0.0.1:1/x\n"+
		"git config user.name J; git config user.email j@example.org\n"+
		"echo one >one.txt; git add one.txt; git commit -qm one; echo two >two.txt", `,"push":{"branch":"belay/{{job}}"}`)
	got := a.wantEnd(id, "completed", 0.0)
	branch, commit := got.string("pushed", "branch"), got.string("pushed", "commit")
	if branch != "belay/"+id || p.git(f.dir, "rev-parse", "refs/heads/"+branch) != commit ||
		p.git(f.dir, "show", commit+":two.txt") != "two" ||
		p.git(f.dir, "log", "-1", "--format=%s", commit+"^") != "one" {
		t.Errorf("%s", got.text)
	}
	if !dead {
		t.Error("a process of the agent was alive during the push")
	}
	other := a.job(looker)
	for name, text := range map[string]string{"the job": got.text, "another job": other.text} {
		if strings.Contains(text, f.token) || strings.Contains(text, openToken) {
			t.Errorf("%s has found a secret: %s", name, text)
		}
	}
	for _, found := range []string{"FOUND file ./bait.txt", "FOUND setting BAIT", "/environ BAIT"} {
		if !strings.Contains(got.string("output"), found) {
			t.Errorf("the job does not find its bait, %q: %s", found, got.text)
		}
	}
	said := read(t, opened)
	if got.string("pushed", "url") != "https://forge.example/pr/7" || !strings.HasPrefix(said, "<"+f.repo()+"><"+branch+
		"><main><title -x $(touch /tmp/no)><"+commit+">") ||
		!strings.Contains(said, "GH_TOKEN="+strings.Replace(openToken, "0pen", "OPEN", 1)) ||
		strings.Contains(said, f.token) {
		t.Errorf("%s\nthe command got %s", got.text, said)
	}
	a.want(http.StatusAccepted, "POST", "/jobs/"+looker+"/cancel", "")
	a.wantEnd(looker, "error", 143.0)
	a.stop()
}

// Rule: if the server is killed after the push and before the push is recorded, the job continues
// without a second run of its agent, pushes the same commit, and succeeds.
func TestAServerThatIsKilledDuringAPush(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	f := p.forge()
	a := p.pushing(f, nil)
	var once sync.Once
	killed := make(chan struct{})
	f.mu.Lock()
	f.after = func() {
		once.Do(func() {
			a.server.signal(syscall.SIGKILL)
			close(killed)
		})
	}
	f.mu.Unlock()
	id := a.execute("date +%s%N >when.txt; cat when.txt", `,"push":{}`)
	<-killed
	branch := "refs/heads/belay/" + id
	commit := p.git(f.dir, "rev-parse", branch)
	a = a.restarted(f)
	got := a.wantEnd(id, "completed", 0.0)
	if got.string("pushed", "commit") != commit || p.git(f.dir, "rev-parse", branch) != commit ||
		p.git(f.dir, "show", commit+":when.txt")+"\n" != got.string("result") {
		t.Errorf("%s: the branch has %s", got.text, commit)
	}
	a.stop()
}

func (a agents) restarted(f *forge) agents {
	a.api.t.Helper()
	a.server.wait(patience)
	return a.pushing(f, nil)
}

// Rule: a server that does not allow pushes, or not to this branch, refuses the prompt. A branch
// with other commits is not overwritten: the job ends with an error and keeps its result.
func TestPushesThatAreRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	f := p.forge()
	a := p.pushing(f, nil)
	for body, why := range map[string]string{
		`{"prompt":"true","push":{"branch":"main"}}`:                             "agent.push_branches allows belay/*",
		`{"prompt":"true","push":{"branch":"belay/"}}`:                           "cannot be the name of a branch",
		`{"prompt":"true","push":{"branch":"--force"}}`:                          "cannot be the name of a branch",
		`{"prompt":"true","push":{"branch":"belay/x:main"}}`:                     "cannot be the name of a branch",
		`{"prompt":"true","push":{"branch":"belay/{{job}}","message":"\u0007"}}`: "control character",
		`{"prompt":"true","repo":"` + p.path("repo") + `","push":{}}`:            "https or ssh",
	} {
		got := a.call("POST", "/execute", body)
		if got.status != http.StatusForbidden && got.status != http.StatusUnprocessableEntity ||
			!strings.Contains(got.text, why) {
			t.Errorf("%s: %d %s", body, got.status, got.text)
		}
	}
	other := p.git(f.dir, "commit-tree", "-m", "of another", "main^{tree}")
	p.git(f.dir, "update-ref", "refs/heads/belay/taken", other)
	got := a.wantEnd(a.execute("echo mine >mine.txt; echo done", `,"push":{"branch":"belay/taken"}`), "error", 0.0)
	if !strings.Contains(got.string("error"), "has other commits already") || got.string("result") != "done\n" ||
		got.string("changes", "patch") == "" || p.git(f.dir, "rev-parse", "belay/taken") != other {
		t.Errorf("%s", got.text)
	}
	got = a.wantEnd(a.execute("true nothing", `,"push":{}`), "completed", 0.0)
	if got.at("pushed") != nil || !strings.Contains(got.text, "nothing was pushed") {
		t.Errorf("%s", got.text)
	}
	a.stop()
	off := p.assisted([]string{scripted, "SSL_CERT_FILE=" + f.ca}, "--agent-repo", f.repo())
	if got := off.call("POST", "/execute", `{"prompt":"true","push":{}}`); got.status != http.StatusForbidden ||
		!strings.Contains(got.text, "agent.push") {
		t.Errorf("%d %s", got.status, got.text)
	}
	off.stop()
}

// Rule: the example document sends three agents over a repository, pushes the branches that a person allows and no
// other, and reports the cost.
func TestNightlyAgents(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	f := p.forge()
	a := p.assisted([]string{"SSL_CERT_FILE=" + f.ca, "BELAY_AGENT_COMMAND=" + smallAgent(t, "--stream-json")},
		"--agent-repo", f.repo(), "--agent-push", "--agent-push-credentials", f.logins)
	p.belay("workflows", "apply", exampleDocument(t, "nightly-agents")).want(0)
	whole := p.start(p.command("submit", "--document", "nightly-agents", "--wait", "--input", `{"repo":`+
		jsonText(f.repo())+`,"tasks":["edit a.txt one","edit b.txt two","edit c.txt three"]}`))
	var waiting []string
	until(t, "three agents wait for a person", func() bool {
		waiting = waiting[:0]
		r := p.belay("ls", "--state", "waiting", "--workflow", "agent", "--children", "-o", "json").want(0)
		var page []struct{ ID string }
		decode(t, r.out, &page)
		for _, e := range page {
			waiting = append(waiting, e.ID)
		}
		return len(waiting) == 3
	})
	for i, id := range waiting {
		p.belay("agent", "answer", id, map[bool]string{true: "no, not this one", false: "Yes."}[i == 0]).want(0)
	}
	r := whole.wait(3 * patience).want(0)
	if n := strings.Count(r.out, "belay/ex_"); n != 2 || strings.Count(r.out, "not pushed") != 1 ||
		!strings.Contains(r.out, `"usd":0.03`) {
		t.Errorf("%s", r)
	}
	list := p.git(f.dir, "for-each-ref", "--format=%(refname:short)", "refs/heads/belay")
	if len(strings.Fields(list)) != 2 {
		t.Errorf("the forge has the branches %q", list)
	}
	for _, id := range waiting {
		if asked := p.belay("logs", id, "--name", "questions").want(0).out; strings.Count(asked, "\n") != 1 {
			t.Errorf("%s has asked:\n%s", id, asked)
		}
	}
	a.stop()
}

// Rule: the changes of an ended job, committed or not, are a diff at GET /jobs/{id}/diff and in
// belay get --diff, and belay workspaces apply applies them to a clone. Control characters in files
// do not reach a terminal.
func TestTheResultOfAJobAsADiff(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.assisted([]string{scripted}, "--agent-repo", p.repository())
	id := a.execute("git config user.name J; git config user.email j@example.org\n"+
		"echo one >one.txt; git add one.txt; git commit -qm one; printf 'two \\033]0;evil\\007\\n' >two.txt", "")
	a.wantEnd(id, "completed", 0.0)
	got := a.want(http.StatusOK, "GET", "/jobs/"+id+"/diff", "")
	if kind := got.header.Get("Content-Type"); kind != "text/x-diff; charset=utf-8" ||
		got.header.Get("Belay-Diff-Cut") != "false" || !strings.Contains(got.text, "\n+one\n") ||
		!strings.Contains(got.text, "\n+two \x1b]0;evil\a\n") {
		t.Errorf("%s: %q", kind, got.text)
	}
	if text := p.belay("get", id, "--diff").out; text != got.text {
		t.Errorf("belay get --diff prints %q", text)
	}
	if text := p.belay("get", id, "--diff", "--color", "always").out; !strings.Contains(text,
		"\x1b[32m+one\x1b[0m\n") || strings.Contains(text, "\x1b]0") || strings.Contains(text, "\a") {
		t.Errorf("in colours: %q", text)
	}
	clone := p.path("mine")
	p.git(p.root, "clone", "-q", p.path("repo"), clone)
	text := p.belay("workspaces", "apply", id, "--repo", clone).want(0).out
	if status := p.git(clone, "status", "--porcelain", "--branch"); status != "## belay/"+id+"\n?? two.txt" ||
		!strings.Contains(text, "A one.txt\nA two.txt\n") || read(t, clone+"/one.txt") != "one\n" {
		t.Errorf("%s\n%s", text, status)
	}
	idle := a.execute("true", "")
	a.wantEnd(idle, "completed", 0.0)
	if got := a.want(http.StatusOK, "GET", "/jobs/"+idle+"/diff", ""); got.text != "" {
		t.Errorf("a job without changes has the diff %q", got.text)
	}
	running := a.execute("sleep 60", "")
	a.want(http.StatusConflict, "GET", "/jobs/"+running+"/diff", "")
	a.want(http.StatusNotFound, "GET", "/jobs/ex_00000000000000000000000000/diff", "")
	a.want(http.StatusAccepted, "POST", "/jobs/"+running+"/cancel", "")
	a.stop()
}

// Rule: a job that continues another job pushes the work of both, if its prompt says so.
func TestAReplyPushes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	f := p.forge()
	a := p.pushing(f, []string{`BELAY_AGENT_REPLY_COMMAND=["sh","-c","eval \"$1\"","agent","{{prompt}}"]`})
	first := a.execute("echo one >one.txt", "")
	a.wantEnd(first, "completed", 0.0)
	id := a.want(http.StatusAccepted, "POST", "/jobs/"+first+"/prompt", `{"prompt":"echo two >two.txt","push":{}}`).
		string("job_id")
	got := a.wantEnd(id, "completed", 0.0)
	branch := "belay/" + id
	if got.string("pushed", "branch") != branch || p.git(f.dir, "show", branch+":one.txt") != "one" ||
		p.git(f.dir, "show", branch+":two.txt") != "two" {
		t.Errorf("%s", got.text)
	}
	a.stop()
}
