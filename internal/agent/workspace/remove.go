package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay/internal/host"
)

// Remove takes the workspace away with all that is in it, and nothing that it
// only points at. It may be repeated.
func (w *Workspace) Remove(ctx context.Context) error {
	w.m.mu.Lock()
	lock := w.lock
	w.m.mu.Unlock()
	if lock == nil {
		return nil
	}
	if err := w.release(ctx); err != nil {
		return err
	}
	err := w.m.discard(w.root)
	for wait := 10 * time.Millisecond; err != nil && wait < time.Second; wait *= 2 {
		select { // a process that is just ending may still be writing
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
		err = w.m.discard(w.root)
	}
	if err != nil {
		return err
	}
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	if w.lock != nil {
		_ = w.lock.Close()
		w.lock = nil
		delete(w.m.live, filepath.Base(w.root))
	}
	return nil
}

// discard removes a workspace: first from sight, so that no half of it is taken
// for a whole.
func (m *Manager) discard(root string) error {
	gone, err := os.MkdirTemp(filepath.Join(m.dir, "jobs"), ".gone-")
	if err != nil {
		return fmt.Errorf("remove workspace: %w", err)
	}
	openUp(root)
	if err := os.Rename(root, filepath.Join(gone, "it")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("remove workspace: %w", err), os.Remove(gone))
	}
	if err := removeTree(gone); err != nil {
		return fmt.Errorf("remove workspace: %w", err)
	}
	return nil
}

// removeTree removes path and everything below it. Symbolic links are removed,
// never followed; directories that may not be written are opened up first.
func removeTree(path string) error {
	if err := os.RemoveAll(path); err == nil {
		return nil
	}
	_ = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && err == nil {
			openUp(name)
		}
		return nil // what stays in the way shows below
	})
	return os.RemoveAll(path)
}

// openUp lets its owner into a directory, and only into a directory.
func openUp(name string) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Fchmod(fd, 0o700)
		_ = unix.Close(fd)
		return
	}
	if info, err := os.Lstat(name); err == nil && info.IsDir() {
		_ = os.Chmod(name, 0o700) //nolint:gosec // to be entered and emptied
	}
}

// ours tells whether a file belongs to the user we are.
func ours(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// abandoned tells whether the owner of a workspace is proven dead: by its
// identity; or, where that says nothing, as after a restart of the machine or of
// a container, because the kernel has let go of its lock.
func (m *Manager) abandoned(root string) bool {
	if o, err := readOwner(root); err == nil {
		switch o.Process.State(m.self) {
		case host.Dead:
			return true
		case host.Alive:
			return false
		case host.Unknown:
		}
	}
	return unlocked(root)
}

// unlocked tells whether nobody holds the lock on a directory.
func unlocked(dir string) bool {
	lock, err := tryLock(dir)
	if err != nil {
		return false
	}
	return lock.Close() == nil
}
