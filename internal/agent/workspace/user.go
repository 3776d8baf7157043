package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/host"
)

// Users reserves a user for a workspace. free kills the processes that still run as this user and
// makes the user available again.
type Users func(ctx context.Context, id string) (user host.User, free func(context.Context) error, err error)

// nogroup is the group of a user who is not in this machine's user database.
const nogroup = 65534

// userOf returns the user with the id uid and its groups, according to the user database of this
// machine.
func userOf(uid uint32) host.User {
	is := host.User{UID: uid, GID: nogroup}
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return is
	}
	if gid, err := strconv.ParseUint(u.Gid, 10, 32); err == nil {
		is.GID = uint32(gid)
	}
	groups, _ := u.GroupIds()
	for _, g := range groups {
		if gid, err := strconv.ParseUint(g, 10, 32); err == nil {
			is.Groups = append(is.Groups, uint32(gid))
		}
	}
	return is
}

// assignUser assigns a user to a workspace, if the manager has users to assign.
func (m *Manager) assignUser(ctx context.Context, w *Workspace) error {
	if m.Users == nil {
		return nil
	}
	user, free, err := m.Users(ctx, w.ID)
	if err != nil {
		return fmt.Errorf("make workspace %s: %w", w.ID, err)
	}
	w.User, w.free = &user, free
	if err = m.removeAbandonedOf(ctx, user.UID); err == nil {
		err = m.give(w)
	}
	if err != nil {
		return fmt.Errorf("give workspace %s to user %d: %w", w.ID, user.UID, err)
	}
	return nil
}

// removeAbandonedOf saves the changes in the workspaces that dead runs with the same user have
// left, and then removes these workspaces. The next run with that user could otherwise read them.
func (m *Manager) removeAbandonedOf(ctx context.Context, uid uint32) error {
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
		saved, err := m.keep(ctx, e.Name(), true)
		switch {
		case err != nil: // the disk has space, since the new workspace was made; so later tries would fail too
			slog.With(runOf(e.Name())).Error(
				"a dead workspace is removed without its work, because a new run needs its user", "error", err)
			err = m.discard(root)
		case saved:
			err = m.discard(root)
		default:
			err = m.awaitEnd(ctx, root) // another process salvages the workspace and then removes it
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitEnd waits until a directory is gone.
func (m *Manager) awaitEnd(ctx context.Context, root string) error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		if _, err := os.Lstat(root); err != nil {
			return nil // the directory was removed
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of workspace %s: %w", filepath.Base(root), context.Cause(ctx))
		case <-look.C:
		}
	}
}

// give makes the user of the workspace the owner of the workspace's directories. Until give is
// called, only this process has access to these directories.
func (m *Manager) give(w *Workspace) error {
	for _, path := range []string{w.Dir, w.Home, filepath.Join(w.Home, ".gitconfig"), w.Tmp} {
		if err := os.Lchown(path, int(w.User.UID), int(w.User.GID)); err != nil {
			return err
		}
	}
	// The user may pass through the directories above the workspace, but not list their entries.
	for _, dir := range []string{m.dir, filepath.Join(m.dir, "jobs"), w.root} {
		// other users can pass through the directory but cannot list it
		if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // the job's user must pass through it
			return err
		}
	}
	return nil
}

// release makes the workspace's user available to other workspaces again.
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

// runOf returns the attributes of a log line about the run whose workspace has the id; only the id if no run has it.
func runOf(id string) slog.Attr {
	var run belay.RunID
	if run.UnmarshalText([]byte(id)) != nil {
		return slog.String("workspace", id)
	}
	return slog.GroupAttrs("", slog.Any("execution", run.Execution), slog.Int64("token", int64(run.Token)))
}

// readOwner reads the owner.json of a workspace.
func readOwner(root string) (owner, error) {
	var o owner
	raw, err := readRegular(filepath.Join(root, "owner.json"), 1<<20)
	if err == nil {
		err = json.Unmarshal(raw, &o)
	}
	if err == nil && o.ID == "" {
		err = errors.New("the file does not name its workspace")
	}
	return o, err
}
