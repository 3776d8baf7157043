package workspace

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Rule: Remove deletes everything in a workspace, whatever the permissions, and does not touch the
// targets of symbolic links.
func TestRemove(t *testing.T) {
	src, m := repo(t), open(t)
	outside := filepath.Join(t.TempDir(), "outside")
	write(t, filepath.Join(outside, "keep"), "keep")
	if err := os.Chmod(outside, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(outside, 0o755) })
	w, err := m.Prepare(t.Context(), Spec{ID: "run_1", Repo: src})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(w.Dir, "ro", "deep", "er", "file"), "x")
	write(t, filepath.Join(w.Home, "go", "pkg", "mod", "file"), "x")
	_ = os.Symlink(outside, filepath.Join(w.Dir, "ro", "deep", "link"))
	_ = os.Symlink(outside, filepath.Join(w.Dir, "link"))
	_ = os.Symlink("..", filepath.Join(w.Tmp, "up"))
	_ = syscall.Mkfifo(filepath.Join(w.Dir, "pipe"), 0)
	for _, dir := range []string{
		filepath.Join(w.Dir, "ro", "deep", "er"), filepath.Join(w.Dir, "ro", "deep"), filepath.Join(w.Dir, "ro"),
		filepath.Join(w.Home, "go", "pkg", "mod"), w.Dir, filepath.Dir(w.Dir),
	} {
		if err := os.Chmod(dir, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Remove(t.Context()); err != nil {
		t.Errorf("again: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(m.dir, "jobs")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("outside: %v, %v", info.Mode(), err)
	}
	if diff := cmp.Diff(map[string]string{"keep": "keep"}, contents(t, outside)); diff != "" {
		t.Errorf("outside (-want +got):\n%s", diff)
	}
}

const holder = "BELAY_TEST_HOLD_WORKSPACE"

// hold is the main function of a second process. The process makes a workspace and owns it until
// its standard input ends.
func hold() {
	m, err := Open(os.Getenv(holder))
	if err == nil {
		id := fmt.Sprintf("run_of_%d", os.Getpid())
		_, err = m.claim(context.Background(), Spec{ID: id}, id, source{})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString(0)
	os.Exit(0)
}

// startOther starts a second process that owns a workspace. kill kills that process.
func startOther(t *testing.T, m *Manager) (id string, kill func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), holder+"="+m.dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := false
	kill = func() {
		if !done {
			done = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			_ = in.Close()
		}
	}
	t.Cleanup(kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	return fmt.Sprintf("run_of_%d", cmd.Process.Pid), kill
}

func jobs(t *testing.T, m *Manager) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(m.dir, "jobs"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}

func sweep(t *testing.T, m *Manager, alive ...string) {
	t.Helper()
	if err := m.Sweep(t.Context(), func(id string) bool { return slices.Contains(alive, id) }); err != nil {
		t.Fatal(err)
	}
}

// Rule: Sweep never removes a workspace of another living process, whatever the function alive
// returns. It removes workspaces of dead processes, and workspaces of this process for which alive
// returns false.
func TestSweep(t *testing.T) {
	m := open(t)
	living, killLiving := startOther(t, m)
	dead, kill := startOther(t, m)
	kill()
	mine := prepare(t, m, Spec{ID: "run_mine"})
	over := prepare(t, m, Spec{ID: "run_over"})
	sweep(t, m, mine.ID, dead)
	if diff := cmp.Diff([]string{"run_mine", living}, jobs(t, m)); diff != "" {
		t.Errorf("after the first (-want +got):\n%s", diff)
	}
	if err := over.Remove(t.Context()); err != nil {
		t.Errorf("remove a swept workspace: %v", err)
	}
	sweep(t, m)
	if diff := cmp.Diff([]string{living}, jobs(t, m)); diff != "" {
		t.Errorf("after the second (-want +got):\n%s", diff)
	}
	killLiving()
	sweep(t, m)
	if left := jobs(t, m); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Rule: if the process identity of an owner proves nothing (another boot, another container, or a
// file that the command removed), Sweep removes a workspace only if the owner's lock is free.
func TestSweepWithoutIdentity(t *testing.T) {
	for name, forge := range map[string]func(t *testing.T, root string){
		"another boot": func(t *testing.T, root string) {
			file := filepath.Join(root, "owner.json")
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var o owner
			if err := json.Unmarshal(raw, &o); err != nil {
				t.Fatal(err)
			}
			o.Process.BootID = "another"
			raw, _ = json.Marshal(o)
			write(t, file, string(raw))
		},
		"no file":  func(t *testing.T, root string) { remove(t, filepath.Join(root, "owner.json")) },
		"nonsense": func(t *testing.T, root string) { write(t, filepath.Join(root, "owner.json"), "{") },
	} {
		t.Run(name, func(t *testing.T) {
			m := open(t)
			id, kill := startOther(t, m)
			forge(t, filepath.Join(m.dir, "jobs", id))
			sweep(t, m)
			if diff := cmp.Diff([]string{id}, jobs(t, m)); diff != "" {
				t.Errorf("while it lives (-want +got):\n%s", diff)
			}
			kill()
			sweep(t, m)
			if left := jobs(t, m); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// Rule: Sweep removes directories that a dead process had made or removed only in part. It keeps a
// base (a cached clone) that another process is making.
func TestSweepRemovesUnfinishedDirectories(t *testing.T) {
	src, m := repo(t), open(t)
	prepare(t, m, Spec{ID: "run_1", Repo: src})
	s, err := parseSource(src)
	if err != nil {
		t.Fatal(err)
	}
	base := filepath.Join("base", s.key())
	for _, path := range []string{"jobs/.new-1/checkout/x", "jobs/.gone-1/it/x", "scratch/git-1/HEAD",
		base + ".new-1/HEAD", base + ".old-1/HEAD"} {
		write(t, filepath.Join(m.dir, path), "")
	}
	_, lock, err := m.lockedDir("scratch", "git-")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	being, err := m.lockBase(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	left := func() string {
		t.Helper()
		out, err := exec.Command("sh", "-c",
			"cd "+m.dir+" && ls -d jobs/.* scratch/* base/*.new-* base/*.old-* 2>/dev/null | grep -v '/[.]*$' | "+
				"wc -l").Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	sweep(t, m, "run_1")
	if got := left(); got != "3" { // two locked bases, and the scratch directory in use
		t.Errorf("%s left while they are made, want 3", got)
	}
	being.unlock()
	sweep(t, m, "run_1")
	if got := left(); got != "1" {
		t.Errorf("%s left, want 1", got)
	}
	run(t, prepare(t, m, Spec{ID: "run_2", Repo: src}).Dir, "fsck", "--strict")
}
