package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// shellBlock matches a block of shell commands in a page.
var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// Rule: the first steps of docs/agents.md lead from nothing to a pushed branch, word for word, with another repository,
// credential and port, and with the agent of this checkout instead of a download.
func TestTheFirstStepsWithAgents(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(string(raw), "<!-- first steps: begin -->")
	page, _, ok := strings.Cut(page, "<!-- first steps: end -->")
	blocks := shellBlock.FindAllStringSubmatch(page, -1)
	if !ok || len(blocks) < 4 {
		t.Fatalf("the page has %d blocks between the markers", len(blocks))
	}
	script := "set -e\ntrap 'kill $(jobs -p); wait' EXIT\n"
	for _, b := range blocks {
		script += b[1]
	}
	p := newPlace(t)
	f := p.forge()
	agent, err := filepath.Abs("../examples/agent-service/agent.py")
	if err != nil {
		t.Fatal(err)
	}
	login := strings.TrimSpace(read(t, f.logins))
	address := freeAddress(t)
	for from, to := range map[string]string{
		"https://git.example.org/me/app.git                    #":                                        f.repo() + " #",
		"https://USER:TOKEN@git.example.org/me/app.git":                                                  login,
		"curl -sO https://raw.githubusercontent.com/belaydev/belay/main/examples/agent-service/agent.py": "cp " + agent + " .",
		"localhost:7420": address,
	} {
		if !strings.Contains(script, from) {
			t.Fatalf("the page does not have %q", from)
		}
		script = strings.ReplaceAll(script, from, to)
	}
	if err := os.Chmod(p.cwd, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = p.cwd
	cmd.Env = append(p.environment("SSL_CERT_FILE="+f.ca, "GIT_SSL_CAINFO="+f.ca, "BELAY_LISTEN="+address),
		"PATH="+filepath.Dir(binary(t))+":"+os.Getenv("PATH"))
	x := p.start(cmd)
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	r := x.wait(4 * patience)
	if r.code != 0 || strings.Count(r.out, "refs/heads/belay/ex_") != 1 ||
		!strings.Contains(r.out, "the agent asks: May I") || !strings.Contains(r.out, "+a second line") {
		t.Fatalf("%s\n%s", r, read(t, filepath.Join(p.cwd, "agents", "server.log")))
	}
	t.Logf("in %s", r.took)
	branch := strings.Fields(p.git(f.dir, "for-each-ref", "--format=%(refname)", "refs/heads/belay"))
	if len(branch) != 1 || !strings.HasSuffix(p.git(f.dir, "show", branch[0]+":notes.txt"),
		"hello\na second line\nthe end") {
		t.Errorf("the forge has the branches %q", branch)
	}
}
