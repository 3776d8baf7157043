package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// placeTimeout is how long Prepare waits while another workspace uses the wanted directory name.
const placeTimeout = 5 * time.Second

// place makes the directories of a workspace at spec.Place. If another workspace still uses that
// name, place makes them at spec.ID.
func (m *Manager) place(ctx context.Context, spec Spec, src source) (*Workspace, error) {
	if m.has(spec.ID) {
		return nil, &belay.Error{Code: belay.CodeConflict, Message: fmt.Sprintf("workspace %s exists already", spec.ID)}
	}
	if spec.Place == "" || spec.Place == spec.ID {
		return m.claim(ctx, spec, spec.ID, src)
	}
	until := time.NewTimer(m.placeTimeout)
	defer until.Stop()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		w, err := m.claim(ctx, spec, spec.Place, src)
		if belay.CodeOf(err) != belay.CodeConflict {
			return w, err
		}
		select {
		case <-look.C:
		case <-until.C:
			return m.claim(ctx, spec, spec.ID, src)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// has reports whether this Manager has made the workspace id and has not removed it yet.
func (m *Manager) has(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.live {
		if w.ID == id {
			return true
		}
	}
	return false
}

// claim makes the directories of a workspace, locks them, and renames them to name. If a workspace
// of a dead process has that name, claim first salvages and removes that workspace.
func (m *Manager) claim(ctx context.Context, spec Spec, name string, src source) (*Workspace, error) {
	root := filepath.Join(m.dir, "jobs", name)
	inUse := &belay.Error{
		Code: belay.CodeConflict, Message: fmt.Sprintf("workspace %s exists already and may be in use", name),
	}
	if m.liveAt(name) != nil {
		return nil, inUse
	}
	if _, err := os.Lstat(root); err == nil {
		if !m.abandoned(root) {
			return nil, inUse
		}
		if err := m.salvageAndRemove(ctx, name); err != nil {
			return nil, err
		}
	}
	config := m.config(ctx, src)
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := os.Lstat(root); err == nil || m.live[name] != nil {
		return nil, inUse
	}
	fresh, lock, err := m.lockedDir("jobs", ".new-")
	if err != nil {
		return nil, fmt.Errorf("make workspace %s: %w", spec.ID, err)
	}
	w := &Workspace{
		ID: spec.ID, Dir: filepath.Join(root, "checkout"), Home: filepath.Join(root, "home"),
		Tmp:  filepath.Join(root, "tmp"),
		Repo: src.url, Local: src.local, Ref: spec.Ref, m: m, root: root, lock: lock, made: m.Now(),
		unfinished: spec.Unfinished,
	}
	if err := m.makeDirs(fresh, w, config); err != nil {
		return nil, errors.Join(fmt.Errorf("make workspace %s: %w", spec.ID, err), os.RemoveAll(fresh), lock.Close())
	}
	m.live[name] = w
	return w, nil
}

// liveAt returns this Manager's workspace in the directory name; nil if there is none.
func (m *Manager) liveAt(name string) *Workspace {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live[name]
}

// find returns the directory of the workspace id.
func (m *Manager) find(id string) (name string, o owner, err error) {
	jobs := filepath.Join(m.dir, "jobs")
	if o, err = readOwner(filepath.Join(jobs, id)); err == nil && o.ID == id {
		return id, o, nil
	}
	entries, err := os.ReadDir(jobs)
	if err != nil {
		return "", o, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if o, err := readOwner(filepath.Join(jobs, e.Name())); err == nil && o.ID == id {
			return e.Name(), o, nil
		}
	}
	return "", o, fs.ErrNotExist
}
