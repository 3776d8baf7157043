//go:build linux

package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// nested makes the given number of nested directories, so many that no path can name the deepest,
// and moves a file into the deepest directory.
func nested(t *testing.T, dir string, levels int, file string) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("d", 200)
	for range levels {
		if err := unix.Mkdirat(at, name, 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(at)
		at = next
	}
	if err := unix.Renameat(unix.AT_FDCWD, file, at, "file"); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(at)
}

// Rule: files in directories that are nested deeper than any path can name also count towards the
// quota and in Usage, and Remove removes them.
func TestDeepDirectories(t *testing.T) {
	m := open(t)
	w := prepare(t, m, Spec{ID: "deep"})
	before, err := w.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(w.Dir, "a"), strings.Repeat("x", 10<<20))
	nested(t, w.Dir, 3000, filepath.Join(w.Dir, "a"))
	for _, name := range []string{"beside", "z/below"} {
		write(t, filepath.Join(w.Dir, name), strings.Repeat("x", 10<<20))
	}
	u, err := w.Usage(t.Context())
	if got := u.Files - before.Files; err != nil || got != 3000+4 || u.Bytes < 30<<20 {
		t.Errorf("%d files, %d bytes, %v", got, u.Bytes, err)
	}
	m.Quota = Quota{Bytes: 25 << 20}
	var over *QuotaError
	if err := w.Watch(t.Context()); !errors.As(err, &over) {
		t.Errorf("Watch returned %v", err)
	}
	if err := w.Remove(context.Background()); err != nil {
		t.Fatal(err)
	}
	if left := jobs(t, m); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Rule: Usage and Remove touch only files in the workspace, even if a process at the same time
// replaces directories of the workspace by symbolic links to directories outside.
func TestSwappedDirectories(t *testing.T) {
	m := open(t)
	outside := t.TempDir()
	for _, name := range []string{"a", "b", "c/d"} {
		write(t, filepath.Join(outside, name), strings.Repeat("x", 1<<20))
	}
	w := prepare(t, m, Spec{ID: "swapped"})
	dir, link := filepath.Join(w.Dir, "dir"), filepath.Join(w.Dir, "link")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Symlink(outside, link)); err != nil {
		t.Fatal(err)
	}
	stop := swapper(t, dir, link)
	for range 50 {
		u, err := w.Usage(t.Context())
		if err != nil || u.Bytes > 1<<20 {
			t.Fatalf("%+v, %v", u, err)
		}
	}
	err := w.Remove(context.Background()) // the process still replaces the directory by a link during this call
	stop()
	if err != nil && w.Remove(context.Background()) != nil {
		t.Error(err)
	}
	for _, name := range []string{"a", "b", "c/d"} {
		if info, err := os.Stat(filepath.Join(outside, name)); err != nil || info.Size() != 1<<20 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Rule: removeTree and emptyTree refuse an empty path, a relative path and the root directory, and
// then remove nothing.
func TestRemoveTreeNeedsAnAbsolutePath(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "in", "file"), "x")
	t.Chdir(filepath.Join(dir, "in"))
	for _, path := range []string{"", ".", "..", "file", "./file", "../in", "/", "//", "/.", "/.."} {
		for name, f := range map[string]func(string) error{"remove": removeTree, "empty": emptyTree} {
			if err := f(path); !errors.Is(err, errNoTree) {
				t.Errorf("%s %q: %v", name, path, err)
			}
		}
	}
	if _, err := os.Stat("file"); err != nil {
		t.Error(err)
	}
}
