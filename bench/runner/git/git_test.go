package git

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belaydev/belay/bench/jobs"
	"github.com/belaydev/belay/bench/trial"
)

// small makes a repository with the files that jobs edit.
func small(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	cmd := exec.Command("sh", "-ec", `git init -q -b main it && cd it && mkdir bufio fmt os strings
		for f in bufio/bufio.go fmt/print.go os/file.go strings/strings.go; do echo it >$f; done
		git add -A && git commit -q -m sources && git clone -q --bare . ../repo.git`)
	cmd.Dir, cmd.Env = dir, jobs.Environment(os.DevNull)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "repo.git")
}

// Rule: the result of a job passes the checks, and the job leaves nothing but commits behind, both
// in a worktree of its own and in a tree in which another job has worked before. In a job that runs
// alone no git command fails.
func TestJobsOneAtATimeAreRight(t *testing.T) {
	for _, v := range []trial.Variant{trial.Worktree, trial.Reset} {
		t.Run(string(v), func(t *testing.T) {
			r := trial.Request{
				Contender: "git", Variant: v, Measure: trial.Jobs, Dir: t.TempDir(), Repo: small(t), N: 2, AtOnce: 1,
			}
			s, err := Run(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]float64{"commits": 4, "wrong_jobs": 0, "cross_talk": 0,
				"git_failures": 0, "lock_errors": 0} {
				if got, ok := s.Values[name]; !ok || got != want {
					t.Errorf("%s: %g, want %g", name, got, want)
				}
			}
			if _, ok := s.Values["lock_p99_ms"]; ok != (v == trial.Worktree) {
				t.Errorf("the set-up lock was measured: %v", ok)
			}
			left, err := os.ReadDir(filepath.Join(r.Dir, "trees"))
			if err != nil || len(left) > 0 {
				t.Errorf("%d trees are left, %v", len(left), err)
			}
			if s.Rate <= 0 || !strings.Contains(s.Settings, "waits") {
				t.Errorf("%.2f/s with %q", s.Rate, s.Settings)
			}
		})
	}
}
