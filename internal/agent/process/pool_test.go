//go:build linux

package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func users(t *testing.T) Range {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run commands as another user")
	}
	return Range{First: 1_800_000_000 + uint32(os.Getpid()%1000)*1000, Count: 3}
}

// Rule: no two runs have the same user at the same time, even if different processes take the
// users. Take does not give out a freed user while other users are free.
func TestEachRunHasItsOwnUser(t *testing.T) {
	dir := t.TempDir()
	a, err := OpenPool(dir, users(t))
	if err != nil {
		t.Fatal(err)
	}
	b, err := OpenPool(dir, users(t)) // a second Pool acts like another process
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[uint32]*Seat)
	for i, p := range []*Pool{a, b, a} {
		s, err := p.Take(t.Context(), "run-"+strconv.Itoa(i))
		if err != nil {
			t.Fatal(err)
		}
		if seen[s.User.UID] != nil {
			t.Errorf("user %d was given out twice", s.User.UID)
		}
		seen[s.User.UID] = s
	}
	if _, err := b.Take(t.Context(), "one-more"); !errors.Is(err, ErrNoUser) {
		t.Errorf("a fourth user of a pool of three: %v", err)
	}
	if list, err := a.List(); err != nil || len(list) != 3 || list[0].Left {
		t.Errorf("listed %v, %v", list, err)
	}
	for _, s := range seen {
		if err := errors.Join(s.Free(t.Context()), s.Free(t.Context())); err != nil {
			t.Error(err)
		}
	}
	if list, err := b.List(); err != nil || len(list) != 0 {
		t.Errorf("listed %v, %v", list, err)
	}
	first, err := a.Take(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Free(t.Context())
	second, err := a.Take(t.Context(), "y")
	if err != nil || second.User.UID == first.User.UID {
		t.Errorf("user %d again at once, %v", second.User.UID, err)
	}
	_ = second.Free(t.Context())
}

// sleeper starts a process with the given user, outside of any run.
func sleeper(t *testing.T, uid uint32) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sleep", unique())
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// Rule: if the process that reserved a user has died, the next Take kills the processes with that
// user and reserves the user again.
func TestPoolAfterACrash(t *testing.T) {
	dir, r := t.TempDir(), users(t)
	r.Count = 1
	p, err := OpenPool(dir, r)
	if err != nil {
		t.Fatal(err)
	}
	// This is the file of a user whose process was killed while it wrote the file.
	if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(int(r.First))), []byte(`{"run":"gone","pro`),
		0o600); err != nil {
		t.Fatal(err)
	}
	left := sleeper(t, r.First)
	s, err := p.Take(t.Context(), "next")
	if err != nil {
		t.Fatal(err)
	}
	if err := left.Wait(); err == nil {
		t.Error("a process of the last run is still there")
	}
	stays := sleeper(t, r.First)
	if err := p.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(processesOf(r.First)) == 0 {
		t.Error("a sweep killed a process of a run that has an owner")
	}
	if err := s.Free(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := stays.Wait(); err == nil {
		t.Error("the user was freed although one of its processes is left")
	}
}

// Rule: Take gives out the users of dead runs last, even after a sweep, because the work of these
// runs may still have to be saved by a process with the same user.
func TestUsersOfDeadRunsAreReusedLast(t *testing.T) {
	dir, r := t.TempDir(), users(t)
	p, err := OpenPool(dir, r)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Count - 1 {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(int(r.First+i))), []byte(`{"run":"gone"}`),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint32{r.First + r.Count - 1, r.First, r.First + 1} {
		s, err := p.Take(t.Context(), "run-"+strconv.Itoa(i))
		if err != nil || s.User.UID != want {
			t.Fatalf("user %d, want %d, %v", s.User.UID, want, err)
		}
	}
}

// Rule: if processes run with a user of the pool but the file of that user names no run, the
// processes may belong to another program. The pool then neither gives out the user nor kills the
// processes.
func TestPoolKillsNoUnknownProcesses(t *testing.T) {
	r := users(t)
	r.Count = 1
	p, err := OpenPool(t.TempDir(), r)
	if err != nil {
		t.Fatal(err)
	}
	stranger := sleeper(t, r.First)
	if s, err := p.Take(t.Context(), "run"); !errors.Is(err, ErrNoUser) ||
		!strings.Contains(err.Error(), "belay did not start") {
		t.Errorf("%v, %v", s, err)
	}
	if stranger.Process.Signal(syscall.Signal(0)) != nil || len(processesOf(r.First)) != 1 {
		t.Error("the unknown process was killed")
	}
}

