package test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// Rule: a kill -9 of the server in the middle of ten jobs loses none of them: each job continues to
// its end, in a workspace with its earlier changes. No process and no workspace is left.
func TestAKilledServerLosesNoJob(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	args := []string{"--agent-repo", p.repository()}
	a := p.assisted(nil, args...)
	ids := make([]string, 10)
	for i := range ids {
		name := fmt.Sprintf("job-%d", i)
		// The second run of a job finds the commits and edits of the first run.
		ids[i] = a.ask(fmt.Sprintf("edit work-%d.txt begun\ncommit work %d\nedit loose-%d.txt half\nshow "+
			"BELAY_RESUMED\ngit log --format=%%s\n%s", i, i, i, a.hold(name)))
	}
	for i := range ids {
		a.holds(fmt.Sprintf("job-%d", i))
	}
	a.wantHealth(true, 10, 0, 10)
	waiting := a.ask("was queued")
	a = a.killAndRestart(nil, args...)
	for i := range ids {
		a.holds(fmt.Sprintf("job-%d", i))
		a.free(fmt.Sprintf("job-%d", i))
	}
	for i, id := range ids {
		got := a.wantEnd(id, "completed", 0.0)
		result := got.string("result")
		want := fmt.Sprintf("1\nwork %d\nwork %d\nfirst\n", i, i)
		if !strings.HasPrefix(result, want) || strings.Count(result, "work") != 2 {
			t.Errorf("job %d continued with %q", i, result)
		}
		if c, _ := got.at("changes", "commits").(float64); c != 2 {
			t.Errorf("job %d has changed %v", i, got.at("changes"))
		}
		if patch := p.artifact(parse(t, id), got.string("changes", "patch")); !strings.Contains(patch,
			"\n half\n+half") {
			t.Errorf("job %d's uncommitted changes are %q", i, patch)
		}
	}
	a.wantEnd(waiting, "completed", 0.0)
	a.wantHealth(false, 0, 0, 10)
	a.stop()
	p.sound()
}

// Rule: after a kill -9 of the server, a job still has its stashes, tags, staged changes and HOME,
// and works in the same directory. After the job's end no copy of its HOME is left.
func TestAKilledServerLosesNothingOfAJob(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	args := []string{"--agent-repo", p.repository()}
	a := p.assisted(nil, args...)
	id := a.ask(`where
git tag
git stash list
git status --short
git config --global --list
edit notes.txt stashed
git stash -m kept
git tag -f here
edit staged.txt staged
git add staged.txt
edit staged.txt more
git config --global --add agent.talk so-far
` + a.hold("first"))
	a.holds("first")
	at := filepath.Join(filepath.Dir(filepath.Dir(a.held("first"))), "checkout")
	a = a.killAndRestart(nil, args...)
	a.holds("first")
	a.free("first")
	got := a.wantEnd(id, "completed", 0.0)
	for _, want := range []string{at + "\n", "here\n", "stash@{0}: On main: kept\n", "AM staged.txt\n",
		"agent.talk=so-far\n"} {
		if !strings.Contains(got.string("result"), want) {
			t.Errorf("the job continued without %q:\n%s", want, got.string("result"))
		}
	}
	if lost := got.at("changes", "lost"); lost != nil {
		t.Errorf("lost: %v", lost)
	}
	if got.at("changes", "home") != nil {
		t.Error("the result names a HOME")
	}
	for _, name := range []string{"work-1.home", "work-2.home"} {
		if r := p.belay("logs", id, "--name", name); strings.Contains(r.out, "\x1f\x8b") {
			t.Errorf("%s is still kept", name)
		}
	}
	a.stop()
	p.sound()
}

// Rule: with the policy "fail", a job fails when its server dies; the job's error says so, and its
// changes are kept.
func TestALostJobFailsUnderThePolicyFail(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	args := []string{"--agent-repo", p.repository(), "--agent-on-lost", "fail"}
	a := p.assisted(nil, args...)
	id := a.ask("edit part.txt part\n" + a.hold("held"))
	a.holds("held")
	a = a.killAndRestart(nil, args...)
	got := a.wantEnd(id, "error", nil)
	if got.string("error") == "" {
		t.Errorf("%s", got.text)
	}
	if kept := p.belay("workspaces", "ls").want(0); !strings.Contains(kept.out, "kept") {
		t.Errorf("the job's changes are not kept\n%s", kept)
	}
	a.stop()
}

// Rule: a graceful shutdown of the server releases the jobs that do not finish in time, with all of
// their changes, and the next server continues them.
func TestAStoppedServerReleasesItsJobs(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	args := []string{"--agent-repo", p.repository(), "--grace", "20s", "--agent-grace", "200ms"}
	a := p.assisted(nil, args...)
	id := a.ask("show BELAY_RESUMED\nedit part.txt part\n" + a.hold("held"))
	a.holds("held")
	a.stop()
	if x := p.execution(parse(t, id)); x.State != belay.Pending {
		t.Errorf("the job is %s", x.State)
	}
	a = p.assisted(nil, args...)
	a.holds("held")
	a.free("held")
	got := a.wantEnd(id, "completed", 0.0)
	if got.string("result") != "1\nfreed held\n" {
		t.Errorf("the job continued with %q", got.string("result"))
	}
	if patch := p.artifact(parse(t, id), got.string("changes", "patch")); strings.Count(patch, "+part") != 2 {
		t.Errorf("the job's changes are %q", patch)
	}
	a.stop()
}

// Rule: a client can follow a job's output while the job writes it, also from a given event on. The
// last event says how the job ended.
func TestTheLogOfAJobIsFollowed(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.assisted([]string{"BELAY_AGENT_COMMAND=" + smallAgent(t, "--stream-json")})
	id := a.ask("first words\n" + a.hold("held"))
	events, cut := a.follow("/jobs/"+id+"/log", "")
	var last string
	for e := range events {
		if last = e.id; e.name == "progress" && strings.Contains(e.data, "first words") {
			break
		}
	}
	cut()
	a.free("held")
	rest, cut := a.follow("/jobs/"+id, last, "Accept", "text/event-stream")
	defer cut()
	var said strings.Builder
	var end frame
	for e := range rest {
		said.WriteString(e.data)
		end = e
	}
	if strings.Contains(said.String(), "first words") ||
		!strings.Contains(said.String(), `"kind":"text","text":"freed held"`) {
		t.Errorf("after %s came %s", last, said.String())
	}
	if end.name != "end" || end.data != `{"status":"completed","exit_code":0,"error":null}` {
		t.Errorf("the log ended with %+v", end)
	}
	if got := a.job(id); got.string("result") != "freed held" || got.at("usage", "input_tokens") != 100.0 {
		t.Errorf("%s", got.text)
	}
	if x := a.want(http.StatusOK, "GET", "/v1/executions/"+id, ""); x.at("cost_tokens") != 107.0 {
		t.Errorf("the job's cost is %v", x.at("cost_tokens"))
	}
	a.stop()
}
