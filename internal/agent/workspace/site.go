package workspace

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
)

// site is the description of a workspace that a steward salvages or restores: paths and values
// only, so that it can be sent to the steward.
type site struct {
	Dir, Home string
	// Scratch is an empty directory for temporary files. The maker of the site removes it.
	Scratch string
	// Objects is the objects directory of the base.
	Objects string
	// Commit and Branch were checked out; Shallow are the commits at which the history ends.
	Commit, Branch string
	Shallow        []byte
	// Own says that the command ran as User, so that files of other users are not its own.
	Own  bool
	User uint32
	// Index, Refs and Config are those of the checkout when it was handed over; nil if unknown.
	Index, Refs, Config []byte
	// HomeConfig is the checksum of the .gitconfig that Belay put into Home.
	HomeConfig [sha256.Size]byte
	// CryptKey is the path of the git-crypt key; empty for none.
	CryptKey string
	// Most bounds, in bytes, the bundle, the patch and each new file; MostHome bounds the archive
	// of Home, 0 for no archive.
	Most, MostHome int64
	// Person says that a person will work in the restored checkout: parts that would run programs
	// or hide changes are left out.
	Person bool
}

// hash is the number of bytes of an object's name.
func (at *site) hash() int { return len(at.Commit) / 2 }

// handedHead is HEAD when the workspace was handed over.
func (at *site) handedHead() head {
	return head{ref: target{commit: at.Commit, branch: at.Branch}.ref(), commit: at.Commit}
}

// site describes w for a steward, except for the values that the steward adds.
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

// directories checks that the workspace still consists of directories.
func (at *site) directories() error {
	for _, dir := range []string{filepath.Dir(at.Dir), at.Dir} {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			return fmt.Errorf("%s is not the directory that Belay made", dir)
		}
	}
	return nil
}
