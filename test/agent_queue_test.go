package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// longHistory makes a repository with the given number of commits.
func (p *place) longHistory(commits int) string {
	p.t.Helper()
	repo := p.path("history")
	p.git(p.root, "init", "-q", "-b", "main", repo)
	var stream bytes.Buffer
	for i := 1; i <= commits; i++ {
		message, text := fmt.Sprintf("change %d", i), strings.Repeat(fmt.Sprintf("line of %d\n", i), 20)
		fmt.Fprintf(&stream, "commit refs/heads/main\ncommitter A <a@example.org> %d +0000\ndata %d\n%s\n", 1e9+i,
			len(message), message)
		fmt.Fprintf(&stream, "M 100644 inline dir-%d/file-%d\ndata %d\n%s\n", i%20, i%97, len(text), text)
	}
	p.gitWith(repo, stream.String(), "fast-import", "--quiet")
	p.git(repo, "checkout", "-q", "-f", "main")
	return repo
}

// stepwise returns the environment of an agent that works in steps and continues its conversation
// after an interruption.
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

// kinds are the kinds of steps that the agent takes in one round.
const kinds = "commit stash tag stage leave"

// stepped returns the text that a job of the stepwise agent prints at its end, after the given
// number of rounds.
func stepped(rounds int) string {
	numbered := func(kind int, form string) (all []string) {
		for n := kind; n <= 5*rounds; n += 5 {
			all = append(all, strings.ReplaceAll(form, "N", fmt.Sprint(n))+",")
		}
		return all
	}
	list := func(kind int, form string) string { // the names are in the order in which git and the shell sort names
		all := numbered(kind, form)
		slices.Sort(all)
		return strings.Join(all, "")
	}
	stashes, texts := "", ""
	for n := range rounds {
		stashes += fmt.Sprintf("stash@{%d}: stash-%d,\n", n, 5*(rounds-n)-3)
		texts += fmt.Sprintf("%d,%d,%d,", 5*n+1, 5*n+4, 5*n+5)
	}
	return "conversations: 1, begun: 1\ncommits: " + strings.Join(numbered(1, "step N"), "") + "\nstashes: " +
		list(2, "step N") + "\n" + stashes +
		"tags: " + list(3, "step-N=step N") + "\nstaged: " + list(4, "staged-N") + "\nleft: " + list(5, "left-N") +
		"\ntexts: " + texts + "\n"
}

// Rule: eighteen jobs, eight at a time, on a repository of 800 commits survive three kills of the
// server: all end with their commits, stashes, tags, index and files; no job starts its
// conversation twice, and no job repeats a step. With -long there are sixty jobs, twenty at a time,
// and nine kills.
func TestNoStepIsRepeatedAfterKillsOfTheServer(t *testing.T) {
	if *long {
		users(t, func(t *testing.T, p *place) { repeatNothing(t, p, 60, 20, 3, 9) })
		return
	}
	t.Parallel()
	repeatNothing(t, newPlace(t), 18, 8, 1, 3)
}

func repeatNothing(t *testing.T, p *place, jobs, concurrency, rounds, kills int) {
	r := dice(t)
	env := append(stepwise(t), fmt.Sprintf("MAX_CONCURRENCY=%d", concurrency), "STEPS="+strings.Repeat(kinds+" ",
		rounds))
	args := []string{"--agent-repo", p.longHistory(800), "--agent-env", "LIFE,STEPS"}
	life := 0
	start := func() agents {
		life++
		return p.assisted(append(env, fmt.Sprintf("LIFE=%d", life)), args...)
	}
	a := start()
	ids := make([]string, jobs)
	for i := range ids {
		ids[i] = a.ask(fmt.Sprintf("job %d", i))
	}
	began := time.Now()
	for range kills {
		if !poll(3*patience, func() bool {
			found, err := filepath.Glob(filepath.Join(p.data, "workspaces", "jobs", "*", "tmp",
				fmt.Sprintf("life-%d", life)))
			return err == nil && len(found) >= 3
		}) {
			t.Fatalf("no jobs run\n%s", a.server.dump())
		}
		if !a.server.after(between(r, 0, time.Second)) {
			t.Fatal("the server has ended")
		}
		a.server.signal(syscall.SIGKILL)
		a.server.wait(patience)
		a = start()
	}
	continued := 0
	for i, id := range ids {
		got := a.wantEnd(id, "completed", 0.0)
		output, result := got.string("output"), got.string("result")
		if _, end, _ := strings.Cut(result, "conversations: "); "conversations: "+end != stepped(rounds) {
			t.Errorf("job %d ends with %q", i, result)
		}
		if strings.Count(output, "begun\n") > 1 || strings.Contains(output, "TWICE") ||
			strings.Contains(output, "LOST") {
			t.Errorf("job %d said %q", i, output)
		}
		continued += strings.Count(output, "continued after")
		if c, _ := got.at("changes", "commits").(float64); c != float64(rounds) || got.at("changes", "lost") != nil {
			t.Errorf("job %d has changed %v", i, got.at("changes"))
		}
	}
	t.Logf("%d jobs, %d at a time, continued %d times, in %s", jobs, concurrency, continued,
		time.Since(began).Round(time.Millisecond))
	if continued == 0 {
		t.Error("no job was in the middle when the server was killed")
	}
	a.stop()
	p.sound()
}
