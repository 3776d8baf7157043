package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/belaydev/belay/internal/host"
)

// Users gives a workspace a user of its own, whom free gives back after killing what
// he still runs.
type Users func(ctx context.Context, id string) (user host.User, free func(context.Context) error, err error)

// lend takes a user for a workspace, if there are any to take.
func (m *Manager) lend(ctx context.Context, w *Workspace) error {
	if m.Users == nil {
		return nil
	}
	user, free, err := m.Users(ctx, w.ID)
	if err != nil {
		return fmt.Errorf("make workspace %s: %w", w.ID, err)
	}
	w.User, w.free = &user, free
	if err := m.evict(user.UID); err != nil {
		return fmt.Errorf("make workspace %s: %w", w.ID, err)
	}
	return nil
}

// evict removes what a run that died has left of the same user: he could read it.
func (m *Manager) evict(uid uint32) error {
	jobs := filepath.Join(m.dir, "jobs")
	entries, err := os.ReadDir(jobs)
	if err != nil {
		return err
	}
	for _, e := range entries {
		root := filepath.Join(jobs, e.Name())
		if o, err := readOwner(root); err != nil || o.User == nil || o.User.UID != uid || !m.abandoned(root) {
			continue
		}
		if !m.keep(context.Background(), e.Name()) {
			continue
		}
		if err := m.discard(root); err != nil {
			return err
		}
	}
	return nil
}

// settle gives the workspace to its user, when all that we put into it is there. The
// objects that the base shares stay ours: he may read them and no more.
func (m *Manager) settle(w *Workspace) error {
	if w.User == nil {
		return nil
	}
	objects := filepath.Join(w.Dir, ".git", "objects") + string(filepath.Separator)
	for _, dir := range []string{w.Dir, w.Home, w.Tmp} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.Type().IsRegular() && strings.HasPrefix(path, objects) && shared(d) || w.owns(d) {
				return err
			}
			return os.Lchown(path, int(w.User.UID), int(w.User.GID))
		})
		if err == nil {
			err = os.Chmod(dir, 0o700) //nolint:gosec // a directory is entered
		}
		if err != nil {
			return fmt.Errorf("give workspace %s to user %d: %w", w.ID, w.User.UID, err)
		}
	}
	if err := w.refresh(); err != nil {
		return fmt.Errorf("give workspace %s to user %d: %w", w.ID, w.User.UID, err)
	}
	// The way to them; nobody can list what else is there.
	for _, dir := range []string{m.dir, filepath.Join(m.dir, "jobs"), w.root} {
		if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // to be passed, not listed
			return fmt.Errorf("give workspace %s to user %d: %w", w.ID, w.User.UID, err)
		}
	}
	return nil
}

// owns tells whether a file is the user's already.
func (w *Workspace) owns(d fs.DirEntry) bool {
	info, err := d.Info()
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid == w.User.UID && stat.Gid == w.User.GID
}

// shared tells whether a file has another name, which is the base's.
func shared(d fs.DirEntry) bool {
	info, err := d.Info()
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Nlink > 1
}

// release gives the user back.
func (w *Workspace) release(ctx context.Context) error {
	w.m.mu.Lock()
	free := w.free
	w.m.mu.Unlock()
	if free == nil {
		return nil
	}
	if err := free(ctx); err != nil {
		return err
	}
	w.m.mu.Lock()
	w.free = nil
	w.m.mu.Unlock()
	return nil
}

// foreign tells whether a file belongs to somebody whose files the command could not
// have written: through a hard link it may have brought them here to be read.
func (w *Workspace) foreign(info fs.FileInfo) bool {
	if w.User == nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid != w.User.UID
}

// readOwner reads whose a workspace is.
func readOwner(root string) (owner, error) {
	var o owner
	raw, err := readRegular(filepath.Join(root, "owner.json"), 1<<20)
	if err == nil {
		err = json.Unmarshal(raw, &o)
	}
	if err == nil && o.ID == "" {
		err = errors.New("it does not say of which workspace it is")
	}
	return o, err
}
