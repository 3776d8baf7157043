package test

import (
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Rule: a refusal says what is wrong and what to do, and names commands and flags as the user types
// them.
func TestRefusalsSayWhatToDo(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.belay("keys", "create", "--name", "ci", "--scope", "read").want(0)
	_, a := p.serve()
	host := strings.TrimPrefix(a.url, "http://")
	for line, want := range map[string]struct {
		exit int
		says string
	}{
		"ls --server http://127.0.0.1:1":      {69, "no server answers at this address"},
		"ls --server " + host:                 {65, "did you mean http://" + host + "?"},
		"ls --server https://" + host:         {69, "http or https"},
		"ls --server " + a.url:                {77, "BELAY_KEY"},
		"worker --server " + a.url:            {77, "--key-file"},
		"demo --repo " + p.path("no"):         {66, "repository " + p.path("no") + " does not exist"},
		"serve --listen 0.0.0.0:0":            {73, "has this data directory"},
		"serve --data d --listen 0.0.0.0:0":   {73, "belay keys create"},
		"keys create --name x --scope rule":   {64, "the scopes are read"},
		"lock steal ex_1 --server " + a.url:   {64, "--reason"},
		"get nothing --server http://[::1]:1": {69, "no server answers at this address"},
	} {
		r := p.belay(strings.Fields(line)...).want(want.exit).saying(want.says)
		if said := r.err; strings.Contains(said, "may have happened") || strings.Contains(said, "no such file") {
			t.Errorf("belay %s\n%s", line, said)
		}
	}
}

// Rule: the demo refuses a --repo without commits, and says why. Without --repo, in a repository
// without commits, the demo makes a repository of its own.
func TestDemoWithoutACommit(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	empty := p.path("empty")
	if out, err := exec.Command("git", "init", "-q", empty).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r := p.belay("demo", "--repo", empty).want(73).saying("has no commit yet")
	if strings.Contains(r.err, "ledger") {
		t.Errorf("the message uses words that a user does not know\n%s", r.err)
	}
	here := p.command("demo")
	here.Dir = empty
	p.start(here).wait(patience).want(0)
}

// Rule: if the key of a worker is revoked, the worker reports the refused heartbeat while its runs
// can still be saved, and not only after the runs are lost.
func TestAWorkerReportsARevokedKey(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve()
	key := strings.TrimSpace(p.belay("keys", "create", "--name", "w", "--scope", "worker").want(0).out)
	w := p.start(withEnv(p.command("worker", "--server", a.url, "--data", p.path("elsewhere"), "--ttl", "10s"),
		"BELAY_KEY="+key))
	w.says("takes work")
	p.belay("keys", "revoke", "w").want(0)
	w.says("the heartbeat fails")
	w.wait(patience).want(77).saying("the key is not one of this server's, or was revoked")
}

// Rule: a worker also stops gracefully while it waits for its server.
func TestAWorkerThatWaitsForItsServerStopsGracefully(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	w := p.start(p.command("worker", "--server", "http://"+port(t)))
	w.says("tries again until it does")
	w.signal(syscall.SIGTERM)
	w.wait(patience).want(0).saying("the worker has stopped")
	if _, err := os.Stat(p.data); !os.IsNotExist(err) {
		t.Errorf("the worker made a data directory: %v", err)
	}
}

// Rule: if an operator drains the worker that a server runs in its own process, the server keeps
// running.
func TestADrainedWorkerEndsNoServer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	server, a := p.serve("--concurrency", "1")
	server.says("worker session opened")
	list := a.want(http.StatusOK, "GET", "/v1/workers", "").text
	_, id, _ := strings.Cut(list, `"id":"`)
	id, _, _ = strings.Cut(id, `"`)
	a.want(http.StatusNoContent, "POST", "/v1/workers/"+id+"/drain", "")
	server.says("was drained; the worker runs nothing")
	a.want(http.StatusOK, "GET", "/readyz", "")
	server.signal(syscall.SIGTERM)
	server.wait(patience).want(0)
}
