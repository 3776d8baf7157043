package workspace

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// charge describes a workspace in an order for a steward (the helper process that works in a
// workspace).
type charge struct {
	Site     site
	ID, Repo string
	// Notes is the directory with the state of the checkout that was saved before the command
	// started. Noted is the checksum of the index in that directory.
	Notes string
	Noted [sha256.Size]byte
	Quota Quota
	// Key is the git-crypt key. NoKey says why a configured key could not be read.
	Key   []byte
	NoKey string
}

// fillOrder is the order for a steward (the helper process that works in a workspace) to make a
// checkout from objects that are already in the workspace.
type fillOrder struct {
	Charge charge
	// Refs are packed refs. Head is the branch of the source's HEAD, as a full ref.
	Refs []byte
	Head string
}

// restoreOrder is the order for a steward (the helper process that works in a workspace) to apply
// saved work to a fresh checkout.
type restoreOrder struct {
	Charge  charge
	Salvage Salvage
}

// salvageOrder is the order for a steward (the helper process that works in a workspace) to read
// the changes in its workspace.
type salvageOrder struct{ Charge charge }

// charge returns the description of the workspace w for a steward (the helper process that works in
// a workspace).
func (m *Manager) charge(w *Workspace) charge {
	c := charge{Site: m.site(w), ID: w.ID, Repo: w.Repo, Noted: w.noted, Quota: m.Quota}
	if w.root != "" {
		c.Notes = w.notes()
	}
	if m.CryptKey != "" {
		key, err := os.ReadFile(m.CryptKey)
		if c.Key = key; err != nil {
			c.NoKey = err.Error()
		}
	}
	return c
}

// stewardFor returns the errand (task, rights and limits) of a steward (the helper process that
// works in a workspace). The steward runs as the user of the workspace.
func (m *Manager) stewardFor(w *Workspace, o order, limit int64) errand {
	e := errand{
		who: "steward", user: w.User, hidden: m.Hidden, secrets: m.Secrets, readable: m.Readable, limits: m.Limits,
		limit: limit, order: o,
	}
	e.limits.FileSize = m.Quota.Bytes
	if len(e.hidden)+len(e.secrets) > 0 {
		e.readable = append(e.readable[:len(e.readable):len(e.readable)], w.objects, w.notes())
	}
	dirs := []string{w.Dir, w.Home}
	// The sandbox makes only the listed directories visible, and the steward (the helper in a
	// workspace) must also read the two directories that are added here. File modes prevent it from
	// writing in these two.
	if w.User != nil {
		dirs = append(dirs, w.objects, w.notes())
	}
	for _, dir := range dirs {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			e.writable = append(e.writable, dir)
		}
	}
	return e
}

// populate starts a steward (a helper process) that makes the checkout and records its state.
func (m *Manager) populate(ctx context.Context, w *Workspace, o *fillOrder) error {
	o.Charge = m.charge(w)
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
	if err != nil {
		return err
	}
	copy(w.noted[:], a.Noted)
	w.Notes = shortened(a.Notes)
	return nil
}

// Restore applies s to a new workspace whose commit is the commit of the salvaged workspace. It
// restores HEAD, refs, stashes, the index, an operation in progress, files and HOME.
func (m *Manager) Restore(ctx context.Context, w *Workspace, s Salvage) error {
	ctx, cancel := context.WithTimeoutCause(ctx, m.PrepareTimeout, fmt.Errorf("it took longer than %s",
		m.PrepareTimeout))
	defer cancel()
	err := w.watched(ctx, func(ctx context.Context) error {
		_, err := m.restoreBy(ctx, w, s, false)
		return err
	})
	if err == nil && w.unfinished {
		w.unfinished = false
		err = m.sign(w.root, w)
	}
	if err != nil {
		return fmt.Errorf("restore workspace %s: %w", w.ID, err)
	}
	return nil
}

// restoreBy starts a steward (a helper process) that restores s. person says that the checkout is
// for a person and not for a job. left describes the parts that the steward has omitted.
func (m *Manager) restoreBy(ctx context.Context, w *Workspace, s Salvage, person bool) (left []string, err error) {
	if len(s.Bundle)+len(s.Patch)+len(s.Home) == 0 {
		return nil, nil
	}
	o := &restoreOrder{Charge: m.charge(w), Salvage: s}
	o.Charge.Site.Person = person
	a, err := m.send(ctx, m.stewardFor(w, order{Restore: o}, 1<<20))
	if err != nil {
		return nil, err
	}
	return shortened(a.Left), nil
}

// Salvage returns the changes since Prepare, and HOME. It runs no program that the workspace names
// and follows no symbolic link out of the workspace. It changes nothing in the workspace except the
// modification times of packs, so the command can continue afterwards. Every process of the command
// must have ended or be frozen. Lost describes the changes that could not be kept; an error means
// that nothing could be kept.
func (m *Manager) Salvage(ctx context.Context, w *Workspace) (Salvage, error) {
	return m.salvage(ctx, w, false)
}

// SalvageResult is like Salvage, and also sets Salvage.Diff.
func (m *Manager) SalvageResult(ctx context.Context, w *Workspace) (Salvage, error) {
	return m.salvage(ctx, w, true)
}

func (m *Manager) salvage(ctx context.Context, w *Workspace, diff bool) (Salvage, error) {
	if w.Commit == "" {
		return Salvage{}, nil // a workspace without a repository has nothing to salvage
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.SalvageTimeout, fmt.Errorf("salvaging took longer than %s",
		m.SalvageTimeout))
	defer cancel()
	o := &salvageOrder{m.charge(w)}
	o.Charge.Site.Diff = diff
	e := m.stewardFor(w, order{Salvage: o}, 3*m.MaxSalvage+2*maxHome+2*maxDiff+1<<20)
	for _, path := range []string{w.root, w.Dir} {
		dir, err := openDir(path)
		for _, f := range e.files {
			_ = f.Close()
		}
		if err != nil {
			return Salvage{}, fmt.Errorf("salvage %s: %s is not the directory that Belay made", w.ID, path)
		}
		// the helper gets the directory w.Dir as a descriptor, and fails if w.Dir was replaced before
		// the helper started
		e.files = []*os.File{dir}
	}
	defer e.files[0].Close()
	a, err := m.send(ctx, e)
	if err == nil && a.Salvage == nil {
		err = errors.New("the steward sent no result")
	}
	if err != nil {
		return Salvage{}, fmt.Errorf("salvage %s: %w", w.ID, err)
	}
	return a.Salvage.bounded(m.MaxSalvage), nil
}

// bounded returns s without the parts that exceed their limits. The limits are checked here again,
// because this process does not trust the steward (the helper process) that has made s.
func (s Salvage) bounded(most int64) Salvage {
	got := s
	var lost losses
	if got.Lost != "" {
		lost.add("%s", shorten(got.Lost, 64<<10))
	}
	for _, part := range []struct {
		what string
		data *[]byte
		most int64
	}{{"commits", &got.Bundle, most}, {"files", &got.Patch, most}, {"HOME", &got.Home, maxHome},
		{"diff", &got.Diff, maxDiff}} {
		if int64(len(*part.data)) > part.most {
			*part.data = nil
			lost.add("its %s, which are beyond the limit of %s", part.what, mib(part.most))
		}
	}
	got.Lost = lost.String()
	for _, n := range []*int{&got.Commits, &got.Files, &got.Insertions, &got.Deletions} {
		*n = max(*n, 0)
	}
	return got
}
