package workspace

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	seed  = flag.Uint64("seed", 0, "seed of the random history to salvage; 0 for several histories")
	seeds = flag.Int("seeds", 3, "how many random histories to salvage")
)

// gitRunner runs random git commands. A command that git refuses has no effect.
type gitRunner struct {
	*rand.Rand
	dir  string
	done []string
	n    int
}

func (h *gitRunner) sh(script string) {
	h.done = append(h.done, script)
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir, cmd.Env = h.dir, append(environ(), "GIT_EDITOR=true",
		fmt.Sprintf("GIT_AUTHOR_DATE=%d +0000", 1_700_000_000+h.n), fmt.Sprintf("GIT_COMMITTER_DATE=%d +0000",
			1_700_000_000+h.n))
	_ = cmd.Run()
}

// file returns the name of a file that may exist.
func (h *gitRunner) file() string {
	return []string{"a.txt", "dir/b.txt", "x.txt", "new1", "new2", "dir/new", "deep/er/file", "'sp ace'",
		"$(printf 'n\\303\\251')", "prog.sh", "many"}[h.IntN(11)]
}

func (h *gitRunner) branch() string {
	return []string{"main", "topic", "topic2", "feature/y", "origin/feature/x", "HEAD~", "HEAD~2", "HEAD"}[h.IntN(8)]
}

func (h *gitRunner) do() {
	h.n++
	f := h.file()
	h.sh([]func() string{
		func() string { return fmt.Sprintf("mkdir -p $(dirname %[1]s); echo %[2]d >>%[1]s", f, h.n) },
		func() string { return fmt.Sprintf("mkdir -p $(dirname %[1]s); echo %[2]d >%[1]s", f, h.n) },
		func() string { return fmt.Sprintf("seq %d %d >many", h.IntN(5), 30+h.IntN(5)) },
		func() string { return "git add " + f },
		func() string { return "git add -A" },
		func() string { return "git add -N ." },
		// This command stages only a part of the changed lines of a file, like git add -p.
		func() string {
			return fmt.Sprintf("cp %[1]s ../part && echo part %[2]d >>%[1]s && git add %[1]s && cp ../part %[1]s", f,
				h.n)
		},
		func() string { return fmt.Sprintf("git commit -q -m 'commit %d'", h.n) },
		func() string { return fmt.Sprintf("git commit -q -a -m 'commit all %d'", h.n) },
		func() string { return fmt.Sprintf("git commit -q --amend --allow-empty -m 'amended %d'", h.n) },
		func() string { return fmt.Sprintf("git stash push -q -m 'stash %d'", h.n) },
		func() string { return "git stash push -q --include-untracked" },
		func() string { return "git stash push -q --keep-index" },
		func() string { return "git stash pop -q" },
		func() string { return "git stash drop -q stash@{1}" },
		func() string { return fmt.Sprintf("git tag t%d %s", h.IntN(5), h.branch()) },
		func() string { return fmt.Sprintf("git tag -f -a -m 'note %d' a%d %s", h.n, h.IntN(4), h.branch()) },
		func() string { return fmt.Sprintf("git tag -d t%d light", h.IntN(5)) },
		func() string { return fmt.Sprintf("git notes add -f -m %d %s", h.n, h.branch()) },
		func() string { return "git checkout -q -b topic " + h.branch() },
		func() string { return "git checkout -q -b topic2" },
		func() string { return "git checkout -q -B feature/y " + h.branch() },
		func() string { return "git checkout -q " + h.branch() },
		func() string { return "git checkout -q --detach" },
		func() string { return "git branch -q -D " + h.branch() },
		func() string { return "git merge -q " + h.branch() },
		func() string { return "git rebase -q " + h.branch() },
		func() string { return "git rebase -q --rebase-merges --autostash " + h.branch() },
		func() string { return "git cherry-pick " + h.branch() },
		func() string { return "git revert --no-edit " + h.branch() },
		func() string { return "git rebase --continue || git merge --continue || git cherry-pick --continue" },
		func() string {
			return "git rebase --abort || git merge --abort || git cherry-pick --abort || git revert --abort"
		},
		func() string { return "git reset -q " + h.branch() },
		func() string { return "git reset -q --hard " + h.branch() },
		func() string { return "git reset -q --soft HEAD~" },
		func() string { return "git restore --staged ." },
		func() string { return "git rm -q --cached " + f },
		func() string { return "git rm -q -f " + f },
		func() string { return "rm -rf " + f },
		func() string { return "git mv " + f + " " + h.file() },
		func() string { return "mv " + f + " " + h.file() },
		func() string { return "chmod +x " + f },
		func() string { return "chmod -x " + f },
		func() string { return "ln -sf a.txt " + f },
		func() string { return "ln -sf /etc/passwd link; git add link" },
		func() string { return "rm -rf dir; echo now a file >dir" },
		func() string { return "echo '*.log' >>.gitignore; echo l >>x.log" },
		func() string { return "echo l >>forced.log; git add -f forced.log" },
		func() string { return "head -c 3000 /dev/urandom >blob.bin; git add blob.bin" },
		func() string { return "git update-index --assume-unchanged " + f },
		func() string { return "git update-index --no-assume-unchanged " + f },
		func() string { return "git pack-refs --all" },
		func() string { return "git gc -q" },
		func() string { return "git update-ref refs/remotes/origin/main " + h.branch() },
		func() string { return "git update-ref -d refs/remotes/origin/feature/x" },
		func() string { return "git config user.name 'Agent " + fmt.Sprint(h.n) + "'" },
		func() string { return "git branch -q -u origin/main" },
		func() string { return "git update-index --index-version " + fmt.Sprint(2+h.IntN(3)) },
	}[h.IntN(58)]())
}

