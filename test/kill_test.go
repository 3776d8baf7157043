package test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// kills is how often belay run is killed before it may finish.
const kills = 20

// journey is one job that is killed again and again.
type journey struct {
	*place
	ledger string
	steps  []string
	args   []string
	id     belay.ExecutionID
	acked  map[string]bool // the steps that belay has reported as finished
	begins []time.Duration // the time from each start of belay run to its first step
}

// newJourney makes a job of many steps. Each step writes into a ledger (a file outside of Belay)
// when it starts and when it ends, each time with the fencing token of its run. Between the two
// notes, the step commits a change, or changes files without a commit.
func newJourney(p *place, r *rand.Rand, repo string, steps int) *journey {
	j := &journey{place: p, ledger: p.path("ledger"), acked: make(map[string]bool)}
	j.args = []string{"run", "--repo", repo, "--key", "journey"}
	for i := range steps {
		name := fmt.Sprintf("s%02d", i+1)
		work := "echo " + name + " >> notes.txt"
		if i%2 == 1 {
			work = "echo " + name + " >> work.txt; git add work.txt; git -c user.name=A -c " +
				"user.email=a@example.org commit -qm " + name
		}
		if i%3 == 0 {
			work += fmt.Sprintf("; sleep 0.%03d", 1+r.IntN(150))
		}
		j.steps = append(j.steps, name)
		j.args = append(j.args, "--step",
			fmt.Sprintf("%s=set -e; echo begin %s $BELAY_TOKEN >> %s; %s; echo end %s $BELAY_TOKEN >> %s",
				name, name, j.ledger, work, name, j.ledger))
	}
	return j
}

// entry is a line of the ledger.
type entry struct {
	what, step string
	token      belay.Token
}

func (j *journey) entries() []entry {
	j.t.Helper()
	var all []entry
	for line := range strings.Lines(read(j.t, j.ledger)) {
		var e entry
		if _, err := fmt.Sscanf(line, "%s %s %d\n", &e.what, &e.step, &e.token); err == nil {
			all = append(all, e)
		}
	}
	return all
}

// moment is the time of a kill: a delay after the start of a phase of the job.
type moment struct {
	phase string
	delay time.Duration
}

// moments returns the moments of the kills, which come in all phases of the job, in random order.
// The last kill comes at the very end of the job.
func moments(r *rand.Rand) []moment {
	most := map[string]time.Duration{
		"start-up": 120 * time.Millisecond, "clone": 120 * time.Millisecond, "step": 60 * time.Millisecond,
		"salvage": 60 * time.Millisecond, "next": 30 * time.Millisecond,
	}
	phases := []string{"start-up", "clone", "step", "salvage", "next"}
	var all []moment
	for i := range kills - 1 {
		phase := phases[i%len(phases)]
		all = append(all, moment{phase, between(r, 0, most[phase])})
	}
	r.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return append(all, moment{"settle", between(r, 0, 80*time.Millisecond)})
}

// reached reports whether the phase has begun in this attempt.
func (j *journey) reached(phase string, x *started, before int) bool {
	fresh := j.entries()[before:]
	seen := func(what string) bool {
		return slices.ContainsFunc(fresh, func(e entry) bool { return e.what == what })
	}
	switch phase {
	case "clone":
		return strings.Contains(x.err.String(), "belay: ex_")
	case "step":
		return seen("begin")
	case "salvage":
		return seen("end")
	case "next":
		return strings.Contains(x.err.String(), " done after ")
	case "settle":
		return slices.ContainsFunc(fresh, func(e entry) bool {
			return e.what == "end" && e.step == j.steps[len(j.steps)-1]
		})
	}
	return true
}

// attempt starts the command and kills it at the given moment. It returns false if the command
// ended before that moment.
func (j *journey) attempt(m moment) bool {
	j.t.Helper()
	before := len(j.entries())
	x := j.start(j.command(j.args...))
	working := false
	poll(patience, func() bool {
		if !working && len(j.entries()) > before {
			working = true
			j.begins = append(j.begins, time.Since(x.began))
		}
		return x.ended() || j.reached(m.phase, x, before)
	})
	killed := x.after(m.delay)
	x.signal(syscall.SIGKILL)
	r := x.wait(patience)
	j.compareWithStore(r)
	if r.code != 128+int(syscall.SIGKILL) {
		j.t.Logf("%s after %s: the command ended before\n%s", m.delay, m.phase, r)
		return false
	}
	return killed
}

// compareWithStore compares the output of an attempt with the store.
func (j *journey) compareWithStore(r result) {
	j.t.Helper()
	if !strings.Contains(r.err, "belay: ex_") {
		return // belay was killed before it reported an execution
	}
	id := idOf(j.t, r.err)
	if !j.id.IsZero() && j.id != id {
		j.t.Fatalf("the same key continues %s, not with %s\n%s", id, j.id, r)
	}
	j.id = id
	events := j.history(id) // j.history also checks that the history is well formed
	for line := range strings.Lines(r.err) {
		if name, ok := strings.CutPrefix(line, "belay: step "); ok && strings.Contains(line, " done after ") {
			j.acked[strings.Fields(name)[0]] = true
		}
	}
	saved := savedSteps(j.t, events)
	for name := range j.acked {
		if _, ok := saved["run["+name+"]"]; !ok {
			j.t.Fatalf("G3: step %s was reported as done and is not saved\n%s\n%s", name, show(events), r)
		}
	}
}

