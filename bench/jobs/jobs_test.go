package jobs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// clone makes a repository with a branch of job 1 whose shared.txt has the given lines.
func clone(t *testing.T, shared string) place {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	p := place{dir: t.TempDir()}
	script := `git init -q -b main . && mkdir bufio fmt os strings && for f in ` + strings.Join(changed, " ") +
		` ; do echo it >$f; done
		rm shared.txt && git add -A && git commit -q -m sources && git checkout -q -b job-1
		echo mine >own-1.txt && for f in ` + strings.Join(changed, " ") + ` ; do echo "// job 1" >>$f; done
		printf '` + shared + `' >shared.txt
		git add -A && git commit -q -m "one of 1" && git commit -q --allow-empty -m "two of 1"`
	if _, err := p.run(t.Context(), "sh", "-ec", script); err != nil {
		t.Fatal(err)
	}
	return p
}

// Rule: a job is right if its branch and the text that it has read are exactly its own work. The
// check finds text of another job in the branch and in the text that was read.
func TestAJobIsRightOnlyWithItsOwnWork(t *testing.T) {
	const read = "two of 1\none of 1\njob 1\nagain 1\n"
	for name, c := range map[string]struct {
		shared, read string
		job          int
		right, other bool
	}{
		"its own":           {`job 1\nagain 1\n`, read, 1, true, false},
		"a line is missing": {`job 1\n`, read, 1, false, false},
		"another's line":    {`job 1\nagain 11\n`, read, 1, false, true},
		"it read another's": {`job 1\nagain 1\n`, read + "again 2\n", 1, false, true},
		"no branch":         {`job 1\nagain 1\n`, "", 2, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := clone(t, c.shared).check(t.Context(), c.job, c.read)
			if (v.wrong == "") != c.right || v.foreign != c.other {
				t.Errorf("wrong %q, another's %v; want right %v, another's %v", v.wrong, v.foreign, c.right, c.other)
			}
			if want := map[int]int{1: 2, 2: 0}[c.job]; v.commits != want {
				t.Errorf("%d commits, want %d", v.commits, want)
			}
		})
	}
}

// Rule: the report of a git command that failed is counted, and is not part of the text that the
// job has read.
func TestFailuresAreCounted(t *testing.T) {
	got := parseOutput("failed: git fetch: error: cannot lock ref 'refs/remotes/origin/main'\nfailed: git stash pop: " +
		"conflict\njob 1\n")
	if want := (agentOutput{failed: 2, locked: 1, first: "git fetch: error: cannot lock ref 'refs/remotes/origin/main'",
		rest: "job 1\n"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Rule: a job waits several times, and its waits add up to the requested time.
func TestJobsWaitForTheRequestedTime(t *testing.T) {
	if args := Agent(3 * time.Second); len(args) != 6 || args[4] != "0.750" {
		t.Errorf("%q", args)
	}
	if got := strings.Count(script, "\nsleep $pause\n"); got != pauses {
		t.Errorf("the script waits %d times, not %d", got, pauses)
	}
}

// Rule: a file with two names is counted once, also while the disk space is watched.
func TestHardLinksTakeNoDiskSpace(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "one")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	before := usage(dir)
	most := watch(dir)
	if err := os.Link(file, filepath.Join(dir, "two")); err != nil {
		t.Fatal(err)
	}
	if got := most(); before < 1 || got != before {
		t.Errorf("%.3f MB with a link, %.3f without", got, before)
	}
}