// Rule: OpenPool refuses a range that contains users of other programs.
func TestPoolRefusesUsersOfOthers(t *testing.T) {
	users(t)
	for _, r := range []Range{{First: 0, Count: 10}, {First: 65000, Count: 1000}, {First: 5000},
		{First: 1<<31 - 5, Count: 100}} {
		if _, err := OpenPool(t.TempDir(), r); err == nil {
			t.Errorf("%v was accepted", r)
		}
	}
}

// enclosed returns a run with its own user. Its directory lies below a directory that only root may
// pass through.
func enclosed(t *testing.T, script string) (Command, *transcript) {
	t.Helper()
	user := tenant(t)
	c, out := shell(t, PIDNamespace, script)
	closed := filepath.Join(t.TempDir(), "closed")
	place := filepath.Join(closed, "place")
	for _, dir := range []string{closed, place, filepath.Join(place, "tmp")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(closed, "secret"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{place, filepath.Join(place, "tmp")} {
		if err := os.Chown(dir, int(user.UID), int(user.GID)); err != nil {
			t.Fatal(err)
		}
	}
	c.User, c.Dir, c.Writable, c.Tmp = user, place, []string{place}, filepath.Join(place, "tmp")
	return c, out
}

// Rule: a run with its own user can work in its own directories. It can neither read nor write
// other files whose modes exclude this user, and it cannot gain further rights.
func TestARunWithItsOwnUserSeesNothingElse(t *testing.T) {
	world := t.TempDir()
	for _, dir := range []string{world, filepath.Dir(world)} { // both temporary directories of the test
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	c, out := enclosed(t, `
echo mine > file && cat "$PWD/file"
echo "$(id -u) $(id -G)"
cat ../secret && echo SAW
ls -A .. | tr '\n' ' '; echo
for d in `+world+` /tmp /var/tmp /dev/shm /etc /run; do echo x > $d/belay-canary && echo "WROTE $d"; done
echo x > /dev/null && echo null
grep -E 'NoNewPrivs|CapEff|CapPrm|CapBnd' /proc/self/status
echo 0 > /sys/fs/cgroup/freezer/cgroup.procs && echo ESCAPED
mount -t tmpfs x /mnt && echo MOUNTED
true`)
	r, err := Run(t.Context(), c)
	text := out.String()
	if err != nil || r.Code != 0 || !r.Sealed {
		t.Fatalf("%+v, %v\n%s", r, err, text)
	}
	uid := strconv.Itoa(int(c.User.UID))
	for _, want := range []string{"mine\n", uid + " " + uid + "\n", "null\n", "NoNewPrivs:\t1",
		"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "place "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	for _, bad := range []string{"SAW", "WROTE " + world, "WROTE /tmp", "WROTE /etc", "WROTE /run", "ESCAPED",
		"MOUNTED"} {
		if strings.Contains(text, bad) {
			t.Errorf("%s:\n%s", bad, text)
		}
	}
	for _, dir := range append(shared, world) {
		if _, err := os.Lstat(filepath.Join(dir, "belay-canary")); err == nil {
			t.Errorf("it wrote to %s", dir)
		}
	}
	if raw, err := os.ReadFile(filepath.Join(c.Dir, "file")); err != nil || string(raw) != "mine\n" {
		t.Errorf("its own file: %q, %v", raw, err)
	}
	// Freezing still works, because the supervisor can still write the cgroup files.
	c.ID += "-2"
	c.Args[2] = "while :; do echo x >> count; done"
	tree := begin(t, t.Context(), c)
	until(t, "it counts", func() bool { return size(filepath.Join(c.Dir, "count")) > 0 })
	if err := tree.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustStay(t, "a frozen count", func() int64 { return size(filepath.Join(c.Dir, "count")) })
	tree.Kill(nil)
	_, _ = wait(t, tree)
	if groups := groupsHere(func(id string) bool { return id == c.ID }); len(groups) > 0 {
		t.Errorf("groups are left: %v", groups)
	}
}

// Rule: if the user may not pass through a directory on the path to the working directory, and this
// package cannot open that path, Start returns an error that names the directory.
func TestWorkingDirectoryThatTheUserCannotReach(t *testing.T) {
	c, _ := enclosed(t, "true")
	c.Isolation = Subreaper
	var failed *StartError
	_, err := Run(context.Background(), c)
	if !errors.As(err, &failed) || !strings.Contains(failed.Reason, "is closed to it") {
		t.Errorf("%v", err)
	}
}
