//go:build linux

package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/testkit/gitwatch"
)

// runAs runs a shell script with the rights of a user, with the machine's git.
func runAs(t *testing.T, uid uint32, dir, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	for _, v := range environ() {
		if !strings.HasPrefix(v, "PATH=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "PATH=/usr/local/bin:/usr/bin:/bin")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// Rule: git never runs with more rights than the owner of the files that it reads or writes. The
// test makes a workspace from another user's repository, salvages it, makes its owner process die,
// sweeps it, restores it, checks it out for a person, and removes it. In all these steps git runs
// as root only on files that root alone owns. git reads the source as the source's owner, the base
// (the cached clone) as the user who fetches (the keeper), and the workspace as the workspace's
// user.
func TestGitRunsAsTheOwnerOfItsFiles(t *testing.T) {
	asRoot(t)
	src, root := repo(t), repo(t)
	for path := src; path != filepath.Dir(path) && path != "/tmp"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	chownAll(t, src, stranger)
	dir, seen := gitwatch.Watch(t)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	m := open(t)
	giveUsers(t, m)

	w, err := m.Prepare(t.Context(), allowedOnly(Spec{ID: "first", Repo: src}))
	if err != nil {
		t.Fatal(err)
	}
	user := w.User.UID
	runAs(t, user, w.Dir, `echo three >>a.txt; git commit -qam third; echo new >new.txt; git stash -qu; echo more >>a.txt; git tag here`)
	if s := salvageOf(t, m, w); s.Commits != 1 || s.Lost != "" {
		t.Errorf("saved %d commits, lost %q", s.Commits, s.Lost)
	}
	die(t, w)
	other := reopen(t, m)
	giveUsers(t, other)
	if err := other.Sweep(t.Context(), func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	work, err := other.Work("first")
	if err != nil || work.Commits != 1 || work.Lost != "" {
		t.Fatalf("kept %+v, %v", work, err)
	}
	runAs(t, stranger, src, "git commit -q --allow-empty -m later")
	next := prepare(t, other, allowedOnly(Spec{ID: "next", Repo: src, Commit: work.Commit}))
	if err := other.Restore(t.Context(), next, work.Salvage); err != nil {
		t.Fatal(err)
	}
	prepare(t, other, allowedOnly(Spec{ID: "newest", Repo: src}))
	prepare(t, other, Spec{ID: "of-root", Repo: root})

	person := reopen(t, m) // a Manager without a keeper (a helper that fetches)
	if _, err := person.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := person.CheckOut(t.Context(), Spec{Repo: src, Commit: work.Commit}, filepath.Join(t.TempDir(), "again"),
		work.Salvage); err != nil {
		t.Fatal(err)
	}
	person.Now = func() time.Time { return time.Now().Add(100 * 24 * time.Hour) }
	if err := person.Sweep(t.Context(), func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	gitwatch.RootAlone(t, seen())
	did := gitwatch.By(seen())
	for verb, want := range map[string][]int{"upload-pack": {stranger, keeperUser}, "fetch": {keeperUser},
		"ls-remote": {keeperUser}, "status": {stranger, keeperUser}} {
		for _, uid := range did[verb] {
			if !slices.Contains(want, uid) {
				t.Errorf("git %s was run by user %d", verb, uid)
			}
		}
		if len(did[verb]) == 0 {
			t.Errorf("no git %s was seen: %v", verb, did)
		}
	}
	for _, verb := range []string{"reset", "bundle"} {
		if !slices.Contains(did[verb], int(user)) {
			t.Errorf("no git %s of user %d was seen: %v", verb, user, did)
		}
	}
}
