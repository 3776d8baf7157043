package workspace

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// workState is the state of a workspace that must be the same after Salvage has saved it and
// Restore has restored it.
type workState struct {
	Head, Commit, Log, Branches, Status string
	Files                               map[string]string
}

func workStateOf(t *testing.T, dir string) workState {
	t.Helper()
	head, _ := try(dir, "symbolic-ref", "-q", "HEAD")
	commit, _ := try(dir, "rev-parse", "--verify", "-q", "HEAD")
	log, _ := try(dir, "log", "--format=%H %an %s", "--stat")
	files := contents(t, dir)
	ignored, _ := try(dir, "ls-files", "--others", "--ignored", "--exclude-standard", "-z")
	for name := range strings.SplitSeq(ignored, "\x00") {
		delete(files, name) // by design, Salvage does not keep files that are ignored and not tracked
	}
	// After git reset, staged and unstaged changes are no longer distinguished.
	run(t, dir, "reset", "-q")
	return workState{
		Head: head, Commit: commit, Log: log, Files: files,
		Branches: run(t, dir, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/"),
		Status:   run(t, dir, "status", "--porcelain", "-z", "--untracked-files=all"),
	}
}

// Rule: Restore reproduces the work of a command: files of every kind, commits, branches and HEAD.
func TestSalvageAndRestore(t *testing.T) {
	src, m := repo(t), open(t)
	for name, work := range sampled(map[string]func(t *testing.T, dir string){
		"changes": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "a.txt"), "changed\n")
			write(t, filepath.Join(dir, "new", "deep", "file"), "new\n")
		},
		"binary": func(t *testing.T, dir string) {
			raw := make([]byte, 100_000)
			for i := range raw {
				raw[i] = byte(i * i >> 3)
			}
			write(t, filepath.Join(dir, "a.txt"), string(raw))
			write(t, filepath.Join(dir, "new.bin"), string(raw)+"\x00\xff")
			write(t, filepath.Join(dir, "nothing"), "")
			write(t, filepath.Join(dir, "open end"), "no newline")
			write(t, filepath.Join(dir, "dos"), "a\r\nb\r\n")
		},
		"deleted and renamed": func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "dir"))
			if err := os.Rename(filepath.Join(dir, "a.txt"), filepath.Join(dir, "b.txt")); err != nil {
				t.Fatal(err)
			}
		},
		"modes and links": func(t *testing.T, dir string) {
			if err := os.Chmod(filepath.Join(dir, "a.txt"), 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "run.sh"), "#!/bin/sh\n")
			_ = os.Chmod(filepath.Join(dir, "run.sh"), 0o755)
			_ = os.Symlink("a.txt", filepath.Join(dir, "inside"))
			_ = os.Symlink("/etc/passwd", filepath.Join(dir, "outside"))
			_ = os.Symlink("nowhere", filepath.Join(dir, "dangling"))
		},
		"kinds that change": func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "dir"))
			write(t, filepath.Join(dir, "dir"), "a file where a directory was\n")
			remove(t, filepath.Join(dir, "a.txt"))
			write(t, filepath.Join(dir, "a.txt", "below"), "a directory where a file was\n")
		},
		"a link for a directory": func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "dir"))
			_ = os.Symlink("/etc", filepath.Join(dir, "dir"))
		},
		"unusual names": func(t *testing.T, dir string) {
			for _, name := range []string{"sp ace", "tab\there", "new\nline", "quo\"te", "back\\slash", "-dash",
				":colon", ":(top)x", "[a]*?", "ünï", "\xff\xfe", "...", "#x", "!x", ".gitmodules-not"} {
				write(t, filepath.Join(dir, "names", name), name)
				write(t, filepath.Join(dir, name), name)
			}
		},
		"ignored": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, ".gitignore"), "*.log\n/out/\n!keep.log\n")
			write(t, filepath.Join(dir, "x.log"), "ignored")
			write(t, filepath.Join(dir, "keep.log"), "kept")
			write(t, filepath.Join(dir, "out", "x"), "ignored")
			write(t, filepath.Join(dir, "sub", ".gitignore"), "local\n")
			write(t, filepath.Join(dir, "sub", "local"), "ignored")
			write(t, filepath.Join(dir, "forced.log"), "kept, since added by force")
			run(t, dir, "add", "-f", "forced.log")
		},
		"staged": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "a.txt"), "staged\n")
			run(t, dir, "add", "a.txt")
			write(t, filepath.Join(dir, "a.txt"), "and changed again\n")
			run(t, dir, "rm", "-q", "--cached", "dir/b.txt")
		},
		"commits": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "one"), "1\n")
			commit(t, dir, "one")
			write(t, filepath.Join(dir, "two"), "2\n")
			commit(t, dir, "two")
		},
		"commits and changes": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "one"), "1\n")
			commit(t, dir, "one")
			write(t, filepath.Join(dir, "one"), "1 and not committed\n")
			remove(t, filepath.Join(dir, "a.txt"))
		},
		"branches": func(t *testing.T, dir string) {
			run(t, dir, "checkout", "-q", "-b", "other/deep")
			write(t, filepath.Join(dir, "one"), "1\n")
			commit(t, dir, "one")
			run(t, dir, "branch", "same")
			run(t, dir, "branch", "old", "HEAD~2")
			run(t, dir, "branch", "-D", "-q", "main")
			run(t, dir, "checkout", "-q", "same")
			run(t, dir, "pack-refs", "--all")
			run(t, dir, "branch", "loose")
		},
		"back": func(t *testing.T, dir string) {
			run(t, dir, "reset", "-q", "--hard", "HEAD~")
			write(t, filepath.Join(dir, "new"), "on the older commit\n")
		},
		"detached": func(t *testing.T, dir string) {
			run(t, dir, "checkout", "-q", "--detach", "origin/feature/x")
			commit(t, dir, "on no branch")
		},
		"orphan": func(t *testing.T, dir string) {
			run(t, dir, "checkout", "-q", "--orphan", "fresh")
			run(t, dir, "rm", "-q", "-r", "--cached", ".")
			remove(t, filepath.Join(dir, "dir"))
		},
		"unrelated": func(t *testing.T, dir string) {
			run(t, dir, "checkout", "-q", "--orphan", "fresh")
			commit(t, dir, "a second root")
		},
		"merge": func(t *testing.T, dir string) {
			run(t, dir, "merge", "-q", "-m", "merged", "origin/feature/x")
		},
		"merge under way": func(t *testing.T, dir string) {
			run(t, dir, "checkout", "-q", "-b", "theirs", "HEAD~")
			write(t, filepath.Join(dir, "a.txt"), "theirs\n")
			commit(t, dir, "theirs")
			run(t, dir, "checkout", "-q", "main")
			if _, err := try(dir, "merge", "theirs"); err == nil {
				t.Fatal("no conflict")
			}
		},
		"packed": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "one"), "1\n")
			commit(t, dir, "one")
			run(t, dir, "repack", "-q", "-a", "-d", "--write-midx")
			run(t, dir, "commit-graph", "write", "--reachable")
		},
		"text by force": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, ".gitattributes"), "*.bin diff\n*.txt -diff\n")
			write(t, filepath.Join(dir, "x.bin"), "a\x00b\r\n\x00\xff\n\n no end")
			write(t, filepath.Join(dir, "x.txt"), "text\n")
		},
		"a submodule that goes": func(t *testing.T, dir string) {
			sh(t, dir, `git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),one --cacheinfo 160000,$(git rev-parse HEAD),two \
  --cacheinfo 160000,$(git rev-parse HEAD),three
mkdir one two three
git commit -q -m submodules
rmdir one two
echo a file >one`)
		},
		"line endings": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, ".gitattributes"),
				"*.crlf text eol=crlf\n*.utf16 text working-tree-encoding=UTF-16LE\n")
			write(t, filepath.Join(dir, "x.crlf"), "a\r\nb\r\n")
			write(t, filepath.Join(dir, "x.utf16"), "a\x00\n\x00")
			commit(t, dir, "attributes")
			write(t, filepath.Join(dir, "x.crlf"), "a\r\nc\r\n")
			write(t, filepath.Join(dir, "y.crlf"), "new\r\n")
		},
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := prepare(t, m, Spec{Repo: src})
			work(t, w.Dir)
			s := salvageOf(t, m, w)
			if s.Empty() || s.Lost != "" {
				t.Fatalf("bundle %d, patch %d bytes, lost %q", len(s.Bundle), len(s.Patch), s.Lost)
			}
			again := prepare(t, m, Spec{Repo: src, Commit: w.Commit})
			if err := m.Restore(t.Context(), again, s); err != nil {
				t.Fatal(err)
			}
			twice := salvageOf(t, m, again)
			if diff := cmp.Diff(workStateOf(t, w.Dir), workStateOf(t, again.Dir)); diff != "" {
				t.Errorf("(-salvaged +restored):\n%s", diff)
			}
			run(t, again.Dir, "fsck", "--strict")
			if !bytes.Equal(s.Patch, twice.Patch) || s.Commits != twice.Commits ||
				(s.Bundle == nil) != (twice.Bundle == nil) {
				t.Errorf("a second salvage differs: %d and %d commits\n%s\n%s", s.Commits, twice.Commits, s.Patch,
					twice.Patch)
			}
			if left := run(t, again.Dir, "for-each-ref", "refs/belay"); left != "" {
				t.Errorf("refs left: %s", left)
			}
		})
	}
}

