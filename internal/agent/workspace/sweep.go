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
)

// Garbage is a file or directory that a sweep would remove, with the reason.
type Garbage struct {
	Path string `json:"path"`
	// Kind is workspace, base, kept or leftover.
	Kind string `json:"kind"`
	// ID is the ID of the workspace; empty for the kinds base and leftover.
	ID  string `json:"id,omitempty"`
	Why string `json:"why"`
	// Stays is true if a sweep left it, because another process is saving it or another run has the system user of
	// the workspace. A later sweep removes it.
	Stays bool `json:"stays,omitempty"`

	// discard removes the file or directory, after a check that it is still garbage.
	discard func(ctx context.Context) error
}

// Dead is the Kind of a Garbage that is a workspace whose owner process has ended.
const Dead = "workspace"

// The other values of Garbage.Kind.
const (
	kindBase     = "base"
	kindKept     = "kept"
	kindLeftover = "leftover"
)

// Sweep removes everything that [Manager.Garbage] lists. Before it removes a workspace whose owner
// died, it saves (salvages) unfinished work; see [Manager.Kept].
func (m *Manager) Sweep(ctx context.Context, alive func(id string) bool) error {
	all, err := m.Garbage(alive)
	failed := []error{err}
	for _, g := range all {
		if ctx.Err() != nil {
			failed = append(failed, context.Cause(ctx))
			break
		}
		if err := g.discard(ctx); err != nil {
			failed = append(failed, fmt.Errorf("remove %s: %w", g.Path, err))
		}
	}
	return errors.Join(failed...)
}

// Garbage lists what a sweep would remove: workspaces whose owner is proven dead, workspaces of
// this process for which alive returns false, bases (cached clones) and scratch directories whose
// maker died before they were complete, bases unused for KeepBases, and work kept for longer than
// KeepWork. It never lists a workspace of another process that may be alive, whatever alive
// returns.
func (m *Manager) Garbage(alive func(id string) bool) ([]Garbage, error) {
	var all []Garbage
	var failed error
	for _, part := range []func(func(string) bool) ([]Garbage, error){m.deadJobs, m.deadScratch, m.deadBases,
		m.oldBases, m.oldWork} {
		found, err := part(alive)
		all, failed = append(all, found...), errors.Join(failed, err)
	}
	if failed != nil {
		return all, fmt.Errorf("sweep workspaces: %w", failed)
	}
	return all, nil
}

func (m *Manager) deadJobs(alive func(id string) bool) (all []Garbage, err error) {
	jobs := filepath.Join(m.dir, "jobs")
	entries, err := os.ReadDir(jobs)
	for _, e := range entries {
		name, root := e.Name(), filepath.Join(jobs, e.Name())
		mine := m.liveAt(name)
		g := Garbage{Path: root, Kind: Dead, ID: name}
		if o, err := readOwner(root); err == nil {
			g.ID = o.ID
		}
		switch {
		case mine != nil && alive(mine.ID):
			continue
		case mine != nil:
			g.Why, g.discard = "its run is over", mine.Remove
		case strings.HasPrefix(name, ".gone-"):
			g.Kind, g.ID, g.Why, g.discard = kindLeftover, "", "it was being removed", m.removeAt(root)
		case !m.abandoned(root):
			continue
		default:
			g.Why = "the process that owned it is gone"
			g.discard = func(ctx context.Context) error { return m.salvageAndRemove(ctx, name) }
			if strings.HasPrefix(name, ".") {
				g.Kind, g.ID, g.Why = kindLeftover, "", "it was never finished"
			}
		}
		all = append(all, g)
	}
	return all, err
}

// salvageAndRemove saves the changes in a workspace whose owner died, and removes it. If it returns
// an error because the changes cannot be saved, the workspace is still there.
func (m *Manager) salvageAndRemove(ctx context.Context, name string) error {
	root := filepath.Join(m.dir, "jobs", name)
	if !m.abandoned(root) {
		return nil // another process has removed the workspace
	}
	if saved, err := m.keep(ctx, name, false); !saved {
		return err
	}
	return m.discard(root)
}

