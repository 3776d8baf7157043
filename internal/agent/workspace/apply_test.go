package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
)

// clonedWork makes the work of a command, and a clone of the source for a person.
func clonedWork(t *testing.T, script func(w *Workspace)) (m *Manager, a Application, s Salvage) {
	t.Helper()
	src := repo(t)
	m = open(t)
	w := prepare(t, m, Spec{Repo: src})
	script(w)
	clone := filepath.Join(t.TempDir(), "clone")
	run(t, "/", "clone", "-q", src, clone)
	return m, Application{Dir: clone, Commit: w.Commit, Branch: "belay/one"}, salvageOf(t, m, w)
}

func work(t *testing.T) func(w *Workspace) {
	return func(w *Workspace) {
		t.Helper()
		write(t, filepath.Join(w.Dir, "new.txt"), "committed\n")
		commit(t, w.Dir, "by the agent")
		write(t, filepath.Join(w.Dir, "a.txt"), "changed\n")
		write(t, filepath.Join(w.Dir, "more.txt"), "untracked\n")
		if err := os.Remove(filepath.Join(w.Dir, "dir", "b.txt")); err != nil {
			t.Fatal(err)
		}
	}
}

// Rule: Apply makes a branch with the commits and leaves the other changes in the files. A dry run
// lists the same files and changes nothing.
func TestApply(t *testing.T) {
	m, a, s := clonedWork(t, work(t))
	before := contents(t, a.Dir)
	refs := run(t, a.Dir, "for-each-ref")
	a.Dry = true
	dry, err := m.Apply(t.Context(), a, s)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"M a.txt", "D dir/b.txt", "A more.txt", "A new.txt"}
	if diff := cmp.Diff(want, dry.Files); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, contents(t, a.Dir)) + cmp.Diff(refs, run(t, a.Dir, "for-each-ref")); diff != "" {
		t.Errorf("the dry run changed the clone:\n%s", diff)
	}
	a.Dry = false
	if got, err := m.Apply(t.Context(), a, s); err != nil || got.Commit != dry.Commit {
		t.Fatalf("%+v, %v", got, err)
	}
	if got := run(t, a.Dir, "log", "--format=%s", "-1") + "\n" + run(t, a.Dir, "status", "--porcelain",
		"--branch"); got != "by the agent\n## belay/one\n M a.txt\n D dir/b.txt\n?? more.txt" {
		t.Error(got)
	}
	_, err = m.Apply(t.Context(), a, s)
	wantCode(t, err, belay.CodeConflict)
}

// Rule: Apply refuses a clone with changes unless Dirty is set, a clone without the commit,
// a directory that is no clone, and a hostile name. If a file of the person is in the way, the clone
// is as before.
func TestApplyRefuses(t *testing.T) {
	m, a, s := clonedWork(t, work(t))
	for _, name := range []string{"--force", "-D", "a..b", "x:main", "@"} {
		b := a
		b.Branch = name
		_, err := m.Apply(t.Context(), b, s)
		wantCode(t, err, belay.CodeInvalid)
	}
	other := a
	other.Dir = t.TempDir()
	_, err := m.Apply(t.Context(), other, s)
	wantCode(t, err, belay.CodeInvalid)
	run(t, other.Dir, "init", "-q")
	_, err = m.Apply(t.Context(), other, s)
	if text := wantCode(t, err, belay.CodeConflict); !strings.Contains(text, "git fetch") {
		t.Error(text)
	}
	write(t, filepath.Join(a.Dir, "more.txt"), "of the person\n")
	before, refs := contents(t, a.Dir), run(t, a.Dir, "for-each-ref")+run(t, a.Dir, "symbolic-ref", "HEAD")
	if _, err := m.Apply(t.Context(), a, s); err == nil {
		t.Error("a file of the person was overwritten")
	}
	if diff := cmp.Diff(before, contents(t, a.Dir)) + cmp.Diff(refs, run(t, a.Dir, "for-each-ref")+run(t, a.Dir,
		"symbolic-ref", "HEAD")); diff != "" {
		t.Errorf("the clone changed:\n%s", diff)
	}
	if err := os.Remove(filepath.Join(a.Dir, "more.txt")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(a.Dir, "light.txt"), "x\n")
	run(t, a.Dir, "add", "light.txt")
	_, err = m.Apply(t.Context(), a, s)
	wantCode(t, err, belay.CodeConflict)
	a.Dirty = true
	if _, err := m.Apply(t.Context(), a, s); err != nil {
		t.Error(err)
	}
}

// Rule: Git LFS fetches no files for the work, which chooses the address from which it would fetch them.
func TestApplyFetchesNothing(t *testing.T) {
	m, a, s := clonedWork(t, func(w *Workspace) {
		write(t, filepath.Join(w.Dir, ".gitattributes"), "*.bin filter=lfs\n")
		write(t, filepath.Join(w.Dir, "x.bin"), "pointer\n")
	})
	run(t, a.Dir, "config", "filter.lfs.smudge", `sh -c 'test "$GIT_LFS_SKIP_SMUDGE" = 1 || echo fetched; cat'`)
	if _, err := m.Apply(t.Context(), a, s); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(filepath.Join(a.Dir, "x.bin")); err != nil || string(raw) != "pointer\n" {
		t.Errorf("%q, %v", raw, err)
	}
}