// Rule: if the command changed nothing, Salvage returns an empty Salvage.
func TestSalvageNothing(t *testing.T) {
	src, m := repo(t), open(t)
	for _, ref := range []string{"", "light"} {
		w := prepare(t, m, Spec{Repo: src, Ref: ref})
		run(t, w.Dir, "status")
		if s := salvageOf(t, m, w); !s.Empty() {
			t.Errorf("ref %q: %+v", ref, s)
		}
	}
}

// Rule: Salvage counts all changes as git does, both committed and uncommitted.
func TestSalvageCounts(t *testing.T) {
	src, m := repo(t), open(t)
	w := prepare(t, m, Spec{Repo: src})
	write(t, filepath.Join(w.Dir, "one"), "1\n2\n3\n")
	commit(t, w.Dir, "one")
	remove(t, filepath.Join(w.Dir, "a.txt"))
	write(t, filepath.Join(w.Dir, "bin"), "\x00\x01")
	s := salvageOf(t, m, w)
	if left, _ := os.ReadDir(filepath.Join(m.dir, "scratch")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if got, want := fmt.Sprint(s.Commits, s.Files, s.Insertions, s.Deletions), "1 3 3 2"; got != want {
		t.Errorf("commits, files, insertions, deletions: %s, want %s", got, want)
	}
}

// Rule: a person can apply work that Salvage saved with git alone, without Belay.
func TestSalvageIsPlainGit(t *testing.T) {
	src, m := repo(t), open(t)
	w := prepare(t, m, Spec{Repo: src})
	write(t, filepath.Join(w.Dir, "one"), "1\n")
	made := commit(t, w.Dir, "one")
	write(t, filepath.Join(w.Dir, "one"), "1\n2\n")
	s := salvageOf(t, m, w)
	bundle, patch := filepath.Join(t.TempDir(), "b"), filepath.Join(t.TempDir(), "p")
	write(t, bundle, string(s.Bundle))
	write(t, patch, string(s.Patch))
	run(t, src, "bundle", "verify", "-q", bundle)
	run(t, src, "pull", "-q", "--ff-only", bundle, "main")
	if got := run(t, src, "rev-parse", "HEAD"); got != made {
		t.Errorf("pulled %s, want %s", got, made)
	}
	run(t, src, "apply", patch)
	if got := run(t, src, "diff", "--stat"); !strings.Contains(got, "1 insertion") {
		t.Errorf("applied: %s", got)
	}
}

// Rule: Salvage names files that it cannot read or that are too large as lost, and keeps the other
// files.
func TestSalvageNamesWhatIsLost(t *testing.T) {
	src, m := repo(t), open(t)
	w := prepare(t, m, Spec{Repo: src})
	write(t, filepath.Join(w.Dir, "kept"), "kept\n")
	huge, err := os.Create(filepath.Join(w.Dir, "huge"))
	if err != nil {
		t.Fatal(err)
	}
	if err := huge.Truncate(m.MaxSalvage + 1); err != nil {
		t.Fatal(err)
	}
	huge.Close()
	run(t, w.Dir, "init", "-q", "nested")
	write(t, filepath.Join(w.Dir, "nested", "file"), "x")
	s := salvageOf(t, m, w)
	for _, want := range []string{"huge, a new file of 64 MiB", "nested, which is a repository of its own"} {
		if !strings.Contains(s.Lost, want) {
			t.Errorf("lost %q, which does not say %q", s.Lost, want)
		}
	}
	again := prepare(t, m, Spec{Repo: src, Commit: w.Commit})
	if err := m.Restore(t.Context(), again, s); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, again.Dir); got["kept"] != "kept\n" || len(got) != 3 {
		t.Errorf("restored %v", got)
	}
}

