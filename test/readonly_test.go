package test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// freeze remounts a file system as read-only.
func freeze(t *testing.T, dir string) {
	t.Helper()
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatalf("remount read-only: %v", err)
	}
}

// Rule: commands that only read work on a read-only data directory: they list, show, check and back
// up. If a command would write, Belay refuses it with one line of text, and with an exit code that
// differs from that of a bug.
func TestAReadOnlyDataDirectory(t *testing.T) {
	t.Parallel()
	needsMount(t)
	p := newPlace(t)
	disk := p.mount("disk", "size=16m")
	p.data = filepath.Join(disk, "data")
	p.run("--repo", "none", "--key", "k", "--", "echo", "hello").want(0)
	freeze(t, disk)
	p.belay("ls").want(0).showing("succeeded")
	p.belay("get", "k").want(0).showing("succeeded")
	p.belay("explain", "k").want(0).showing("succeeded")
	p.belay("logs", "k").want(0).showing("hello")
	p.sound()
	copied := p.path("copy.db")
	p.belay("backup", copied).want(0)
	p.belay("restore", "--verify", copied).want(0)
	for _, args := range [][]string{{"run", "--repo", "none", "--", "true"}, {"retry", "k"}, {"restore", "--epoch"}} {
		r := p.belay(args...)
		if !slices.Contains([]int{codeCannot, 77, 69}, r.code) {
			t.Errorf("exit code %d, want 73, 77 or 69\n%s", r.code, r)
		}
		one(t, r, "read")
	}
}

// Rule: belay reads a read-only data directory that a crash has left, if that is possible; if not,
// one line says what to do.
func TestAReadOnlyDataDirectoryAfterACrash(t *testing.T) {
	t.Parallel()
	needsMount(t)
	for _, files := range []string{"all", "no shared memory"} {
		p := newPlace(t)
		disk := p.mount("disk", "size=16m")
		p.data = filepath.Join(disk, "data")
		server, a := p.serve()
		a.want(201, "POST", "/v1/executions", `{"workflow": "w"}`)
		server.signal(syscall.SIGKILL)
		server.wait(patience)
		if files != "all" {
			if err := os.Remove(filepath.Join(p.data, "belay.db-shm")); err != nil {
				t.Fatal(err)
			}
		}
		freeze(t, disk)
		for _, args := range [][]string{{"ls"}, {"backup", p.path("copy.db")}} {
			r := p.belay(args...)
			switch {
			case r.code == 0 && args[0] == "ls" && !strings.Contains(r.out, "pending"):
				t.Errorf("%s: the acknowledged execution is not listed\n%s", files, r)
			case r.code != 0:
				r.want(69)
				one(t, r, "copy the whole folder")
			}
		}
	}
}
