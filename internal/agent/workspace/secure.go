package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// secureDir makes dir, if it does not exist, and returns its path without symbolic links. It
// refuses a path if another user could replace a directory on the path, because that user would
// then control which files this process reads, writes and removes.
func secureDir(dir string) (string, error) {
	there := dir
	for {
		_, err := os.Stat(there)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || there == filepath.Dir(there) {
			return "", err
		}
		there = filepath.Dir(there)
	}
	real, err := filepath.EvalSymlinks(there)
	if err != nil {
		return "", err
	}
	if err := checkPath(real); err != nil {
		return "", err
	}
	below, err := filepath.Rel(there, dir)
	if err != nil {
		return "", err
	}
	dir = filepath.Join(real, below)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return dir, checkPath(dir) // in a directory such as /tmp another user may have made dir first
}

// checkPath checks dir and every directory above it.
func checkPath(dir string) error {
	for {
		if err := checkDir(dir); err != nil || dir == filepath.Dir(dir) {
			return err
		}
		dir = filepath.Dir(dir)
	}
}

// checkDir checks that only root and this user can replace the entries of dir.
func checkDir(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	switch {
	case int(st.Uid) != os.Geteuid() && st.Uid != rootUID():
		return fmt.Errorf("%s belongs to user %d, who could replace directories in it: "+
			"it has to be root's or this user's", dir, st.Uid)
	case info.Mode()&0o002 == 0, info.Mode()&os.ModeSticky != 0:
		return nil
	case os.Geteuid() != 0 && st.Uid == rootUID() && isMount(dir, st):
		return nil // such a mount is the volume of a container, which has no other users
	}
	return fmt.Errorf("every user may write in %s and could replace directories in it: take "+
		"that right away (chmod o-w), or let each remove only what is theirs (chmod +t)", dir)
}

// rootUID returns the uid of root, even in a user namespace that does not map root.
func rootUID() uint32 {
	info, err := os.Lstat("/")
	if err != nil {
		return 0
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() != 0 {
		return st.Uid
	}
	return 0
}

// isMount reports whether a file system is mounted at dir.
func isMount(dir string, st *syscall.Stat_t) bool {
	above, err := os.Lstat(filepath.Dir(dir))
	if err != nil {
		return false
	}
	up, ok := above.Sys().(*syscall.Stat_t)
	return ok && up.Dev != st.Dev
}
