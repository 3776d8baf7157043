package test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/belaydev/belay"
)

// far is an agent worker on another machine: it has its own data directory, and shares only the
// server's address with the server.
type far struct {
	agents
	worker *started
}

// startWorker starts an agent worker with its own data directory. The server ends the worker's
// session after two seconds without a heartbeat.
func (a agents) startWorker(name string, env ...string) far {
	a.api.t.Helper()
	place := *a.place
	place.data = a.path(name)
	cmd := place.command("worker", "--server", a.url, "--name", name, "--concurrency", "0", "--ttl", "2s")
	cmd.Env = append(place.environment("BELAY_AGENT_COMMAND="+smallAgent(a.api.t), "BELAY_AGENT_SAVE_EVERY=100ms"),
		env...)
	if exists(a.path("repo")) {
		cmd.Env = append(cmd.Env, "BELAY_AGENT_REPO="+a.path("repo"))
	}
	w := place.start(cmd)
	w.says("takes work")
	return far{agents{a.api, &place, a.server}, w}
}

// stopWorker stops the worker gracefully, and checks that no workspace is left.
func (f far) stopWorker() {
	f.api.t.Helper()
	f.worker.signal(syscall.SIGTERM)
	f.worker.wait(patience).want(0)
	f.noWorkspaces()
}

// kept returns the newest changes that are stored with an execution while it runs.
func (a agents) kept(id string) (work struct {
	Changes struct {
		Bundle, Patch string
		Commits       int
	}
},
) {
	for _, e := range a.history(parse(a.api.t, id)) {
		if e.Kind == "state" && !e.Pruned {
			if err := json.Unmarshal(e.Data, &work); err != nil {
				a.api.t.Fatal(err)
			}
		}
	}
	return work
}

// waitSaved waits until a job's commits and its uncommitted changes are both stored.
func (a agents) waitSaved(id string) {
	a.api.t.Helper()
	until(a.api.t, "the changes are stored", func() bool {
		c := a.kept(id).Changes
		if c.Commits != 1 || c.Patch == "" { // the state was saved before the edit
			return false
		}
		return strings.Contains(a.artifact(parse(a.api.t, id), c.Patch), "+half")
	})
}

// begun is the beginning of a job's prompt. The agent carries it out before the test kills or stops
// the job's worker, and a second time when the job continues on another worker.
const begun = "edit work.txt begun\ncommit work\nedit loose.txt half\nshow BELAY_RESUMED\ngit log --format=%s\n"

// noLocalAgents are the flags of a server that runs no agents itself and requires no keys.
var noLocalAgents = []string{"--agent-local=false", "--insecure-no-auth"}

// Rule: a job whose machine fails continues on another machine with its commits and its uncommitted
// changes, although the new machine cannot read the disk of the first. When the first machine is
// back, it cannot influence the job.
func TestAJobContinuesOnAnotherMachine(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.assisted(nil, append(noLocalAgents, "--agent-repo", p.repository())...)
	one := s.startWorker("one")
	id := s.ask(begun + s.hold("held"))
	one.holds("held")
	s.waitSaved(id)
	one.worker.signal(syscall.SIGKILL)
	one.worker.wait(patience)
	two := s.startWorker("two")
	two.holds("held")
	if exists(p.path("data/workspaces")) {
		t.Error("the server has workspaces although it runs no agents")
	}
	back := s.startWorker("one") // the worker does not delete the workspaces that it finds on its own disk
	two.free("held")
	got := s.wantEnd(id, "completed", 0.0)
	if result := got.string("result"); !strings.HasPrefix(result, "1\nwork\nwork\nfirst\n") {
		t.Errorf("the job continued with %q", result)
	}
	if c, _ := got.at("changes", "commits").(float64); c != 2 {
		t.Errorf("the job's changes are %v", got.at("changes"))
	}
	if patch := p.artifact(parse(t, id), got.string("changes", "patch")); !strings.Contains(patch, "\n half\n+half") {
		t.Errorf("the job's uncommitted changes are %q", patch)
	}
	if e := p.execution(parse(t, id)); e.Token&0xffffffff != 2 || e.Attempt != 1 {
		t.Errorf("the job ended with token %d as attempt %d", e.Token, e.Attempt)
	}
	until(t, "the first machine has kept the work of its workspace", func() bool {
		return strings.Contains(back.belay("workspaces", "ls").want(0).out, "kept")
	})
	two.stopWorker()
	back.stopWorker()
	s.stop()
}

// Rule: with the policy "fail", a job fails when its machine fails, and the job's error says so.
// The server's data suffice to restore the job's changes.
func TestALostJobLeavesItsChanges(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.assisted(nil, append(noLocalAgents, "--agent-repo", p.repository(), "--agent-on-lost", "fail")...)
	one := s.startWorker("one")
	id := s.ask(begun + s.hold("held"))
	one.holds("held")
	s.waitSaved(id)
	one.worker.signal(syscall.SIGKILL)
	one.worker.wait(patience)
	got := s.wantEnd(id, "error", nil)
	if e := p.execution(parse(t, id)); e.State != belay.Failed || e.Error == nil || e.Error.Class != belay.ClassLost ||
		got.string("error") == "" {
		t.Errorf("the job ended as %s: %+v", e.State, e.Error)
	}
	r := s.belay("workspaces", "restore", id, p.path("again")).want(0)
	if !strings.Contains(r.out, "kept while it ran") {
		t.Errorf("%s", r)
	}
	if log := p.git(p.path("again"), "log", "--format=%s"); log != "work\nfirst" {
		t.Errorf("restored with %q", log)
	}
	if text := read(t, p.path("again/loose.txt")); text != "half\n" {
		t.Errorf("restored with %q", text)
	}
	s.stop()
}