// Rule: if the bundle of commits exceeds its limit, Salvage saves the files of these commits in the
// patch instead.
func TestSalvageBundleBeyondLimit(t *testing.T) {
	src, m := repo(t), open(t)
	m.MaxSalvage = 1 << 20
	w := prepare(t, m, Spec{Repo: src})
	raw := make([]byte, m.MaxSalvage+10_000)
	x := uint64(1)
	for i := range raw { // incompressible data
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		raw[i] = byte(x)
	}
	write(t, filepath.Join(w.Dir, "huge"), string(raw))
	commit(t, w.Dir, "huge")
	remove(t, filepath.Join(w.Dir, "huge"))
	write(t, filepath.Join(w.Dir, "kept"), "kept\n")
	commit(t, w.Dir, "without it")
	s := salvageOf(t, m, w)
	if s.Bundle != nil || !strings.Contains(s.Lost, "2 in a bundle beyond the limit of 1 MiB") ||
		!bytes.Contains(s.Patch, []byte("+kept")) {
		t.Errorf("bundle %d bytes, lost %q, patch\n%.300s", len(s.Bundle), s.Lost, s.Patch)
	}
	again := prepare(t, m, Spec{Repo: src, Commit: w.Commit})
	if err := m.Restore(t.Context(), again, s); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(contents(t, w.Dir), contents(t, again.Dir)); diff != "" {
		t.Errorf("(-salvaged +restored):\n%s", diff)
	}
}

