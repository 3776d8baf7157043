package workspace

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
)

// site describes a workspace to a steward (the helper process that works in a workspace). It has
// only paths and values, so that it can be sent to another process.
type site struct {
	Dir, Home string
	// Scratch is an empty directory for temporary files. It is removed when the helper ends.
	Scratch string
	// Objects is the directory with the objects of the base (the cached clone).
	Objects string
	// Commit and Branch are the commit and branch that were checked out. Shallow are the commits at
	// which the history ends.
	Commit, Branch string
	Shallow        []byte
	// Own says that the workspace has its own user, User. A file of another user is then not a file
	// of the command.
	Own  bool
	User uint32
	// Index, Refs and Config are the contents of files in .git before the command got the checkout;
	// nil if they were not saved.
	Index, Refs, Config []byte
	// HomeConfig is the checksum of the .gitconfig that Belay wrote to Home.
	HomeConfig [sha256.Size]byte
	// CryptKey is the path of the git-crypt key; empty for none.
	CryptKey string
	// Most is the maximum size, in bytes, of the bundle, of the patch and of each new file.
	// MostHome is the maximum size of the files from Home; 0 means that Home is not saved.
	Most, MostHome int64
	// Diff says that the salvage has a difference for people to read.
	Diff bool
	// Person says that a person will work in the restored checkout, so that restore omits parts
	// that would run programs or hide changes.
	Person bool
}

// hash returns the size of an object's name in bytes.
func (at *site) hash() int { return len(at.Commit) / 2 }

// savedHead returns the HEAD that the workspace had before the command got it.
func (at *site) savedHead() head {
	return head{ref: target{commit: at.Commit, branch: at.Branch}.ref(), commit: at.Commit}
}

// site returns the description of w for a steward (the helper process that works in a workspace),
// without the values that only the steward can add.
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

// checkDirectories checks that no path of the workspace was replaced by a file or a symbolic link.
func (at *site) checkDirectories() error {
	for _, dir := range []string{filepath.Dir(at.Dir), at.Dir} {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			return fmt.Errorf("%s is not the directory that Belay made", dir)
		}
	}
	return nil
}
