package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/belaydev/belay"
)

// Kept is work that was salvaged (saved) from a workspace whose owner died.
type Kept struct {
	ID     string `json:"id"`
	Repo   string `json:"repo"`
	Commit string `json:"commit"`
	Branch string `json:"branch,omitempty"`
	// Made is the time at which the workspace was made, and At the time at which its work was
	// salvaged.
	Made time.Time `json:"made"`
	At   time.Time `json:"at"`
	// Bytes is the disk space that the work takes.
	Bytes int64 `json:"-"`
	Salvage
}

// Adopt makes this process the owner of a workspace whose owner is proven dead; the caller then
// salvages and removes the workspace. The error is a [belay.Error]. Its code is CodeNotFound if
// there is no such workspace, and CodeConflict if the owner may be alive or another run uses the
// user of the workspace.
func (m *Manager) Adopt(id string) (*Workspace, error) { return m.adopt(id, false) }

// adopt does the work of Adopt. held says whether this process has already reserved the user of the
// workspace.
func (m *Manager) adopt(id string, held bool) (*Workspace, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	name, o, err := m.find(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notFound("there is no workspace %s in %s", id, m.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("adopt workspace %s: %w", id, err)
	}
	root := filepath.Join(m.dir, "jobs", name)
	inUse := &belay.Error{Code: belay.CodeConflict, Message: fmt.Sprintf("workspace %s is in use", id)}
	if m.live[name] != nil || !m.abandoned(root) {
		return nil, inUse
	}
	lock, err := tryLock(root)
	if err != nil {
		return nil, inUse
	}
	w := &Workspace{
		ID: id, Dir: filepath.Join(root, "checkout"), Home: filepath.Join(root, "home"), Tmp: filepath.Join(root,
			"tmp"),
		Repo: o.Repo, Branch: o.Branch, Commit: o.Commit, User: o.User,
		m: m, root: root, lock: lock, shallow: o.Shallow, key: o.Base,
	}
	w.objects = m.objectsOf(w)
	if o.User != nil && m.Retake != nil && !held {
		if w.free, err = m.Retake(context.Background(), *o.User, id); err != nil {
			return nil, errors.Join(err, lock.Close())
		}
	}
	copy(w.gitconfig[:], o.Home)
	m.live[name] = w
	return w, nil
}

// Abandon makes this process give back an adopted workspace. It does not change the files of the
// workspace.
func (w *Workspace) Abandon() {
	_ = w.release(context.Background()) // a user with surviving processes stays reserved
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	if w.lock != nil {
		_ = w.lock.Close()
		w.lock = nil
		delete(w.m.live, filepath.Base(w.root))
	}
}

// salvageTimeout is the time limit for saving the changes in one workspace whose owner died.
const salvageTimeout = 2 * time.Minute

// keepTries is how long sweeps try again to save the changes in a dead workspace, for example while
// the disk is full. Then the workspace is removed without its changes, so that a workspace that
// cannot be saved does not take disk space for ever.
const keepTries = time.Hour

// keep saves the changes in a workspace whose owner died, before the caller removes the workspace.
// It returns false if the caller must not remove the workspace, in three cases: another process is
// saving the workspace and then removes it; ctx has ended before the work is stored; or the saving
// fails, and has failed for less than keepTries. The last case is the only one with an error. In
// all three, a later sweep saves the work.
func (m *Manager) keep(ctx context.Context, name string, held bool) (bool, error) {
	o, err := readOwner(filepath.Join(m.dir, "jobs", name))
	if err != nil || o.Commit == "" {
		return true, nil // the workspace was never completed, or has no repository
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(caller, salvageTimeout)
	defer cancel()
	err = m.keepAs(ctx, o, held)
	if belay.CodeOf(err) == belay.CodeConflict || err != nil && caller.Err() != nil {
		return false, nil
	}
	if since := m.failing(name, err); err != nil && m.Now().Sub(since) < keepTries {
		return false, fmt.Errorf("save the work in dead workspace %s, which stays until %s at the latest: %w", o.ID,
			since.Add(keepTries).Format(time.RFC3339), err)
	}
	if err != nil {
		slog.With(runOf(o.ID)).Error("a dead workspace is removed without its work, which could not be saved",
			"tried_for", keepTries, "error", err)
	}
	return true, nil
}

// failing records whether the changes in a dead workspace could be saved, and returns the time of
// the first failure since this process started. If err is nil, failing forgets the failures.
func (m *Manager) failing(name string, err error) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.failed, name)
		return time.Time{}
	}
	if _, ok := m.failed[name]; !ok {
		m.failed[name] = m.Now()
	}
	return m.failed[name]
}