// Rule: if the patch exceeds its limit, Salvage names the largest files in it as lost, and keeps
// the other files and the commits.
func TestSalvagePatchBeyondLimit(t *testing.T) {
	src, m := repo(t), open(t)
	m.MaxSalvage = 8 << 10
	w := prepare(t, m, Spec{Repo: src})
	commit(t, w.Dir, "made")
	for i := range 10 {
		write(t, filepath.Join(w.Dir, fmt.Sprint("new", i)), "some text\n")
	}
	for i := range 3 {
		write(t, filepath.Join(w.Dir, fmt.Sprint("large", i)), strings.Repeat(fmt.Sprint("text ", i, "\n"), 900))
	}
	s := salvageOf(t, m, w)
	want := "the uncommitted changes of large0, large1, large2: with them the patch is beyond the limit of 8 KiB"
	if s.Lost != want {
		t.Errorf("lost %q, want %q", s.Lost, want)
	}
	if s.Commits != 1 || s.Files != 13 {
		t.Errorf("%d commits, %d files", s.Commits, s.Files)
	}
	again := prepare(t, m, Spec{Repo: src, Commit: w.Commit})
	if err := m.Restore(t.Context(), again, s); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, again.Dir); len(got) != 12 || got["new9"] != "some text\n" {
		t.Errorf("restored %v", got)
	}
}

// Rule: Salvage succeeds even if the base (the cached clone) was removed, or was made anew from a
// source that no longer has the commit.
func TestSalvageWithoutTheBase(t *testing.T) {
	src, m := repo(t), open(t)
	w := prepare(t, m, Spec{Repo: src})
	made := commit(t, w.Dir, "made")
	write(t, filepath.Join(w.Dir, "a.txt"), "changed\n")
	remove(t, filepath.Dir(w.objects))
	s := salvageOf(t, m, w)
	if s.Commits != 1 || s.Lost != "" {
		t.Fatalf("%d commits, lost %q", s.Commits, s.Lost)
	}
	again := prepare(t, m, Spec{Repo: src, Commit: w.Commit})
	if err := m.Restore(t.Context(), again, s); err != nil {
		t.Fatal(err)
	}
	if got := run(t, again.Dir, "rev-parse", "HEAD"); got != made {
		t.Errorf("HEAD %s, want %s", got, made)
	}
}

// Rule: Restore refuses a bundle that an attacker has changed, and a patch cannot change anything
// outside the checkout.
func TestRestoreRefuses(t *testing.T) {
	src, m := repo(t), open(t)
	w := prepare(t, m, Spec{Repo: src})
	commit(t, w.Dir, "made")
	good := salvageOf(t, m, w)
	bad := bytes.Clone(good.Bundle)
	bad[len(bad)-30] ^= 0xff
	for name, tt := range map[string]struct{ bundle, patch []byte }{
		"no bundle":     {[]byte("hello"), nil},
		"spoilt bundle": {bad, nil},
		"cut bundle":    {good.Bundle[:len(good.Bundle)-40], nil},
		"no patch":      {nil, []byte("hello")},
		"patch outside": {
			nil, []byte("diff --git a/../../x b/../../x\nnew file mode 100644\n--- /dev/null\n+++ b/../../x\n@@ " +
				"-0,0 +1 @@\n+x\n"),
		},
		"patch into .git": {nil, []byte(
			"diff --git a/.git/hooks/x b/.git/hooks/x\nnew file mode 100755\n--- /dev/null\n+++ " +
				"b/.git/hooks/x\n@@ -0,0 +1 @@\n+x\n")},
	} {
		again := prepare(t, m, Spec{Repo: src, Commit: w.Commit})
		if err := m.Restore(t.Context(), again, Salvage{Bundle: tt.bundle, Patch: tt.patch}); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if _, err := os.Stat(filepath.Join(again.Dir, ".git", "hooks", "x")); err == nil {
			t.Errorf("%s: a file was written into .git", name)
		}
	}
}
