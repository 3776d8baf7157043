package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// longHistory makes a repository with so many commits.
func (p *place) longHistory(commits int) string {
	p.t.Helper()
	repo := p.path("history")
	p.git(p.root, "init", "-q", "-b", "main", repo)
	var stream bytes.Buffer
	for i := 1; i <= commits; i++ {
		message, text := fmt.Sprintf("change %d", i), strings.Repeat(fmt.Sprintf("line of %d\n", i), 20)
		fmt.Fprintf(&stream, "commit refs/heads/main\ncommitter A <a@example.org> %d +0000\ndata %d\n%s\n", 1e9+i, len(message), message)
		fmt.Fprintf(&stream, "M 100644 inline dir-%d/file-%d\ndata %d\n%s\n", i%20, i%97, len(text), text)
	}
	p.gitWith(repo, stream.String(), "fast-import", "--quiet")
	p.git(repo, "checkout", "-q", "-f", "main")
	return repo
}

// stepwise are the commands of the agent that takes ten steps and keeps a conversation.
func stepwise(t *testing.T) []string {
	t.Helper()
	script := read(t, "testdata/steps.sh")
	command := func(how string) string {
		argv, err := json.Marshal([]string{"sh", "-c", script, "sh", how, "{{session}}", "{{prompt}}"})
		if err != nil {
			t.Fatal(err)
		}
		return string(argv)
	}
	return []string{"BELAY_AGENT_COMMAND=" + command("begin"), "BELAY_AGENT_RESUME_COMMAND=" + command("continue")}
}

// stepped is what a job of the stepwise agent has at its end.
const stepped = `commits: step 1,step 6,
stashes: step 2,step 7,
stash 0: stash-7,
stash 1: stash-2,
tags: step-3=step 3,step-8=step 8,
staged: staged-4,staged-9,
left: left-10,left-5,
texts: 1,4,5,6,9,10,
`

// Rule: of twenty jobs that run and forty that wait on a repository of 800 commits none
// is lost when the server is killed, three times: all end with their commits, stashes,
// tags, index and files; no conversation is begun twice, and nothing is done twice.
func TestKilledServersRepeatNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r := dice(t)
	jobs, concurrency := 60, 20
	env := append(stepwise(t), fmt.Sprintf("MAX_CONCURRENCY=%d", concurrency))
	args := []string{"--agent-repo", p.longHistory(800)}
	a := p.assisted(env, args...)
	ids := make([]string, jobs)
	for i := range ids {
		ids[i] = a.ask(fmt.Sprintf("job %d", i))
	}
	began := time.Now()
	for range 3 {
		until(t, "jobs work", func() bool {
			found, err := filepath.Glob(filepath.Join(p.data, "workspaces", "jobs", "*", "home", "conversation-*"))
			return err == nil && len(found) >= concurrency/2
		})
		if !a.server.after(between(r, 0, 2*time.Second)) {
			t.Fatal("the server has ended")
		}
		a.server.signal(syscall.SIGKILL)
		a.server.wait(patience)
		a = p.assisted(env, args...)
	}
	continued := 0
	for i, id := range ids {
		got := a.wantEnd(id, "completed", 0.0)
		output, result := got.string("output"), got.string("result")
		if _, end, _ := strings.Cut(result, "commits: "); "commits: "+end != stepped {
			t.Errorf("job %d ends with %q", i, result)
		}
		if strings.Count(output, "begun\n") != 1 || strings.Contains(output, "TWICE") || strings.Contains(output, "LOST") {
			t.Errorf("job %d said %q", i, output)
		}
		continued += strings.Count(output, "continued after")
		if c, _ := got.at("changes", "commits").(float64); c != 2 || got.at("changes", "lost") != nil {
			t.Errorf("job %d has changed %v", i, got.at("changes"))
		}
	}
	t.Logf("%d jobs, %d at a time, went on %d times, in %s", jobs, concurrency, continued, time.Since(began).Round(time.Millisecond))
	if continued == 0 {
		t.Error("no job was in the middle when the server was killed")
	}
	a.stop()
	p.sound()
}
