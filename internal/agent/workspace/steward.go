package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/belaydev/belay/internal/host"
)

// place is a workspace on its way to a steward.
type place struct {
	ID, Dir, Home, Tmp string
	Repo, Ref          string
	Branch, Commit     string
	User               *host.User
	Notes, Objects     string
	Shallow, Noted     []byte
	MaxSalvage         int64
	Quota              Quota
	// Key is the git-crypt key, and NoKey why there is none although one is configured.
	Key   []byte
	NoKey string
}

// fillOrder makes a checkout where nothing is yet but the objects.
type fillOrder struct {
	Place place
	// Refs are packed; Head is the branch of the source's HEAD, as a full ref.
	Refs []byte
	Head string
}

// restoreOrder brings a fresh checkout to what bundle and patch hold.
type restoreOrder struct {
	Place         place
	Bundle, Patch []byte
}

// salvageOrder reads what was changed in a workspace.
type salvageOrder struct {
	Place place
}

// place is w as a steward has to know it.
func (m *Manager) place(w *Workspace) place {
	p := place{
		ID: w.ID, Dir: w.Dir, Home: w.Home, Tmp: w.Tmp, Repo: w.Repo, Ref: w.Ref, Branch: w.Branch, Commit: w.Commit, User: w.User,
		Objects: w.objects, Shallow: w.shallow, Noted: w.noted[:], MaxSalvage: m.MaxSalvage, Quota: m.Quota,
	}
	if w.root != "" {
		p.Notes = w.notes()
	}
	if m.CryptKey != "" {
		key, err := os.ReadFile(m.CryptKey)
		if p.Key = key; err != nil {
			p.NoKey = err.Error()
		}
	}
	return p
}

// stewardFor is the errand of a steward, who works as the user of the workspace and
// within its limits.
func (m *Manager) stewardFor(w *Workspace, o order, limit int64) errand {
	e := errand{who: "steward", user: w.User, writable: []string{w.Dir}, limits: m.Limits, limit: limit, order: o}
	e.limits.FileSize = m.Quota.Bytes
	if w.User != nil { // the ways there may be closed to that user; as whom it may write there
		for _, dir := range []string{w.objects, w.notes()} {
			if info, err := os.Lstat(dir); err == nil && info.IsDir() {
				e.writable = append(e.writable, dir)
			}
		}
	}
	return e
}

// populate has a steward make the checkout, and note how it was handed over.
func (m *Manager) populate(ctx context.Context, w *Workspace, o *fillOrder) error {
	o.Place = m.place(w)
	t, err := m.start(ctx, m.stewardFor(w, order{Fill: o}, 1<<20))
	if err != nil {
		return err
	}
	if w.root != "" {
		t.harvest = func() error {
			return errors.Join(removeTree(w.notes()), os.Rename(filepath.Join(t.scratch, "notes"), w.notes()))
		}
	}
	a, err := t.wait()
	if err == nil && len(a.Noted) == len(w.noted) {
		copy(w.noted[:], a.Noted)
	}
	return err
}

// Restore brings a workspace that was just made, at the commit that was checked
// out when they were salvaged, to what bundle and patch hold: HEAD, branches and
// files are as they were. What was not committed is again not committed; nothing
// is staged. Each may be nil.
func (m *Manager) Restore(ctx context.Context, w *Workspace, bundle, patch []byte) error {
	ctx, cancel := context.WithTimeoutCause(ctx, m.PrepareTimeout, fmt.Errorf("it took longer than %s", m.PrepareTimeout))
	defer cancel()
	err := w.watched(ctx, func(ctx context.Context) error { return m.restoreBy(ctx, w, bundle, patch) })
	if err != nil {
		return fmt.Errorf("restore workspace %s: %w", w.ID, err)
	}
	return nil
}

// restoreBy has a steward restore.
func (m *Manager) restoreBy(ctx context.Context, w *Workspace, bundle, patch []byte) error {
	if len(bundle) == 0 && len(patch) == 0 {
		return nil
	}
	if w.Repo == "" {
		return errors.New("it has no repository")
	}
	_, err := m.send(ctx, m.stewardFor(w, order{Restore: &restoreOrder{Place: m.place(w), Bundle: bundle, Patch: patch}}, 1<<20))
	return err
}

// Salvage reads what was changed since Prepare. It runs nothing that the workspace
// names, follows no way out of it and changes nothing in it, so that work can go
// on there. Every process of the command must have ended, or stand still. What cannot
// be kept is told in Lost; an error means that nothing could be.
func (m *Manager) Salvage(ctx context.Context, w *Workspace) (Salvage, error) {
	if w.Repo == "" {
		return Salvage{}, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.SalvageTimeout, fmt.Errorf("salvaging took longer than %s", m.SalvageTimeout))
	defer cancel()
	e := m.stewardFor(w, order{Salvage: &salvageOrder{Place: m.place(w)}}, 3*m.MaxSalvage+1<<20)
	for _, path := range []string{w.root, w.Dir} {
		dir, err := openDir(path)
		if err != nil {
			return Salvage{}, fmt.Errorf("salvage %s: %s is not the directory that was made", w.ID, path)
		}
		defer dir.Close()
		e.files = []*os.File{dir} // the last goes along: if it is exchanged before the steward is there, there is none
	}
	a, err := m.send(ctx, e)
	if err == nil && a.Salvage == nil {
		err = errors.New("the steward has brought nothing")
	}
	if err != nil {
		return Salvage{}, fmt.Errorf("salvage %s: %w", w.ID, err)
	}
	return a.Salvage.bounded(m.MaxSalvage), nil
}

// bounded is a salvage from a steward as far as it could be one.
func (s *Salvage) bounded(most int64) Salvage {
	got := *s
	var lost losses
	if got.Lost != "" {
		lost.add("%s", shorten(got.Lost, 64<<10))
	}
	for what, data := range map[string]*[]byte{"commits": &got.Bundle, "files": &got.Patch} {
		if int64(len(*data)) > most {
			*data = nil
			lost.add("its %s, which are beyond the limit of %d MiB", what, most>>20)
		}
	}
	got.Lost = lost.String()
	for _, n := range []*int{&got.Commits, &got.Files, &got.Insertions, &got.Deletions} {
		*n = max(*n, 0)
	}
	return got
}
