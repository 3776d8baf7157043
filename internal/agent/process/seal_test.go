//go:build linux

package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// passable gives every user the right to pass through the directories on the path to dir.
func passable(t *testing.T, dir string) {
	t.Helper()
	for ; dir != "/"; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err == nil && info.Mode().Perm()&0o055 != 0o055 {
			err = os.Chmod(dir, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// fill makes files; the content of each file is its own name.
func fill(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(filepath.Base(path)+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// holds fails the test if a file does not have the content want.
func holds(t *testing.T, path, want string) {
	t.Helper()
	if raw, err := os.ReadFile(path); err != nil || string(raw) != want {
		t.Errorf("%s contains %q, %v; want %q", path, raw, err, want)
	}
}

// sealed returns a run that may write only in its own directory. world is a directory with other
// files, in which the run's user could write if the run were not sealed.
func sealed(t *testing.T, kind Isolation) (c Command, world string) {
	t.Helper()
	c, _ = shell(t, kind, "")
	world = t.TempDir()
	own := filepath.Join(t.TempDir(), "own")
	fill(t, filepath.Join(world, "file"), filepath.Join(own, "tmp/file"), filepath.Join(own, "a/file"),
		filepath.Join(own, "b/file"))
	c.Dir, c.Writable, c.Tmp = own, []string{own}, filepath.Join(own, "tmp")
	c.Insist = []Wall{WallSeal}
	return c, world
}

// Rule: a sealed run can write in its own directories and nowhere else, whatever its user is and
// whether mounts or Landlock seal the file system.
func TestWallSeal(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		for _, without := range []string{"", byLandlock} {
			if without != "" && kind == Subreaper {
				continue
			}
			c, world := sealed(t, kind)
			c.without = []string{without}
			file := filepath.Join(world, "file")
			repelled(t, c, "write "+file, "write "+file+".new", "cut "+file, "remove "+file, "mkdir "+world+"/new",
				"rename "+file+" "+c.Dir+"/stolen", "link "+file+" "+c.Dir+"/linked", "rename a/file "+world+"/put",
				"write /etc/belay-canary", "write "+filepath.Dir(filepath.Dir(world))+"/belay-canary",
				"mkdir /dev/belay-canary",
				"write /sys/fs/cgroup/freezer/cgroup.procs", "write /sys/fs/cgroup/unified/cgroup.procs",
				"write /sys/fs/cgroup/cgroup.procs",
				"device disk", "remount /", "setattr /", "remount "+c.Dir, "unmount /proc", "attach 1")
			holds(t, file, "file\n")
			r := permitted(t, c, "write new", "rename a/file b/moved", "link b/moved a/linked", "mkdir c",
				"remove b/file", "cut b/moved",
				"write /dev/null", "write "+c.Tmp+"/x", "read /etc/passwd", "read "+file, "write /proc/self/fd/2")
			if !r.Sealed || strings.Contains(r.Walls.Seal, byLandlock) == (without != "") ||
				strings.Contains(r.Walls.Seal, byMounts) != (kind != Subreaper) {
				t.Errorf("sealed by %q", r.Walls.Seal)
			}
		}
	})
}

// Rule: in a mount namespace a run has its own /tmp, /var/tmp and /dev/shm.
func TestWallTmp(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		if kind == Subreaper {
			t.Skip("without a mount namespace there is one /tmp for all")
		}
		home, err := os.MkdirTemp("/var", "belay-process-")
		if err != nil {
			t.Skip("this user has no directory outside of /tmp")
		}
		t.Cleanup(func() { _ = os.RemoveAll(home) })
		c, _ := sealed(t, kind)
		c.Dir, c.Tmp, c.Writable = home, filepath.Join(home, "tmp"), []string{home}
		if err := os.Mkdir(c.Tmp, 0o700); err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(home)
		permitted(t, c, "write /tmp/"+name, "write /dev/shm/"+name+".shm")
		holds(t, filepath.Join(c.Tmp, name), "attacked")
		holds(t, filepath.Join(c.Tmp, name+".shm"), "attacked")
		for _, dir := range shared {
			if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				t.Errorf("it wrote to the machine's %s", dir)
			}
		}
	})
}

// Rule: although the run is sealed, its supervisor can write the cgroup files: it can freeze the
// run, and it removes the cgroup at the end.
func TestWallSealKeepsTheFreezer(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, _ := sealed(t, kind)
		c.Args = []string{"/bin/sh", "-c", "while :; do echo x >> count; done"}
		c.Limits, c.Grace = Limits{Memory: 256 << 20, Pids: 100}, -1
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
	})
}

// Rule: if a writable directory does not exist, Start returns an error and does not try a weaker
// seal.
func TestWallSealOfAMissingDirectory(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, _ := sealed(t, kind)
		c.Args, c.Writable = []string{"true"}, append(c.Writable, filepath.Join(c.Dir, "absent"))
		c.Isolation, c.Insist = kind, nil
		if r, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "absent") {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
