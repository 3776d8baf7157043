package workspace

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
)

// Rule: a ref may be a branch, a tag, a full ref or a commit. Prepare checks out a branch as a
// branch and every other ref with a detached HEAD, and the checkout has the files of the ref.
func TestRefs(t *testing.T) {
	src, m := repo(t), open(t)
	main, feature, first := run(t, src, "rev-parse", "main"), run(t, src, "rev-parse", "feature/x"),
		run(t, src, "rev-parse", "main~")
	for _, tt := range []struct{ ref, commit, branch string }{
		{"", main, "main"},
		{"HEAD", main, "main"},
		{"main", main, "main"},
		{"feature/x", feature, "feature/x"},
		{"refs/heads/feature/x", feature, "feature/x"},
		{"light", first, ""},
		{"v1.0", first, ""},
		{"refs/tags/v1.0", first, ""},
		{feature, feature, ""},
		{feature[:9], feature, ""},
		{strings.ToUpper(first[:10]), first, ""},
	} {
		t.Run(strings.ReplaceAll(tt.ref, "/", "."), func(t *testing.T) {
			w := prepare(t, m, Spec{Repo: src, Ref: tt.ref})
			if diff := cmp.Diff([]string{tt.commit, tt.branch}, []string{w.Commit, w.Branch}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := run(t, w.Dir, "rev-parse", "HEAD"); got != tt.commit {
				t.Errorf("HEAD is %s, want %s", got, tt.commit)
			}
			if got, _ := try(w.Dir, "symbolic-ref", "--short", "-q", "HEAD"); got != tt.branch {
				t.Errorf("on branch %q, want %q", got, tt.branch)
			}
			if got := run(t, w.Dir, "status", "--porcelain"); got != "" {
				t.Errorf("not clean: %s", got)
			}
			run(t, w.Dir, "fsck", "--strict")
		})
	}
}

// Rule: Prepare checks out Spec.Commit even if Spec.Ref has moved or was deleted, on the branch
// that Spec.Ref names.
func TestCommitIsExact(t *testing.T) {
	src, m := repo(t), open(t)
	first := run(t, src, "rev-parse", "main~")
	for _, tt := range []struct{ ref, branch string }{{"", "main"}, {"main", "main"}, {"gone", "gone"}, {"v1.0", ""},
		{first[:8], ""}} {
		w := prepare(t, m, Spec{Repo: src, Ref: tt.ref, Commit: first})
		if w.Commit != first || w.Branch != tt.branch || run(t, w.Dir, "rev-parse", "HEAD") != first {
			t.Errorf("ref %q: commit %s on %q, want %s on %q", tt.ref, w.Commit, w.Branch, first, tt.branch)
		}
	}
}

// Rule: the checkout's remote origin is the source, with the source's branches, and no file in .git
// names the base (the cached clone).
func TestOriginIsTheTrueRemote(t *testing.T) {
	src, m := repo(t), open(t)
	w := prepare(t, m, Spec{Repo: "file://" + src})
	if got := run(t, w.Dir, "remote", "get-url", "origin"); got != src {
		t.Errorf("origin is %q, want %q", got, src)
	}
	want := "origin/HEAD\norigin/feature/x\norigin/main"
	if got := run(t, w.Dir, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/remotes"); got != want {
		t.Errorf("remote branches %q, want %q", got, want)
	}
	if got := run(t, w.Dir, "rev-parse", "--abbrev-ref", "main@{upstream}"); got != "origin/main" {
		t.Errorf("upstream %q", got)
	}
	later := commit(t, src, "later")
	run(t, w.Dir, "pull", "-q", "--ff-only")
	if got := run(t, w.Dir, "rev-parse", "HEAD"); got != later {
		t.Errorf("a pull brought %s, want %s", got, later)
	}
	if out, err := exec.Command("grep", "-r", filepath.Join(m.dir, "base"),
		filepath.Join(w.Dir, ".git")).Output(); err == nil {
		t.Errorf("the base is named in the checkout:\n%s", out)
	}
}

// Rule: a workspace that has no user of its own gets copies of objects, and no hard links. So a job
// that overwrites its objects does not damage the objects of other jobs.
func TestObjectsAreCopied(t *testing.T) {
	src, m := repo(t), open(t)
	run(t, src, "gc", "-q")
	w := prepare(t, m, Spec{Repo: src})
	n := 0
	err := filepath.WalkDir(filepath.Join(w.Dir, ".git", "objects"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		n++
		if links := info.Sys().(*syscall.Stat_t).Nlink; links != 1 {
			t.Errorf("%s has %d links", path, links)
		}
		return os.WriteFile(path, []byte("spoilt"), 0)
	})
	if n == 0 {
		t.Fatal("no objects")
	}
	if err != nil && os.Geteuid() == 0 {
		t.Fatal(err)
	}
	run(t, prepare(t, m, Spec{Repo: src}).Dir, "fsck", "--strict")
}

// Rule: Prepare can check out a source with a detached HEAD, a shallow source, a bare source, a
// source with uncommitted changes, and a linked work tree.
func TestSources(t *testing.T) {
	type source struct {
		dir, commit, branch string
		dirty               bool
	}
	for name, source := range map[string]func(t *testing.T, src string) source{
		"detached": func(t *testing.T, src string) source {
			run(t, src, "checkout", "-q", "--detach", "main~")
			return source{src, commit(t, src, "on no branch"), "", false}
		},
		"shallow": func(t *testing.T, src string) source {
			dir := filepath.Join(t.TempDir(), "shallow")
			run(t, "/", "clone", "-q", "--depth=1", "file://"+src, dir)
			return source{dir, run(t, src, "rev-parse", "main"), "main", false}
		},
		"shallow and detached": func(t *testing.T, src string) source {
			dir := filepath.Join(t.TempDir(), "shallow")
			run(t, "/", "clone", "-q", "--depth=1", "--branch=v1.0", "file://"+src, dir)
			return source{dir, run(t, src, "rev-parse", "v1.0^{commit}"), "", false}
		},
		"bare": func(t *testing.T, src string) source {
			dir := filepath.Join(t.TempDir(), "bare.git")
			run(t, "/", "clone", "-q", "--bare", src, dir)
			return source{dir, run(t, src, "rev-parse", "main"), "main", false}
		},
		"linked work tree": func(t *testing.T, src string) source {
			dir := filepath.Join(t.TempDir(), "linked")
			run(t, src, "worktree", "add", "-q", dir, "feature/x")
			return source{dir, run(t, src, "rev-parse", "feature/x"), "feature/x", false}
		},
		"symbolic link": func(t *testing.T, src string) source {
			dir := filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(src, dir); err != nil {
				t.Fatal(err)
			}
			return source{dir, run(t, src, "rev-parse", "main"), "main", false}
		},
		"packed": func(t *testing.T, src string) source {
			run(t, src, "gc", "-q")
			return source{src, run(t, src, "rev-parse", "main"), "main", false}
		},
		"changed": func(t *testing.T, src string) source {
			write(t, filepath.Join(src, "a.txt"), "not committed\n")
			return source{src, run(t, src, "rev-parse", "main"), "main", true}
		},
		"with new files": func(t *testing.T, src string) source {
			write(t, filepath.Join(src, "new.txt"), "not committed\n")
			return source{src, run(t, src, "rev-parse", "main"), "main", true}
		},
		"sha256": func(t *testing.T, _ string) source {
			dir := filepath.Join(t.TempDir(), "sha256")
			run(t, "/", "init", "-q", "-b", "main", "--object-format=sha256", dir)
			return source{dir, commit(t, dir, "first"), "main", false}
		},
		"unusual names": func(t *testing.T, src string) source {
			dir := filepath.Join(t.TempDir(), "a b:c'd\"é$(x)")
			run(t, "/", "clone", "-q", src, dir)
			run(t, dir, "checkout", "-q", "-b", "ü/it's-\"x\"-$(y)")
			return source{dir, run(t, src, "rev-parse", "main"), "ü/it's-\"x\"-$(y)", false}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := source(t, repo(t)), open(t)
			w := prepare(t, m, Spec{Repo: s.dir})
			if diff := cmp.Diff([]string{s.commit, s.branch, fmt.Sprint(s.dirty)}, []string{w.Commit, w.Branch,
				fmt.Sprint(w.DirtySource)}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := run(t, w.Dir, "status", "--porcelain"); got != "" {
				t.Errorf("not clean: %s", got)
			}
			run(t, w.Dir, "log", "--oneline")
			write(t, filepath.Join(w.Dir, "made.txt"), "made\n")
			made := commit(t, w.Dir, "in the workspace")
			got := salvageOf(t, m, w)
			if got.Commits != 1 || got.Lost != "" {
				t.Errorf("salvaged %d commits, lost %q", got.Commits, got.Lost)
			}
			again := prepare(t, m, Spec{Repo: s.dir, Commit: s.commit})
			if err := m.Restore(t.Context(), again, got); err != nil {
				t.Fatal(err)
			}
			if head := run(t, again.Dir, "rev-parse", "HEAD"); head != made {
				t.Errorf("restored %s, want %s", head, made)
			}
		})
	}
}

// Rule: Prepare reports a missing repository or ref as not found, with its name, and leaves no
// files.
func TestNotFound(t *testing.T) {
	src, m := repo(t), open(t)
	empty := filepath.Join(t.TempDir(), "empty")
	run(t, "/", "init", "-q", empty)
	blob := run(t, src, "rev-parse", "main:a.txt")
	run(t, src, "tag", "blob", blob)
	none := strings.Repeat("ab", 20)
	for _, tt := range []struct {
		spec Spec
		code belay.Code
		say  string
	}{
		{Spec{Repo: src, Ref: "nowhere"}, belay.CodeNotFound, "nowhere in " + src},
		{Spec{Repo: src, Ref: "refs/heads/nowhere"}, belay.CodeNotFound, "nowhere"},
		{Spec{Repo: src, Ref: "abcdef12"}, belay.CodeNotFound, "abcdef12"},
		{Spec{Repo: src, Ref: none}, belay.CodeNotFound, none},
		{Spec{Repo: src, Commit: none}, belay.CodeNotFound, none},
		{Spec{Repo: src, Ref: "blob"}, belay.CodeInvalid, "is a blob and not a commit"},
		{Spec{Repo: empty}, belay.CodeNotFound, "has no commit yet"},
		{Spec{Repo: filepath.Join(src, "dir")}, belay.CodeNotFound, "lies in one: name " + src},
		{Spec{Repo: filepath.Join(src, "gone")}, belay.CodeNotFound, "does not exist"},
		{Spec{Repo: filepath.Join(src, "a.txt")}, belay.CodeNotFound, "is not a directory"},
		{Spec{Repo: t.TempDir()}, belay.CodeNotFound, "is not a git repository"},
	} {
		tt.spec.ID = "run_x"
		w, err := m.Prepare(t.Context(), tt.spec)
		if text := wantCode(t, err, tt.code); !strings.Contains(text, tt.say) {
			t.Errorf("%+v: %q does not contain %q", tt.spec, text, tt.say)
		}
		if w != nil {
			t.Errorf("%+v: a workspace beside the error", tt.spec)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(m.dir, "jobs")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Rule: concurrent calls of Prepare for one repository all succeed, and each workspace has its own
// files.
func TestConcurrentPrepares(t *testing.T) {
	src, m := repo(t), open(t)
	const n = 8
	places := make([]*Workspace, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			manager := m
			if i%2 == 1 { // a second Manager acts like another process
				var err error
				if manager, err = Open(m.dir); err != nil {
					t.Error(err)
					return
				}
			}
			w, err := manager.Prepare(t.Context(), Spec{
				ID: fmt.Sprintf("run_%d", i), Repo: src, Ref: []string{"main", "feature/x"}[i%2],
			})
			if err != nil {
				t.Error(err)
				return
			}
			places[i] = w
		})
	}
	all.Wait()
	for i, w := range places {
		if w == nil {
			continue
		}
		write(t, filepath.Join(w.Dir, "mine.txt"), w.ID)
		if _, err := os.Stat(filepath.Join(w.Dir, "x.txt")); (err == nil) != (i%2 == 1) {
			t.Errorf("%s has the files of another ref", w.ID)
		}
		run(t, w.Dir, "fsck", "--strict")
	}
	for _, w := range places {
		if w == nil {
			continue
		}
		if got, _ := os.ReadFile(filepath.Join(w.Dir, "mine.txt")); string(got) != w.ID {
			t.Errorf("%s holds %q", w.ID, got)
		}
		if err := w.Remove(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// Rule: Prepare succeeds even if the base (the cached clone) is corrupt, incomplete or has the locks
// of a dead git: it repairs the base or makes a new base.
func TestDamagedBase(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, base string){
		"no state":  func(t *testing.T, base string) { remove(t, base+stateFile) },
		"no HEAD":   func(t *testing.T, base string) { remove(t, filepath.Join(base, "HEAD")) },
		"no config": func(t *testing.T, base string) { write(t, filepath.Join(base, "config"), "[broken") },
		"no objects": func(t *testing.T, base string) {
			remove(t, filepath.Join(base, "objects"))
			write(t, filepath.Join(base, "objects", "x"), "")
		},
		"spoilt objects": func(t *testing.T, base string) {
			spoil(t, filepath.Join(base, "objects"))
		},
		"a file": func(t *testing.T, base string) { remove(t, base); write(t, base, "no directory") },
		"locks": func(t *testing.T, base string) {
			write(t, filepath.Join(base, "packed-refs.lock"), "")
			write(t, filepath.Join(base, "refs", "heads", "main.lock"), "")
		},
		"half a rebuild": func(t *testing.T, base string) { write(t, base+".new-1/HEAD", ""); remove(t, base) },
	} {
		t.Run(name, func(t *testing.T) {
			src, m := repo(t), open(t)
			first := prepare(t, m, Spec{Repo: src})
			base := filepath.Dir(first.objects)
			damage(t, base)
			jammed, _ := os.Stat(base)
			commit(t, src, "later")
			w := prepare(t, m, Spec{Repo: src})
			if want := run(t, src, "rev-parse", "main"); w.Commit != want {
				t.Errorf("commit %s, want %s", w.Commit, want)
			}
			run(t, w.Dir, "fsck", "--strict")
			if mended, _ := os.Stat(base); name == "locks" && !os.SameFile(jammed, mended) {
				t.Error("the base was made anew because of a stale lock")
			}
			if left, _ := filepath.Glob(filepath.Join(m.dir, "base", "*.new-*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// spoil overwrites every file below dir with zeros of the same length.
func spoil(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.WriteFile(path, make([]byte, info.Size()), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Rule: if the commit is known, Prepare can check it out from the base (the cached clone) alone. So a
// job can continue even after its source was deleted.
func TestKnownCommitNeedsNoSource(t *testing.T) {
	src, m := repo(t), open(t)
	w := prepare(t, m, Spec{Repo: src})
	remove(t, filepath.Join(src, ".git", "objects"))
	again := prepare(t, m, Spec{Repo: src, Commit: w.Commit})
	if again.Commit != w.Commit || again.Branch != w.Branch {
		t.Errorf("got %s on %q, want %s on %q", again.Commit, again.Branch, w.Commit, w.Branch)
	}
}

// Rule: after many fetches a base (a cached clone) has at most maxPacks packs. It also keeps commits
// that the source has deleted.
func TestBaseIsCompacted(t *testing.T) {
	src, m := repo(t), open(t)
	run(t, src, "checkout", "-q", "-b", "short")
	forgotten := commit(t, src, "to be forgotten")
	prepare(t, m, Spec{Repo: src})
	run(t, src, "checkout", "-q", "main")
	run(t, src, "branch", "-q", "-D", "short")
	remote, err := parseSource(src)
	if err != nil {
		t.Fatal(err)
	}
	b, err := m.lockBase(t.Context(), remote)
	if err != nil {
		t.Fatal(err)
	}
	for range maxPacks + 4 {
		commit(t, src, "one more")
		reads, err := m.read(t.Context(), remote, false)
		if err != nil {
			t.Fatal(err)
		}
		b.peer = reads
		_, dir, err := b.consult(t.Context(), Spec{}, true)
		if err != nil {
			t.Fatal(err)
		}
		_ = dir.Close()
		_, _ = reads.end()
	}
	b.unlock()
	if packs, _ := filepath.Glob(filepath.Join(b.dir, "objects", "pack", "*.pack")); len(packs) > maxPacks {
		t.Errorf("%d packs", len(packs))
	}
	run(t, prepare(t, m, Spec{Repo: src}).Dir, "fsck", "--strict")
	if w := prepare(t, m, Spec{Repo: src, Ref: "short", Commit: forgotten}); w.Branch != "short" {
		t.Errorf("on branch %q", w.Branch)
	}
}

// Rule: the author of the command's commits is the user that the git configuration of this process's
// user names, or Belay if the configuration names no user.
func TestIdentity(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	src, m := repo(t), open(t)
	as := func(w *Workspace) string {
		t.Helper()
		cmd := exec.Command("sh", "-c", "git commit -q --allow-empty -m made && git log -1 '--format=%an <%ae>'")
		cmd.Dir, cmd.Env = w.Dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.Home}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if got := as(prepare(t, m, Spec{Repo: src})); got != "belay <belay@localhost>" {
		t.Errorf("without a user: %q", got)
	}
	write(t, filepath.Join(home, ".gitconfig"),
		"[user]\n\tname = \"Jo \\\"\\\\# Doe\"\n\temail = jo@example.com\n[core]\n\tpager = touch "+home+"/ran\n")
	if got := as(prepare(t, m, Spec{Repo: src})); got != `Jo "\# Doe <jo@example.com>` {
		t.Errorf("with a user: %q", got)
	}
}

// Rule: without a repository the workspace is an empty directory, and Prepare does not need git.
func TestEmptyWorkspace(t *testing.T) {
	m := open(t)
	m.git.bin = ""
	w := prepare(t, m, Spec{})
	for _, dir := range []string{w.Dir, w.Tmp} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: %v, %v", dir, left, err)
		}
	}
	if s := salvageOf(t, m, w); !s.Empty() {
		t.Errorf("salvaged %+v", s)
	}
	_, err := m.Prepare(t.Context(), Spec{ID: "run_git", Repo: repo(t)})
	if text := wantCode(t, err, belay.CodeUnavailable); !strings.Contains(text, "git is not installed") {
		t.Error(text)
	}
}

// Rule: two workspaces cannot have the same ID at the same time, and an invalid ID is refused.
func TestIDIsUniqueAndValid(t *testing.T) {
	m := open(t)
	w := prepare(t, m, Spec{ID: "run_1"})
	_, err := m.Prepare(t.Context(), Spec{ID: "run_1"})
	wantCode(t, err, belay.CodeConflict)
	other, err := Open(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = other.Prepare(t.Context(), Spec{ID: "run_1"})
	wantCode(t, err, belay.CodeConflict)
	if err := w.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	prepare(t, m, Spec{ID: "run_1"})
	for _, id := range []string{"", ".", "..", "a/b", "../x", "-x", ".hidden", "a b", "ü", "a\x00",
		strings.Repeat("x", 201)} {
		_, err := m.Prepare(t.Context(), Spec{ID: id})
		wantCode(t, err, belay.CodeInvalid)
	}
}

// Rule: when its context ends, Prepare stops waiting for the lock on the base (the cached clone)
// and removes the incomplete workspace.
func TestPrepareCancelled(t *testing.T) {
	src, m := repo(t), open(t)
	s, err := parseSource(src)
	if err != nil {
		t.Fatal(err)
	}
	held, err := m.lockBase(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer held.unlock()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, fmt.Errorf("cause of the test"))
	defer cancel()
	_, err = m.Prepare(ctx, Spec{ID: "run_1", Repo: src})
	if err == nil || !strings.Contains(err.Error(), "cause of the test") {
		t.Errorf("error %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(m.dir, "jobs")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
