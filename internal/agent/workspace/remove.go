package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/belaydev/belay/internal/host"
)

// Remove deletes the workspace and everything in it. It does not follow symbolic links. A second
// call does nothing.
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
	if err := w.m.discard(w.root); err != nil {
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

// discard deletes a workspace. It first renames the directory, so that no process uses a
// half-deleted workspace as a complete workspace.
func (m *Manager) discard(root string) error {
	gone, err := os.MkdirTemp(filepath.Join(m.dir, "jobs"), ".gone-")
	if err != nil {
		return fmt.Errorf("remove workspace: %w", err)
	}
	if err := m.openUp(root); err != nil {
		return errors.Join(fmt.Errorf("remove workspace: %w", err), os.Remove(gone))
	}
	if err := os.Rename(root, filepath.Join(gone, "it")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("remove workspace: %w", err), os.Remove(gone))
	}
	err = removeTree(gone)
	for wait := 10 * time.Millisecond; err != nil && wait < time.Second; wait *= 2 {
		<-time.After(wait) // a process that is ending may still write files there
		err = removeTree(gone)
	}
	if err != nil {
		return fmt.Errorf("remove workspace: %w", err)
	}
	return nil
}

// openUp gives the owner of a workspace access to its directory again. A command that runs as the
// user of this process may have removed that access.
func (m *Manager) openUp(root string) error {
	jobs, err := openDir(filepath.Join(m.dir, "jobs"))
	if err != nil {
		return err
	}
	openUp(jobs, filepath.Base(root))
	return jobs.Close()
}

// abandoned reports whether the owner of a workspace is proven dead by its process identity. After
// a restart of the machine or of a container the identity proves nothing; then abandoned reports
// whether the owner's lock on the directory is free, because the kernel releases the lock when the
// owner ends.
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

// unlocked reports whether no process has the lock on a directory.
func unlocked(dir string) bool {
	lock, err := tryLock(dir)
	if err != nil {
		return false
	}
	return lock.Close() == nil
}