func (m *Manager) keepAs(ctx context.Context, o owner, held bool) error {
	w, err := m.adopt(o.ID, held)
	if err != nil {
		return err
	}
	defer w.Abandon()
	s, err := m.Salvage(ctx, w)
	if err != nil || s.Empty() {
		return err
	}
	fresh, err := os.MkdirTemp(filepath.Join(m.dir, "kept"), ".new-")
	if err != nil {
		return err
	}
	if err := writeKept(fresh, &Kept{ID: o.ID, Repo: o.Repo, Commit: o.Commit, Branch: o.Branch, Made: o.Made,
		At: m.Now(), Salvage: s}); err != nil {
		return errors.Join(err, removeTree(fresh))
	}
	at := filepath.Join(m.dir, "kept", o.ID)
	return errors.Join(removeTree(at), os.Rename(fresh, at))
}

func writeKept(dir string, k *Kept) error {
	for name, data := range map[string][]byte{"bundle": k.Bundle, "patch": k.Patch, "home": k.Home} {
		if len(data) > 0 {
			if err := writeFile(filepath.Join(dir, name), data); err != nil {
				return err
			}
		}
	}
	said := *k
	said.Bundle, said.Patch, said.Home = nil, nil, nil
	raw, err := json.MarshalIndent(&said, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "salvage.json"), append(raw, '\n'))
}

// Kept lists the work that was saved from workspaces whose owners died, the oldest first, without
// the bundles, patches and HOMEs.
func (m *Manager) Kept() ([]Kept, error) {
	entries, err := os.ReadDir(filepath.Join(m.dir, "kept"))
	if err != nil {
		return nil, fmt.Errorf("list kept work: %w", err)
	}
	var all []Kept
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(m.dir, "kept", e.Name(), "salvage.json"))
		var k Kept
		if err != nil || json.Unmarshal(raw, &k) != nil || k.ID != e.Name() {
			continue
		}
		for _, part := range []string{"bundle", "patch", "home"} {
			if info, err := os.Stat(filepath.Join(m.dir, "kept", e.Name(), part)); err == nil {
				k.Bytes += info.Size()
			}
		}
		all = append(all, k)
	}
	return all, nil
}

// Work reads the kept work of the workspace id. The error has CodeNotFound if no work of that
// workspace is kept.
func (m *Manager) Work(id string) (Kept, error) {
	var k Kept
	if err := checkID(id); err != nil {
		return k, err
	}
	dir := filepath.Join(m.dir, "kept", id)
	raw, err := os.ReadFile(filepath.Join(dir, "salvage.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return k, notFound("there is no kept work of workspace %s", id)
	}
	if err == nil {
		err = json.Unmarshal(raw, &k)
	}
	for name, to := range map[string]*[]byte{"bundle": &k.Bundle, "patch": &k.Patch, "home": &k.Home} {
		data, rerr := os.ReadFile(filepath.Join(dir, name))
		if rerr == nil {
			*to = data
		} else if !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	if err != nil {
		return k, fmt.Errorf("read the kept work of workspace %s: %w", id, err)
	}
	return k, nil
}

// Forget deletes the kept work of a workspace. A caller that still needs the work must have stored
// it elsewhere before.
func (m *Manager) Forget(id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	return removeTree(filepath.Join(m.dir, "kept", id))
}
