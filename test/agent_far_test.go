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

// far is a worker for agents on another machine: it has a data directory of its own,
// and nothing of the server's but its address.
type far struct {
	agents
	worker *started
}

// hire starts one, of which nothing was heard for two seconds when it is given up.
func (a agents) hire(name string, env ...string) far {
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

// leave stops the worker in order, and checks that no workspace is left.
func (f far) leave() {
	f.api.t.Helper()
	f.worker.signal(syscall.SIGTERM)
	f.worker.wait(patience).want(0)
	f.noWorkspaces()
}

// kept is the newest work that is kept with an execution while it runs.
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

// saves waits until what a job has committed and what it has not are both kept.
func (a agents) saves(id string) {
	a.api.t.Helper()
	until(a.api.t, "the work is kept", func() bool {
		c := a.kept(id).Changes
		return c.Commits == 1 && strings.Contains(a.artifact(parse(a.api.t, id), c.Patch), "+half")
	})
}

// begun is what a job does before it is interrupted, and again when it goes on.
const begun = "edit work.txt begun\ncommit work\nedit loose.txt half\nshow BELAY_RESUMED\ngit log --format=%s\n"

// left serves without agents of its own, and demands no keys.
var left = []string{"--agent-local=false", "--insecure-no-auth"}

// Rule: a job whose machine is lost in the middle goes on on another, with what it
// had committed and what it had not, although nothing of the first machine's disk is
// there; and the first machine, when it is back, has nothing to say in it.
func TestAJobGoesOnOnAnotherMachine(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.assisted(nil, append(left, "--agent-repo", p.repository())...)
	one := s.hire("one")
	id := s.ask(begun + s.hold("held"))
	one.holds("held")
	s.saves(id)
	one.worker.signal(syscall.SIGKILL)
	one.worker.wait(patience)
	two := s.hire("two")
	two.holds("held")
	if exists(p.path("data/workspaces")) {
		t.Error("the server has workspaces, and runs nothing")
	}
	back := s.hire("one") // it keeps what it finds of its own
	two.free("held")
	got := s.wantEnd(id, "completed", 0.0)
	if result := got.string("result"); !strings.HasPrefix(result, "1\nwork\nwork\nfirst\n") {
		t.Errorf("it went on with %q", result)
	}
	if c, _ := got.at("changes", "commits").(float64); c != 2 {
		t.Errorf("it has changed %v", got.at("changes"))
	}
	if patch := p.artifact(parse(t, id), got.string("changes", "patch")); !strings.Contains(patch, "\n half\n+half") {
		t.Errorf("what it left uncommitted is %q", patch)
	}
	if e := p.execution(parse(t, id)); e.Token&0xffffffff != 2 || e.Attempt != 1 {
		t.Errorf("it ended with token %d as attempt %d", e.Token, e.Attempt)
	}
	if r := back.belay("workspaces", "ls").want(0); !strings.Contains(r.out, "kept") {
		t.Errorf("what the first machine has is gone\n%s", r)
	}
	two.leave()
	back.leave()
	s.stop()
}

// Rule: where the policy has it fail, a job whose machine is lost has failed and says
// so, and what it had changed can be had from the server alone.
func TestALostJobLeavesItsWork(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.assisted(nil, append(left, "--agent-repo", p.repository(), "--agent-on-lost", "fail")...)
	one := s.hire("one")
	id := s.ask(begun + s.hold("held"))
	one.holds("held")
	s.saves(id)
	one.worker.signal(syscall.SIGKILL)
	one.worker.wait(patience)
	got := s.wantEnd(id, "error", nil)
	if e := p.execution(parse(t, id)); e.State != belay.Failed || e.Error == nil || e.Error.Class != belay.ClassLost ||
		got.string("error") == "" {
		t.Errorf("it ended as %s: %+v", e.State, e.Error)
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

// Rule: an attempt that ended by itself is tried again anew, however much of its work
// was kept meanwhile.
func TestAFailedAttemptLeavesNothingToTheNext(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.assisted(nil, append(left, "--agent-repo", p.repository(), "--agent-max-attempts", "2")...)
	one := s.hire("one")
	id := s.ask("show BELAY_RESUMED\nedit loose.txt half\ncat loose.txt\n" + s.hold("held") + "\nfail 3")
	one.holds("held")
	until(t, "the work is kept", func() bool { return s.kept(id).Changes.Patch != "" })
	first, err := os.Stat(one.held("held"))
	if err != nil {
		t.Fatal(err)
	}
	one.free("held")
	until(t, "it is tried again", func() bool {
		now, err := os.Stat(one.held("held"))
		return err == nil && (!now.ModTime().Equal(first.ModTime()) || !os.SameFile(first, now)) // in the same place
	})
	one.free("held")
	got := s.wantEnd(id, "failed", 3.0)
	if out := got.string("output"); strings.Count(out, "half\n") != 2 || strings.Contains(out, "half\nhalf") ||
		strings.Contains(out, "1\n") {
		t.Errorf("the two attempts wrote %q", out)
	}
	one.leave()
	s.stop()
}

// Rule: a worker that is stopped in order gives its jobs back with all that they have
// changed, and another machine goes on with it.
func TestAStoppedWorkerGivesItsJobsToAnother(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.assisted(nil, append(left, "--agent-repo", p.repository())...)
	stopped := []string{"BELAY_AGENT_SAVE_EVERY=0", "BELAY_GRACE=1s", "BELAY_AGENT_GRACE=100ms"}
	one := s.hire("one", stopped...)
	id := s.ask(begun + s.hold("held"))
	one.holds("held")
	one.leave()
	two := s.hire("two", stopped...)
	two.holds("held")
	two.free("held")
	if got := s.wantEnd(id, "completed", 0.0).string("result"); !strings.HasPrefix(got, "1\nwork\nwork\nfirst\n") {
		t.Errorf("it went on with %q", got)
	}
	two.leave()
	s.stop()
}

// Rule: agents on a worker have the secrets of that machine, from files, and the
// worker's own say in what repositories they may work on.
func TestAWorkerHasItsOwnSecretsAndRepositories(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.assisted(nil, append(left, "--agent-repos", p.root+"/*")...)
	file := p.path("secret")
	if err := os.WriteFile(file, []byte("hunter2-hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	allowed := p.repository()
	p.git(p.root, "clone", "-q", allowed, p.path("other"))
	one := s.hire("one", "BELAY_AGENT_ENV=TOKEN", "TOKEN_FILE="+file, `BELAY_AGENT_REPOS=["`+allowed+`"]`)
	if got := s.wantEnd(s.ask("show TOKEN", `"repo":`+said(allowed)), "completed",
		0.0).string("result"); got != "[TOKEN]\n" {
		t.Errorf("it says %q", got)
	}
	if got := s.ended(s.ask("where", `"repo":`+said(p.path("other")))); got.string("status") != "error" ||
		!strings.Contains(got.string("error"), "agent.repos") {
		t.Errorf("it ended as %s", got.text)
	}
	one.leave()
	s.stop()
}

// Rule: what could not work together is refused at the start.
func TestAWorkerThatCannotWork(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for says, args := range map[string][]string{
		"leaves nothing to do": {"--concurrency", "0"},
		"--server":             {"--config", p.path("belay.yaml")},
		"is not valid":         {"--agent-users", "5-7"},
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
		t.Errorf("what counts is not shown\n%s", r)
	}
}

func withEnv(cmd *exec.Cmd, env ...string) *exec.Cmd {
	cmd.Env = append(cmd.Env, env...)
	return cmd
}