// Rule: if an attempt of a job fails by itself, the next attempt starts from the beginning, even if
// the server has stored changes of the failed attempt.
func TestARetryBeginsWithoutTheChangesOfTheFailedAttempt(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.assisted(nil, append(noLocalAgents, "--agent-repo", p.repository(), "--agent-max-attempts", "2")...)
	one := s.startWorker("one")
	id := s.ask("show BELAY_RESUMED\nedit loose.txt half\ncat loose.txt\n" + s.hold("held") + "\nfail 3")
	one.holds("held")
	until(t, "the changes are stored", func() bool { return s.kept(id).Changes.Patch != "" })
	first, err := os.Stat(one.held("held"))
	if err != nil {
		t.Fatal(err)
	}
	one.free("held")
	until(t, "the job is retried", func() bool {
		now, err := os.Stat(one.held("held"))
		// the second attempt makes the file again, at the same path
		return err == nil && (!now.ModTime().Equal(first.ModTime()) || !os.SameFile(first, now))
	})
	one.free("held")
	got := s.wantEnd(id, "failed", 3.0)
	if out := got.string("output"); strings.Count(out, "half\n") != 2 || strings.Contains(out, "half\nhalf") ||
		strings.Contains(out, "1\n") {
		t.Errorf("the two attempts wrote %q", out)
	}
	one.stopWorker()
	s.stop()
}

// Rule: a worker that is stopped gracefully releases its jobs with all of their changes, and
// another machine continues them.
func TestAStoppedWorkersJobsContinueOnAnother(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.assisted(nil, append(noLocalAgents, "--agent-repo", p.repository())...)
	stopped := []string{"BELAY_AGENT_SAVE_EVERY=0", "BELAY_GRACE=1s", "BELAY_AGENT_GRACE=100ms"}
	one := s.startWorker("one", stopped...)
	id := s.ask(begun + s.hold("held"))
	one.holds("held")
	one.stopWorker()
	two := s.startWorker("two", stopped...)
	two.holds("held")
	two.free("held")
	if got := s.wantEnd(id, "completed", 0.0).string("result"); !strings.HasPrefix(got, "1\nwork\nwork\nfirst\n") {
		t.Errorf("the job continued with %q", got)
	}
	two.stopWorker()
	s.stop()
}

// Rule: an agent on a worker gets its secrets from files on the worker's machine, and may work only
// in the repositories that the worker's own configuration allows, even if the server's
// configuration allows more.
func TestAWorkerHasItsOwnSecretsAndRepositories(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.assisted(nil, append(noLocalAgents, "--agent-repos", p.root+"/*")...)
	file := p.path("secret")
	if err := os.WriteFile(file, []byte("hunter2-hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	allowed := p.repository()
	p.git(p.root, "clone", "-q", allowed, p.path("other"))
	one := s.startWorker("one", "BELAY_AGENT_ENV=TOKEN", "TOKEN_FILE="+file, `BELAY_AGENT_REPOS=["`+allowed+`"]`)
	if got := s.wantEnd(s.ask("show TOKEN", `"repo":`+jsonText(allowed)), "completed",
		0.0).string("result"); got != "[TOKEN]\n" {
		t.Errorf("the agent printed %q", got)
	}
	if got := s.ended(s.ask("where", `"repo":`+jsonText(p.path("other")))); got.string("status") != "error" ||
		!strings.Contains(got.string("error"), "agent.repos") {
		t.Errorf("the job ended as %s", got.text)
	}
	one.stopWorker()
	s.stop()
}

// Rule: belay worker refuses options that contradict each other when it starts.
func TestAWorkerWithContradictoryOptionsIsRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for says, args := range map[string][]string{
		"nothing else is configured": {"--concurrency", "0"},
		"--server":                   {"--config", p.path("belay.yaml")},
		"is not valid":               {"--agent-users", "5-7"},
	} {
		if err := os.WriteFile(p.path("belay.yaml"), []byte("store: postgres://belay@127.0.0.1:1/belay\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
		if r := p.belay(append([]string{"worker"}, args...)...); r.code != 64 && r.code != 65 ||
			!strings.Contains(r.err, says) {
			t.Errorf("want %q\n%s", says, r)
		}
	}
	r := p.start(withEnv(p.command("worker", "--check-config", "-o", "json"),
		"BELAY_AGENT_MAX_CPU=3")).wait(patience).want(0)
	if !strings.Contains(r.out, `"agent.max_cpu"`) || !strings.Contains(r.out, "BELAY_AGENT_MAX_CPU") ||
		strings.Contains(r.out, `"listen"`) {
		t.Errorf("the effective configuration is not shown\n%s", r)
	}
}

func withEnv(cmd *exec.Cmd, env ...string) *exec.Cmd {
	cmd.Env = append(cmd.Env, env...)
	return cmd
}