// Rule: after kill -9 at any moment the same command line continues the same execution at once. No
// finished step begins again, no acknowledged step is lost, and no process or file is left
// (guarantees G1, G3, G4, G6 and G7).
func TestKillAtTwentyMoments(t *testing.T) {
	t.Parallel()
	r := dice(t)
	p := newPlace(t)
	repo := p.repository()
	j := newJourney(p, r, repo, 24)
	met := 0
	for _, m := range moments(r) {
		if j.attempt(m) {
			met++
		}
	}
	if met < kills-1 { // the last kill may come after the command's end
		t.Errorf("only %d of %d kills met a running process", met, kills)
	}
	last := p.start(p.command(j.args...)).wait(patience).want(0)
	j.compareWithStore(last)
	slices.Sort(j.begins)
	half, most := j.begins[len(j.begins)/2], j.begins[len(j.begins)-1]
	t.Logf("from the command line to a step that begins, %d times: half within %s, all within %s", len(j.begins), half,
		most)
	// At a kill, the lease of the killed worker lasts for at least another two thirds of the TTL,
	// because a worker renews its lease every third of the TTL. So if the next run starts within
	// half of the TTL, it did not wait for the lease to expire.
	if most >= belay.DefaultTTL.D()/2 {
		t.Errorf("G6: it took %s to continue: that waits for a lease to expire", most)
	}
	j.complete(repo)
	p.clean()
	p.sound()
}

// complete checks the result of the journey: every step was saved once and never began again after
// that, and all changes are there in the right order.
func (j *journey) complete(repo string) {
	t := j.t
	t.Helper()
	e := j.execution(j.id)
	if e.State != belay.Succeeded {
		t.Fatalf("%s is %s", j.id, e.State)
	}
	events := j.history(j.id)
	saved := savedSteps(t, events)
	var newest belay.Token
	begun := make(map[entry]int)
	for _, en := range j.entries() {
		if en.token < newest {
			t.Errorf("G1: %+v in the ledger after token %d", en, newest)
		}
		newest = max(newest, en.token)
		if en.what != "begin" {
			continue
		}
		if begun[en]++; begun[en] > 1 {
			t.Errorf("%+v began twice in one run", en)
		}
		if under := saved["run["+en.step+"]"]; en.token > under {
			t.Errorf("step %s was saved under token %d and began again under %d\n%s", en.step, under, en.token,
				show(events))
		}
	}
	for _, name := range j.steps {
		if _, ok := saved["run["+name+"]"]; !ok {
			t.Errorf("step %s is not saved\n%s", name, show(events))
		}
	}
	j.content(&e, repo)
}

// content applies the job's changes to a fresh clone and compares the files.
func (j *journey) content(e *belay.Execution, repo string) {
	t := j.t
	t.Helper()
	var got agent.Result
	decode(t, string(e.Output), &got)
	if got.Changes == nil || got.Changes.Bundle == "" || got.Changes.Patch == "" || got.Changes.Lost != "" {
		t.Fatalf("changes %+v in %s", got.Changes, e.Output)
	}
	dir := j.path("result")
	j.git(j.root, "clone", "-q", repo, dir)
	bundle := filepath.Join(j.root, "work.bundle")
	if err := os.WriteFile(bundle, []byte(j.artifact(e.ID, got.Changes.Bundle)), 0o600); err != nil {
		t.Fatal(err)
	}
	j.git(dir, "bundle", "verify", bundle)
	tip := strings.Fields(j.git(dir, "bundle", "list-heads", bundle))[0]
	j.git(dir, "bundle", "unbundle", bundle)
	j.git(dir, "checkout", "-q", "--detach", tip)
	j.gitWith(dir, j.artifact(e.ID, got.Changes.Patch), "apply")
	work, notes := "", "notes\n"
	commits := 0
	for i, name := range j.steps {
		if i%2 == 1 {
			work += name + "\n"
			commits++
		} else {
			notes += name + "\n"
		}
	}
	if s := read(t, filepath.Join(dir, "work.txt")); s != work {
		t.Errorf("work.txt is %q, want %q", s, work)
	}
	if s := read(t, filepath.Join(dir, "notes.txt")); s != notes {
		t.Errorf("notes.txt is %q, want %q", s, notes)
	}
	if n := j.git(dir, "rev-list", "--count", "origin/main..HEAD"); n != fmt.Sprint(commits) ||
		got.Changes.Commits != commits {
		t.Errorf("%s commits, %d said; want %d", n, got.Changes.Commits, commits)
	}
}
