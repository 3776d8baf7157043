package workspace

import (
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

// site is w as it is salvaged and restored, but for what only its helper knows.
func (m *Manager) site(w *Workspace) site {
	at := site{
		Dir: w.Dir, Home: w.Home, Objects: w.objects, Commit: w.Commit, Branch: w.Branch, Shallow: w.shallow,
		HomeConfig: w.gitconfig, Most: m.MaxSalvage,
	}
	if m.KeepHome {
		at.MostHome = maxHome
	}
	if w.User != nil {
		at.Own, at.User = true, w.User.UID
	}
	return at
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