// Rule: files that the person's git ignores are not overwritten, neither by commits nor by uncommitted changes of the
// work, and neither is a directory that becomes a file.
func TestApplyKeepsIgnoredFiles(t *testing.T) {
	for _, name := range []string{"new.txt", "more.txt", "more.txt/x", "new.txt/x"} {
		m, a, s := clonedWork(t, work(t))
		write(t, filepath.Join(a.Dir, ".git", "info", "exclude"), "*.txt\nx\n")
		write(t, filepath.Join(a.Dir, name), "of the person\n")
		before, refs := contents(t, a.Dir), run(t, a.Dir, "for-each-ref")+run(t, a.Dir, "symbolic-ref", "HEAD")
		if _, err := m.Apply(t.Context(), a, s); err == nil {
			t.Errorf("%s was overwritten", name)
		}
		if diff := cmp.Diff(before, contents(t, a.Dir)) + cmp.Diff(refs, run(t, a.Dir, "for-each-ref")+run(t, a.Dir,
			"symbolic-ref", "HEAD")); diff != "" {
			t.Errorf("%s: the clone changed:\n%s", name, diff)
		}
	}
}

// Rule: work whose paths lead into .git, through a symbolic link or out of the clone is not applied,
// and hooks of the clone do not run.
func TestApplyOfHostileWork(t *testing.T) {
	outside := t.TempDir()
	for name, patch := range map[string]string{
		"git":    newFile(".git/hooks/post-checkout"),
		"GIT":    newFile(".GIT/config"),
		"git~1":  newFile("git~1/config"),
		"above":  newFile("../above.txt"),
		"root":   newFile("/tmp/above.txt"),
		"nested": newFile("dir/.git/config"),
		"link": "diff --git a/link b/link\nnew file mode 120000\n--- /dev/null\n+++ b/link\n@@ -0,0 +1 @@\n+" +
			outside + "\n\\ No newline at end of file\n" + newFile("link/x.txt"),
	} {
		t.Run(name, func(t *testing.T) {
			m, a, _ := clonedWork(t, func(*Workspace) {})
			before := contents(t, a.Dir)
			config := contents(t, filepath.Join(a.Dir, ".git", "hooks"))
			if _, err := m.Apply(t.Context(), a, Salvage{Patch: []byte(patch)}); err == nil {
				t.Error("it was applied")
			}
			if diff := cmp.Diff(before, contents(t, a.Dir)) + cmp.Diff(config, contents(t, filepath.Join(a.Dir, ".git",
				"hooks"))); diff != "" {
				t.Errorf("the clone changed:\n%s", diff)
			}
		})
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("files were written outside: %v %v", entries, err)
	}
	m, a, s := clonedWork(t, work(t))
	marker := filepath.Join(t.TempDir(), "ran")
	for _, hook := range []string{"post-checkout", "reference-transaction", "post-index-change"} {
		write(t, filepath.Join(a.Dir, ".git", "hooks", hook), "#!/bin/sh\ntouch "+marker+"\n")
		if err := os.Chmod(filepath.Join(a.Dir, ".git", "hooks", hook), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Apply(t.Context(), a, s); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(marker); !errors.Is(err, os.ErrNotExist) {
		t.Error("a hook ran")
	}
}

func newFile(path string) string {
	return "diff --git a/" + path + " b/" + path + "\nnew file mode 100755\n--- /dev/null\n+++ b/" + path +
		"\n@@ -0,0 +1 @@\n+evil\n"
}

// Rule: the diff of a result has all changes since the checked-out commit, and is bounded.
func TestDiffOfAResult(t *testing.T) {
	m := open(t)
	w := prepare(t, m, Spec{Repo: repo(t)})
	write(t, filepath.Join(w.Dir, "new.txt"), "committed\n")
	commit(t, w.Dir, "by the agent")
	write(t, filepath.Join(w.Dir, "a.txt"), "changed\n")
	s, err := m.SalvageResult(t.Context(), w)
	if err != nil || s.DiffCut || !strings.Contains(string(s.Diff), "\n+committed\n") ||
		!strings.Contains(string(s.Diff), "\n+changed\n") {
		t.Errorf("%v:\n%s", err, s.Diff)
	}
	if s := salvageOf(t, m, w); s.Diff != nil {
		t.Error("the changes of a running command have a diff")
	}
	write(t, filepath.Join(w.Dir, "big.txt"), strings.Repeat("0123456789abcdef\n", 200_000))
	s, err = m.SalvageResult(t.Context(), w)
	if err != nil || !s.DiffCut || len(s.Diff) > maxDiff || !strings.HasSuffix(string(s.Diff), "abcdef\n") {
		t.Errorf("%v: %d bytes, cut %v", err, len(s.Diff), s.DiffCut)
	}
}
