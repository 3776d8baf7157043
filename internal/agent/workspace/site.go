package workspace

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
)

// site is a workspace as it is salvaged and restored: directories and facts, and
// nothing that only one process has.
type site struct {
	Dir, Home string
	// Scratch is an empty directory for what is needed meanwhile. Its maker removes it.
	Scratch string
	// Objects are those of the base.
	Objects string
	// Commit is what was checked out, Branch on which branch, Shallow where the history
	// ends.
	Commit, Branch string
	Shallow        []byte
	// Own tells that User is whose files the command could have written.
	Own  bool
	User uint32
	// Index, Refs and Config are those of the checkout as it was handed over; nil for
	// those that are not known.
	Index, Refs, Config []byte
	// HomeConfig is the sum of the .gitconfig that was put into Home.
	HomeConfig [sha256.Size]byte
	// CryptKey is the file of the key of git-crypt; empty for none.
	CryptKey string
	// Most bounds a bundle, a patch and each new file in it; MostHome what is kept of
	// Home, 0 for nothing.
	Most, MostHome int64
	// Person tells that a person goes on in what is restored: what would run programs
	// or hide changes is left out.
	Person bool
}

// hash is how many bytes the name of an object has.
func (at *site) hash() int { return len(at.Commit) / 2 }

// stood is where HEAD was when the workspace was handed over.
func (at *site) stood() head {
	return head{ref: target{commit: at.Commit, branch: at.Branch}.ref(), commit: at.Commit}
}

// in makes a directory for what is needed meanwhile and calls do with the workspace
// as it is salvaged and restored.
func (m *Manager) in(w *Workspace, do func(at *site) error) error {
	scratch, lock, err := m.lockedDir("scratch", "git-")
	if err != nil {
		return fmt.Errorf("make a scratch directory: %w", err)
	}
	defer lock.Close()
	defer func() { _ = removeTree(scratch) }() // what stays is swept
	at := &site{
		Dir: w.Dir, Home: w.Home, Scratch: scratch, Objects: w.objects, Commit: w.Commit, Branch: w.Branch, Shallow: w.shallow,
		HomeConfig: w.gitconfig, CryptKey: m.CryptKey, Most: m.MaxSalvage,
	}
	if m.KeepHome {
		at.MostHome = maxHome
	}
	if w.User != nil {
		at.Own, at.User = true, w.User.UID
	}
	if w.root != "" {
		at.Index, at.Refs, at.Config = w.handedIndex(), w.handedOver("refs"), w.handedOver("config")
	}
	return do(at)
}

// handedOver reads what was noted of the checkout when it was handed over; nil if that
// is not known. Only the command's own work is at stake.
func (w *Workspace) handedOver(name string) []byte {
	raw, err := readRegular(filepath.Join(w.root, name), maxPackedRefs)
	if err != nil {
		return nil
	}
	return raw
}

// directories makes sure that a workspace consists of those that were made.
func (at *site) directories() error {
	for _, dir := range []string{filepath.Dir(at.Dir), at.Dir} {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			return fmt.Errorf("%s is not the directory that was made", dir)
		}
	}
	return nil
}

// Salvage reads what was changed since Prepare, and HOME. It runs nothing that the
// workspace names, follows no way out of it and changes nothing in it, so that work
// can go on there; only the times of packs may become newer. Every process of the command must have ended, or stand still. What
// cannot be kept is told in Lost; an error means that nothing could be.
func (m *Manager) Salvage(ctx context.Context, w *Workspace) (s Salvage, err error) {
	if w.Commit == "" {
		return Salvage{}, nil // without a repository a job begins anew
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.SalvageTimeout, fmt.Errorf("salvaging took longer than %s", m.SalvageTimeout))
	defer cancel()
	err = m.in(w, func(at *site) error {
		s, err = salvageSite(ctx, &m.git, at)
		return err
	})
	if err != nil {
		return Salvage{}, fmt.Errorf("salvage %s: %w", w.ID, err)
	}
	return s, nil
}

// Restore brings a workspace that was just made, at the commit that was checked out
// when s was salvaged, to what s holds: HEAD, refs, stashes, the index, what was under
// way, files and HOME are as they were.
func (m *Manager) Restore(ctx context.Context, w *Workspace, s Salvage) error {
	err := m.in(w, func(at *site) error {
		_, err := restoreSite(ctx, &m.git, at, s)
		return err
	})
	if err == nil {
		err = m.settle(w)
	}
	if err == nil && w.unfinished {
		w.unfinished = false
		err = m.sign(w.root, w)
	}
	if err != nil {
		return fmt.Errorf("restore workspace %s: %w", w.ID, err)
	}
	return nil
}
