package test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/belaydev/belay"
)

// Rule: while the health probes of a worker fail, the worker gets no new work and keeps its runs;
// after a successful probe the worker gets work again. If the worker is killed, Belay notices the
// loss in the same way as for a worker without probes.
func TestAnUnhealthyWorkerGetsNoNewWork(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	secret := strings.TrimSpace(p.belay("keys", "create", "--name", "w", "--scope", "worker").want(0).out)
	admin := []string{
		"Authorization", "Bearer " + strings.TrimSpace(p.belay("keys", "create", "--name", "a", "--scope",
			"admin").want(0).out),
	}
	server, a := p.serve("--health-check-interval", "1s")
	full, probes := p.path("full"), port(t)
	elsewhere := func(name string, args ...string) *exec.Cmd {
		cmd := p.command(append(append([]string{"worker", "--server", a.url, "--data", p.path(name), "--name", name,
			"--concurrency", "3"}, bare...), args...)...)
		cmd.Env = append(cmd.Env, "BELAY_KEY="+secret)
		return cmd
	}
	w := p.start(elsewhere("far", "--health", probes, "--ttl", "3s",
		"--health-check", "test ! -e "+full+" || { echo the disk is full; exit 1; }"))
	w.says("takes work")
	submit := func(name string) belay.ExecutionID {
		t.Helper()
		body := fmt.Sprintf(`{"workflow":"command","input":{"steps":[{"name":"s","argv":["sh","-c",%q]}]}}`,
			"echo >> "+p.path(name+"-begun")+"; "+busy(p.path(name+"-free")))
		return parse(t, a.want(http.StatusCreated, "POST", "/v1/executions", body, admin...).string("id"))
	}
	shows := func(text string) {
		t.Helper()
		until(t, "the list of workers shows "+text, func() bool {
			return strings.Contains(a.want(http.StatusOK, "GET", "/v1/workers", "", admin...).text, text)
		})
	}
	runs := func(name string) {
		t.Helper()
		until(t, name+" runs", func() bool { return exists(p.path(name + "-begun")) })
	}
	create := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	succeeds := func(name string, id belay.ExecutionID) {
		t.Helper()
		create(p.path(name + "-free"))
		until(t, name+" has ended", func() bool { return p.execution(id).State.Terminal() })
		if e := p.execution(id); e.State != belay.Succeeded || read(t, p.path(name+"-begun")) != "\n" {
			t.Errorf("%s is %s after %d begins", name, e.State, len(read(t, p.path(name+"-begun"))))
		}
	}

	first := submit("first")
	runs("first")
	create(full)
	shows(`"unhealthy"`)
	server.says("a worker is unhealthy and gets no new work")
	second := submit("second")
	p.belay("explain", second.String()).want(0).showing("has been unhealthy for", "exit code 1: the disk is full")
	p.belay("workers", "ls").want(0).showing("unhealthy", "the disk is full")
	until(t, "the metrics count it", func() bool {
		return strings.Contains(a.want(http.StatusOK, "GET", "/metrics", "", admin...).text,
			`belay_workers{state="unhealthy"} 1`)
	})
	succeeds("first", first)
	if e := p.execution(second); e.State != belay.Pending {
		t.Errorf("the worker is unhealthy, and a new execution is %s", e.State)
	}
	must(t, os.Remove(full))
	runs("second")
	shows(`"open"`)
	server.says("a worker is healthy again")
	succeeds("second", second)

	third := submit("third")
	runs("third")
	create(full)
	shows(`"unhealthy"`)
	w.signal(syscall.SIGKILL)
	w.wait(patience)
	shows(`"lost"`)
	must(t, os.Remove(p.path("third-begun")))
	p.start(elsewhere("other")).says("takes work")
	runs("third")
	succeeds("third", third)
}
