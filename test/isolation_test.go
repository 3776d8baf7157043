package test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// commandAt submits a command to a server and waits for its end.
func (p *place) commandAt(url string, script string) result {
	p.t.Helper()
	return p.belay("submit", "command", "--server", url, "--wait", "--", "sh", "-c", script)
}

// Rule: without any configuration, a worker sandboxes commands in the same way as belay serve
// sandboxes agents: under root each command has its own user and a read-only file system, sees
// nothing of other commands, and has limits.
func TestCommandsOfAWorkerAreSandboxed(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("jobs get users and limits of their own only where the worker is root")
	}
	p := newPlace(t)
	server, a := p.serve("--insecure-no-auth")
	cmd := p.command("worker", "--server", a.url, "--data", p.path("elsewhere"))
	w := p.start(withEnv(cmd, "BELAY_AGENT_MAX_MEMORY=256MiB", "BELAY_AGENT_MAX_PROCESSES=200", "SECRET="+marker))
	w.says("takes work")
	w.says("user 18")
	w.says("read-only but for its own directories; 200 processes by")
	for _, c := range []struct {
		what, script string
		code         int
		says         string
	}{
		{"a user of its own", `test $(id -u) -ge 1879048192`, 0, ""},
		{"nothing outside is written", fmt.Sprintf("echo x > %q", p.path("canary")), 2, ""},
		{"nothing of the worker is seen", fmt.Sprintf("cat %q/* /proc/*/environ | tr '\\0' '\\n' | grep -a %q", p.data,
			marker), 1, ""},
		{"a memory hog", `exec dd if=/dev/zero of=/dev/null bs=512M count=1`, 137, "more than 256 MiB of memory"},
		{"a fork bomb", `for i in $(seq 400); do sleep 600 & done; exit 0`, 2, "more than 200 processes"},
	} {
		r := p.commandAt(a.url, c.script)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%s\n%s", c.what, r)
		}
	}
	if exists(p.path("canary")) {
		t.Error("a job wrote outside of its workspace")
	}
	w.signal(syscall.SIGTERM)
	w.wait(patience).want(0)
	server.signal(syscall.SIGTERM)
	server.wait(patience).want(0)
	p.clean()
}

// Rule: a command from another user gets no variable of the worker's environment and only the
// repositories that the worker's configuration names. A secret from a file does not appear in the
// command's output.
func TestCommandsOfAWorkerGetOnlyConfiguredSecrets(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	server, a := p.serve("--insecure-no-auth")
	file, allowed := p.path("secret"), p.repository()
	if err := os.WriteFile(file, []byte(marker+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.git(p.root, "clone", "-q", allowed, p.path("other"))
	cmd := p.command("worker", "--server", a.url, "--data", p.path("elsewhere"))
	w := p.start(withEnv(cmd, "PGPASSWORD="+marker, "TOKEN_FILE="+file, "BELAY_AGENT_ENV=TOKEN", `BELAY_AGENT_REPOS=["`+
		allowed+`"]`))
	w.says("takes work")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--env", "PGPASSWORD"}, 125, "agent.env"},
		{[]string{"--repo", p.path("other")}, 125, "agent.repos"},
		{[]string{"--env", "TOKEN", "--repo", allowed}, 0, ""},
	} {
		args := append([]string{"submit", "command", "--server", a.url, "--wait"}, c.args...)
		r := p.belay(append(args, "--", "sh", "-c", `test -n "$TOKEN$PGPASSWORD" && echo "$TOKEN$PGPASSWORD"`)...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%s", r)
		}
		if c.code == 0 {
			if out := p.belay("logs", idOf(t, r.err).String()).out; out != "[TOKEN]\n" {
				t.Errorf("the command wrote %q", out)
			}
		}
	}
	w.signal(syscall.SIGTERM)
	w.wait(patience).want(0)
	server.signal(syscall.SIGTERM)
	server.wait(patience).want(0)
}

// Rule: if root lacks its capabilities, as in many containers, a worker refuses to run jobs,
// because it cannot give them users of their own. The refusal names the setting that accepts jobs
// without their own users; with this setting, jobs run as root.
func TestRootWithoutCapabilities(t *testing.T) {
	t.Parallel()
	bin, err := exec.LookPath("setpriv")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("only root has capabilities to drop, with setpriv")
	}
	p := newPlace(t)
	server, a := p.serve("--insecure-no-auth")
	small := func(args ...string) *started {
		cmd := p.command(append([]string{"worker", "--server", a.url, "--data", p.path("elsewhere")}, args...)...)
		cmd.Args = append([]string{bin, "--bounding-set", "-all", cmd.Path}, cmd.Args[1:]...)
		cmd.Path = bin
		return p.start(cmd)
	}
	for _, users := range [][]string{nil, {"--agent-users", "1879100000-1879100009"}} {
		r := small(users...).wait(patience)
		if r.code == 0 || !strings.Contains(r.err, "jobs cannot have users of their own") ||
			!strings.Contains(r.err, "agent.users: none") {
			t.Errorf("%s", r)
		}
	}
	w := small("--agent-users", "none")
	w.says("read-only but for its own directories by Landlock alone")
	if r := p.commandAt(a.url, "id -u > who; cat who").want(0); !strings.Contains(p.belay("logs",
		idOf(t, r.err).String()).out, "0\n") {
		t.Errorf("%s", r)
	}
	w.signal(syscall.SIGTERM)
	w.wait(patience).want(0)
	server.signal(syscall.SIGTERM)
	server.wait(patience).want(0)
}
