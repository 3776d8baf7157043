package workspace

import (
	"context"
	"errors"
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
	"github.com/belaydev/belay/internal/host"
)

// keeperUser is the owner of base clones in tests that run as root.
const keeperUser = 1_700_000_000

// giveUsers makes m give each workspace its own user, for tests that run as root.
func giveUsers(t *testing.T, m *Manager) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	m.Keeper = &host.User{UID: keeperUser, GID: keeperUser}
	var mu sync.Mutex
	next := uint32(keeperUser)
	m.Users = func(context.Context, string) (host.User, func(context.Context) error, error) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return host.User{UID: next, GID: next}, func(context.Context) error { return nil }, nil
	}
}

func inode(t *testing.T, path string) *syscall.Stat_t {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t)
}

// packs lists the packs in a directory of objects.
func packs(t *testing.T, objects string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(objects, "pack", "*.pack"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no packs in %s: %v", objects, err)
	}
	return all
}

// Rule: objects in a workspace are hard links only if the user of the command does not own the base
// (the cached clone). All other files belong to the user of the workspace.
func TestObjectsAreHardLinkedForOtherUsersOnly(t *testing.T) {
	m, source := open(t), repo(t)
	own := prepare(t, m, Spec{ID: "own", Repo: source})
	for _, p := range packs(t, filepath.Join(own.Dir, ".git", "objects")) {
		if inode(t, p).Nlink != 1 {
			t.Errorf("%s is shared with a command of the same user", p)
		}
	}
	giveUsers(t, m)
	w := prepare(t, m, Spec{ID: "lent", Repo: source})
	for _, p := range packs(t, filepath.Join(w.Dir, ".git", "objects")) {
		st := inode(t, p)
		if st.Nlink < 2 || st.Uid != keeperUser || st.Mode&0o222 != 0 || st.Mode&0o004 == 0 {
			t.Errorf("%s: %d names, user %d, mode %o", p, st.Nlink, st.Uid, st.Mode)
		}
	}
	for _, path := range []string{w.Dir, w.Home, w.Tmp, filepath.Join(w.Dir, "a.txt"), filepath.Join(w.Dir, ".git",
		"config"), filepath.Join(w.Home, ".gitconfig"), filepath.Join(w.Dir, ".git", "objects", "pack")} {
		if st := inode(t, path); st.Uid != w.User.UID {
			t.Errorf("%s belongs to user %d", path, st.Uid)
		}
	}
	for _, closed := range []string{"base", "kept", "scratch"} {
		if inode(t, filepath.Join(m.dir, closed)).Mode&0o077 != 0 {
			t.Errorf("%s is open to others", closed)
		}
	}
	if inode(t, filepath.Join(m.dir, "jobs")).Mode&0o044 != 0 {
		t.Error("others can list the workspaces")
	}
}

// Rule: if a workspace has its own user, Salvage and Restore keep the work of that user. Salvage
// does not read files in the workspace that belong to other users.
func TestSalvageOfAnotherUser(t *testing.T) {
	m, source := open(t), repo(t)
	giveUsers(t, m)
	w := prepare(t, m, Spec{ID: "first", Repo: source})
	sh(t, w.Dir, `echo three >>a.txt; git commit -qam third; echo new >new.txt; echo more >>a.txt
chown -R `+fmt.Sprint(w.User.UID)+` new.txt a.txt; echo root >secret.txt`)
	s, err := m.Salvage(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	if s.Commits != 1 || s.Files != 2 || !strings.Contains(s.Lost, "secret.txt, which belongs to another user") ||
		strings.Contains(string(s.Patch), "secret") {
		t.Errorf("%+v", s)
	}
	again := prepare(t, m, Spec{ID: "second", Repo: source, Commit: w.Commit})
	if err := m.Restore(t.Context(), again, s); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"new.txt", "a.txt", ".git/HEAD"} {
		if st := inode(t, filepath.Join(again.Dir, name)); st.Uid != again.User.UID {
			t.Errorf("%s belongs to user %d", name, st.Uid)
		}
	}
}