// Rule: whatever sequence of git commands has changed a checkout, git shows the same state in the
// restored checkout.
func TestRandomWorkComesBack(t *testing.T) {
	src, m := repo(t), open(t)
	first, count := uint64(time.Now().UnixNano())%1_000_000_000, *seeds
	if *seed != 0 {
		first, count = *seed, 1
	}
	for n := range uint64(count) {
		t.Run(fmt.Sprint(first+n), func(t *testing.T) {
			t.Parallel()
			w := prepare(t, m, Spec{Repo: src})
			h := &gitRunner{Rand: rand.New(rand.NewPCG(first+n, 1)), dir: w.Dir}
			for range 12 + h.IntN(50) {
				h.do()
			}
			defer func() {
				if t.Failed() {
					t.Logf("again: go test ./internal/agent/workspace -run RandomWork -args -seed %d\n%s", first+n,
						strings.Join(h.done, "\n"))
				}
			}()
			s, again := salvageAndRestore(t, m, w)
			if s.Lost != "" {
				t.Errorf("lost: %s", s.Lost)
			}
			if hidden, _ := try(w.Dir, "ls-files", "-v"); strings.Contains("\n"+hidden, "\nh ") {
				return // git ignores changes to these files, so the commands below could have different results
			}
			// Salvage keeps neither ignored files nor empty directories. They could change the result of
			// the git commands that follow, so they are removed.
			for _, end := range []string{
				"git clean -qfdX; find . -name .git -prune -o -type d -empty -delete",
				"git rebase --abort || git merge --abort || git cherry-pick --abort || git revert --abort",
				"git stash pop", "git commit -qam end",
			} {
				for _, dir := range []string{w.Dir, again.Dir} {
					h.dir = dir
					h.sh(end)
				}
			}
			before, after := view(t, w.Dir), view(t, again.Dir)
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("ended (-salvaged +restored):\n%s", diff)
			}
			if _, err := os.Lstat(filepath.Join(again.Dir, ".git", "refs", "belay")); err == nil {
				t.Error("refs of belay's own are left")
			}
		})
	}
}