func (m *Manager) removeAt(path string) func(context.Context) error {
	return func(context.Context) error { return removeTree(path) }
}

func (m *Manager) deadScratch(func(string) bool) (all []Garbage, err error) {
	left, err := filepath.Glob(filepath.Join(m.dir, "scratch", "*"))
	unfinished, kerr := filepath.Glob(filepath.Join(m.dir, "kept", ".new-*"))
	for _, dir := range left {
		if unlocked(dir) {
			all = append(all, Garbage{
				Path: dir, Kind: kindLeftover, Why: "it was in use when its maker died", discard: m.removeAt(dir),
			})
		}
	}
	for _, dir := range unfinished {
		if info, err := os.Lstat(dir); err == nil && m.Now().Sub(info.ModTime()) > time.Hour {
			all = append(all, Garbage{
				Path: dir, Kind: kindLeftover, Why: "it was never finished", discard: m.removeAt(dir),
			})
		}
	}
	return all, errors.Join(err, kerr)
}

// deadBases lists incomplete or replaced bases (cached clones) that no process is using.
func (m *Manager) deadBases(func(string) bool) (all []Garbage, failed error) {
	for _, infix := range []string{".new-", ".old-"} {
		left, err := filepath.Glob(filepath.Join(m.dir, "base", "*"+infix+"*"))
		failed = errors.Join(failed, err)
		for _, dir := range left {
			key, _, _ := strings.Cut(filepath.Base(dir), ".")
			lock := filepath.Join(m.dir, "base", key+".lock")
			if !free(lock) {
				continue
			}
			all = append(all, Garbage{Path: dir, Kind: kindLeftover,
				Why: "it was being made or replaced when its maker died", discard: func(context.Context) error {
					return whileLocked(lock, func() error { return removeTree(dir) })
				}})
		}
	}
	return all, failed
}

// free reports whether no process has the lock on a file.
func free(lock string) bool {
	f, err := tryLock(lock)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return f.Close() == nil
}

// whileLocked calls the function do while this process has the lock on the given file. If another
// process has the lock, whileLocked returns nil and does not call do.
func whileLocked(lock string, do func() error) error {
	f, err := tryLock(lock)
	if err != nil {
		return nil //nolint:nilerr // another process uses the base
	}
	return errors.Join(do(), f.Close())
}

func (m *Manager) oldBases(func(string) bool) (all []Garbage, err error) {
	if m.KeepBases <= 0 {
		return nil, nil
	}
	bases, err := m.Bases()
	for _, b := range bases {
		idle := m.Now().Sub(b.Used)
		if b.InUse || idle < m.KeepBases {
			continue
		}
		dir := b.Path
		all = append(all, Garbage{Path: dir, Kind: kindBase, Why: "unused for " + days(idle),
			discard: func(context.Context) error {
				return whileLocked(dir+".lock", func() error {
					return whileLocked(dir+".use", func() error { return removeTree(dir) })
				})
			}})
	}
	return all, err
}

func (m *Manager) oldWork(func(string) bool) (all []Garbage, err error) {
	if m.KeepWork <= 0 {
		return nil, nil
	}
	kept, err := m.Kept()
	for _, k := range kept {
		if age := m.Now().Sub(k.At); age >= m.KeepWork {
			all = append(all, Garbage{
				Path: filepath.Join(m.dir, "kept", k.ID), Kind: kindKept, ID: k.ID, Why: "it was kept for " + days(age),
				discard: func(context.Context) error { return m.Forget(k.ID) },
			})
		}
	}
	return all, err
}

func days(d time.Duration) string {
	if n := int(d / (24 * time.Hour)); n != 1 {
		return fmt.Sprintf("%d days", n)
	}
	return "a day"
}