// Rule: if the work in the workspace of a dead process cannot be saved, for example on a full disk,
// the workspace stays. Later sweeps try again for an hour; after that the workspace is removed.
func TestWorkThatCannotBeSavedStays(t *testing.T) {
	m, source := open(t), repo(t)
	w := prepare(t, m, Spec{ID: "dies", Repo: source})
	lost := prepare(t, m, Spec{ID: "lost", Repo: source})
	for _, dead := range []*Workspace{w, lost} {
		write(t, filepath.Join(dead.Dir, "new.txt"), "new\n")
		die(t, dead)
	}

	other := reopen(t, m)
	now := time.Now()
	other.Now = func() time.Time { return now }
	kept := filepath.Join(other.dir, "kept")
	obstruct := func() {
		if err := errors.Join(os.Remove(kept), os.WriteFile(kept, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	obstruct() // root may write into any directory, but not even root can make a directory below a file
	if err := other.salvageAndRemove(t.Context(), "dies"); err == nil || !strings.Contains(err.Error(), "which stays") {
		t.Errorf("a sweep that could not save the work: %v", err)
	}
	if _, err := os.Lstat(w.Dir); err != nil {
		t.Fatalf("the workspace was removed with its work: %v", err)
	}
	if err := other.salvageAndRemove(t.Context(), "lost"); err == nil {
		t.Error("a sweep that could not save the work reports no error")
	}
	if err := errors.Join(os.Remove(kept), os.Mkdir(kept, 0o700)); err != nil {
		t.Fatal(err)
	}
	now = now.Add(keepTries / 2)
	if err := other.salvageAndRemove(t.Context(), "dies"); err != nil {
		t.Fatal(err)
	}
	if work, err := other.Work("dies"); err != nil || work.Files != 1 {
		t.Errorf("the work that the second try saved: %+v, %v", work, err)
	}

	if err := other.Forget("dies"); err != nil {
		t.Fatal(err)
	}
	obstruct()
	now = now.Add(keepTries / 2)
	if err := other.salvageAndRemove(t.Context(), "lost"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(lost.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an hour after the first try the workspace is still there: %v", err)
	}
}

// Rule: Garbage lists the workspace of a dead process. Before Sweep removes the workspace, it saves
// the unfinished work. Work then returns that work, and Forget deletes it.
func TestWorkOfDeadProcessIsKept(t *testing.T) {
	m, source := open(t), repo(t)
	w, err := m.Prepare(t.Context(), Spec{ID: "dies", Repo: source})
	if err != nil {
		t.Fatal(err)
	}
	sh(t, w.Dir, "echo three >>a.txt; git commit -qam third; echo new >new.txt")
	idle, err := m.Prepare(t.Context(), Spec{ID: "idle", Repo: source})
	if err != nil {
		t.Fatal(err)
	}
	lives := prepare(t, m, Spec{ID: "lives", Repo: source})
	die(t, w)
	die(t, idle)

	other := reopen(t, m)
	var seen []string
	all, err := other.Garbage(func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range all {
		seen = append(seen, g.Kind+" "+g.ID+": "+g.Why)
	}
	want := []string{
		"workspace dies: the process that owned it is gone", "workspace idle: the process that owned it is gone",
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("garbage (-want +got):\n%s", diff)
	}
	if _, err := other.Adopt("lives"); belay.CodeOf(err) != belay.CodeConflict {
		t.Errorf("adopt a workspace in use: %v", err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := other.salvageAndRemove(stopped, "dies"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(w.Dir); err != nil {
		t.Errorf("a sweep that was stopped removed a workspace whose work it had not kept: %v", err)
	}
	if err := other.Sweep(t.Context(), func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(lives.Dir); err != nil {
		t.Error(err)
	}
	list, err := other.List(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != "lives" || !list[0].InUse || list[0].Repo != source {
		t.Errorf("left: %+v, %v", list, err)
	}
	kept, err := other.Kept()
	if err != nil || len(kept) != 1 || kept[0].ID != "dies" || kept[0].Commits != 1 || len(kept[0].Bundle) != 0 {
		t.Fatalf("kept: %+v, %v", kept, err)
	}
	work, err := other.Work("dies")
	if err != nil || len(work.Bundle) == 0 || len(work.Patch) == 0 {
		t.Fatalf("%+v, %v", work, err)
	}
	next := prepare(t, other, Spec{ID: "next", Repo: work.Repo, Commit: work.Commit})
	if err := other.Restore(t.Context(), next, work.Salvage); err != nil {
		t.Fatal(err)
	}
	if got := run(t, next.Dir, "log", "-1", "--format=%s"); got != "third" {
		t.Errorf("restored to %q", got)
	}
	other.Now = func() time.Time { return time.Now().Add(8 * 24 * time.Hour) }
	if all, err := other.Garbage(func(string) bool {
		return true
	}); err != nil || len(all) != 1 || all[0].Kind != kindKept || all[0].Why != "it was kept for 8 days" {
		t.Errorf("after a week: %+v, %v", all, err)
	}
	if err := other.Forget("dies"); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Work("dies"); belay.CodeOf(err) != belay.CodeNotFound {
		t.Errorf("forgotten: %v", err)
	}
}

// die makes a workspace look dead: its recorded owner becomes a process that does not exist.
func die(t *testing.T, w *Workspace) {
	t.Helper()
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	delete(w.m.live, filepath.Base(w.root))
	_ = w.lock.Close()
	file := filepath.Join(w.root, "owner.json")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o := strings.Replace(string(raw), fmt.Sprintf(`"pid": %d`, os.Getpid()), `"pid": 999999`, 1)
	if o == string(raw) {
		t.Fatalf("no pid in %s", raw)
	}
	write(t, file, o)
}

// reopen returns another Manager on the same directory.
func reopen(t *testing.T, m *Manager) *Manager {
	t.Helper()
	other, err := Open(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	return other
}

// Rule: Bases lists the bases (cached clones), and Sweep removes bases that were unused for
// KeepBases.
func TestBasesAreListedAndSwept(t *testing.T) {
	m, source := open(t), repo(t)
	prepare(t, m, Spec{ID: "one", Repo: source})
	bases, err := m.Bases()
	if err != nil || len(bases) != 1 {
		t.Fatalf("%+v, %v", bases, err)
	}
	b := bases[0]
	if b.Repo != source || b.Branch != "main" || b.InUse || b.Bytes == 0 || time.Since(b.Used) > time.Minute {
		t.Errorf("%+v", b)
	}
	m.Now = func() time.Time { return time.Now().Add(40 * 24 * time.Hour) }
	if err := m.Sweep(t.Context(), func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(b.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after 40 days: %v", err)
	}
	prepare(t, m, Spec{ID: "two", Repo: source}) // Prepare makes the base again
}

// Rule: Watch returns an error within seconds after a workspace exceeds its quota, and the error
// names the limit. Other workspaces are not affected.
func TestQuota(t *testing.T) {
	for name, tt := range map[string]struct {
		quota  Quota
		script string
		want   string
	}{
		"bytes": {Quota{Bytes: 20 << 20}, "dd if=/dev/zero of=../tmp/big bs=1M count=30 2>/dev/null",
			"more than its quota of 20.0 MiB"},
		"files": {
			Quota{Files: 500}, "mkdir many; for i in $(seq 600); do : >many/$i; done",
			"more than its quota of 500 files",
		},
		"reserve": {Quota{Reserve: 1 << 60}, "dd if=/dev/zero of=big bs=1M count=30 2>/dev/null",
			"the workspace is the largest"},
		"within": {Quota{Bytes: 200 << 20, Files: 10_000}, "dd if=/dev/zero of=big bs=1M count=30 2>/dev/null", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := open(t)
			m.Quota = tt.quota
			w := prepare(t, m, Spec{Repo: repo(t)})
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			told := make(chan error, 1)
			go func() { told <- w.Watch(ctx) }()
			sh(t, w.Dir, tt.script)
			if tt.want == "" {
				if u, err := w.Usage(ctx); err != nil || u.Bytes < 30<<20 {
					t.Errorf("%+v, %v", u, err)
				}
				cancel()
			}
			err := <-told
			var over *QuotaError
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("%v", err)
			case tt.want != "" && (!errors.As(err, &over) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("Watch returned %v; want %q", err, tt.want)
			}
		})
	}
}

// Rule: the bytes of a file with a hundred hard links count once, and the bytes of objects shared
// with the base (the cached clone) do not count.
func TestQuotaCountsHardLinksOnce(t *testing.T) {
	m := open(t)
	w := prepare(t, m, Spec{Repo: repo(t)})
	before, err := w.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sh(t, w.Dir, "dd if=/dev/zero of=f bs=1M count=8 2>/dev/null; for i in $(seq 99); do ln f f$i; done")
	after, err := w.Usage(t.Context())
	if grew := after.Bytes - before.Bytes; err != nil || grew < 7<<20 || grew > 9<<20 ||
		after.Files-before.Files != 100 {
		t.Errorf("%+v, then %+v, %v", before, after, err)
	}
}

// Rule: Prepare locks the base (the cached clone) only while it copies objects, and not while it
// fetches or writes the checkout.
func TestBaseIsLockedForCopyingOnly(t *testing.T) {
	m, source := open(t), repo(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			w, err := m.Prepare(t.Context(), Spec{ID: fmt.Sprintf("run-%d", i), Repo: source})
			if err != nil {
				t.Error(err)
				return
			}
			if err := w.Remove(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	l := m.Locks()
	if l.Count < 8 || l.Held99 == 0 || l.Held99 > l.HeldMost || l.Held50 > l.Held99 {
		t.Errorf("%+v", l)
	}
	// If the base (the cached clone) already has the commit, Prepare does not wait while another
	// process fetches.
	commit := run(t, source, "rev-parse", "HEAD")
	s, err := parseSource(source)
	if err != nil {
		t.Fatal(err)
	}
	fetching, err := m.lockBase(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer fetching.unlock()
	prepare(t, m, Spec{ID: "beside", Repo: source, Commit: commit})
}

// Rule: Prepare decrypts a repository that is encrypted with git-crypt, with a key from a file. The
// encrypted files are also encrypted in the bundle and the patch, and Restore restores them.
func TestGitCrypt(t *testing.T) {
	if out, err := exec.Command("../../../scripts/need.sh", "git-crypt").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m, source := open(t), repo(t)
	m.CryptKey = filepath.Join(t.TempDir(), "key")
	sh(t, source, `git-crypt init && git-crypt export-key `+m.CryptKey+`
echo 'secret* filter=git-crypt diff=git-crypt' >.gitattributes; echo sesame >secret.txt; git add -A; git commit -qm secret
git cat-file blob HEAD:secret.txt | grep -q sesame && exit 1; true`)
	w := prepare(t, m, Spec{ID: "one", Repo: source})
	if raw, err := os.ReadFile(filepath.Join(w.Dir, "secret.txt")); err != nil || string(raw) != "sesame\n" {
		t.Fatalf("unlocked to %q, %v", raw, err)
	}
	if s, err := m.Salvage(t.Context(), w); err != nil || !s.Empty() {
		t.Errorf("with nothing changed: %+v, %v", s, err)
	}
	sh(t, w.Dir, "echo tahini >secret2.txt; git add -A; git commit -qm second; echo halva >>secret.txt; echo "+
		"plain >plain.txt")
	s, err := m.Salvage(t.Context(), w)
	if err != nil || s.Lost != "" || s.Commits != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	for _, kept := range [][]byte{s.Bundle, s.Patch} {
		for _, word := range []string{"sesame", "tahini", "halva"} {
			if strings.Contains(string(kept), word) {
				t.Errorf("%q is kept in the clear", word)
			}
		}
	}
	again := prepare(t, m, Spec{ID: "two", Repo: source, Commit: w.Commit})
	if err := m.Restore(t.Context(), again, s); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, name := range []string{"secret.txt", "secret2.txt", "plain.txt"} {
		raw, _ := os.ReadFile(filepath.Join(again.Dir, name))
		got[name] = string(raw)
	}
	want := map[string]string{"secret.txt": "sesame\nhalva\n", "secret2.txt": "tahini\n", "plain.txt": "plain\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
	m.CryptKey = "/nonexistent"
	if _, err := m.Prepare(t.Context(), Spec{ID: "three", Repo: source}); err == nil ||
		!strings.Contains(err.Error(), "git-crypt") {
		t.Errorf("without the key: %v", err)
	}
}

// allowedOnly returns s with an Allow function that accepts only the repository of s.
func allowedOnly(s Spec) Spec {
	s.Allow = func(repo string) error {
		if repo != s.Repo {
			return &belay.Error{Code: belay.CodeForbidden, Message: repo + " is another repository"}
		}
		return nil
	}
	return s
}

// Rule: Sweep saves the work of a dead run as the run's user, and reserves that user until the work
// is saved. If another run uses that user, Sweep does not change the workspace.
func TestUserOfDeadRunIsReservedDuringSalvage(t *testing.T) {
	m := open(t)
	giveUsers(t, m)
	w, err := m.Prepare(t.Context(), Spec{ID: "dies", Repo: repo(t)})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(w.Dir, "new.txt"), "new")
	if err := os.Chown(filepath.Join(w.Dir, "new.txt"), int(w.User.UID), int(w.User.GID)); err != nil {
		t.Fatal(err)
	}
	die(t, w)
	other := reopen(t, m)
	var busy error = &belay.Error{Code: belay.CodeConflict, Message: "busy"}
	var taken, freed int
	other.Retake = func(_ context.Context, u host.User, id string) (func(context.Context) error, error) {
		if u.UID != w.User.UID || id != "dies" {
			t.Errorf("user %d was reserved for %s", u.UID, id)
		}
		if busy != nil {
			return nil, busy
		}
		taken++
		return func(context.Context) error { freed++; return nil }, nil
	}
	all := func(string) bool { return true }
	if err := other.Sweep(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(w.Dir); err != nil {
		t.Errorf("while another run has its user: %v", err)
	}
	busy = nil
	if err := other.Sweep(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if work, err := other.Work("dies"); err != nil || work.Files != 1 || taken != 1 || freed != 1 {
		t.Errorf("%+v, %v; taken %d times, freed %d times", work, err, taken, freed)
	}
	if left := jobs(t, other); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
