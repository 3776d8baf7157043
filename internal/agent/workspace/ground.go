package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// firm makes dir, if it is not there, and gives its name without links. It refuses a
// directory in whose place, or in the place of one above it, another user could put
// another: what is read, written and removed by its name would be theirs.
func firm(dir string) (string, error) {
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
	if err := stands(real); err != nil {
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
	return dir, stands(dir) // in a directory like /tmp another may have been faster
}

// stands looks at dir and at all above it.
func stands(dir string) error {
	for {
		if err := standsFirm(dir); err != nil || dir == filepath.Dir(dir) {
			return err
		}
		dir = filepath.Dir(dir)
	}
}

// standsFirm tells whether only root and we can exchange what is in a directory.
func standsFirm(dir string) error {
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
	case int(st.Uid) != os.Geteuid() && st.Uid != owner0():
		return fmt.Errorf("%s belongs to user %d, who could put another directory in the place of what is in it: "+
			"it has to be root's or this user's", dir, st.Uid)
	case info.Mode()&0o002 == 0, info.Mode()&os.ModeSticky != 0:
		return nil
	case os.Geteuid() != 0 && st.Uid == owner0() && isMount(dir, st):
		return nil // the volume of a container, which has no other users
	}
	return fmt.Errorf("every user may write in %s, and put another directory in the place of what is in it: take "+
		"that right away (chmod o-w), or let each remove only what is theirs (chmod +t)", dir)
}

// owner0 is root, also where a user namespace does not know it.
func owner0() uint32 {
	info, err := os.Lstat("/")
	if err != nil {
		return 0
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() != 0 {
		return st.Uid
	}
	return 0
}

// isMount tells whether a file system begins at dir.
func isMount(dir string, st *syscall.Stat_t) bool {
	above, err := os.Lstat(filepath.Dir(dir))
	if err != nil {
		return false
	}
	up, ok := above.Sys().(*syscall.Stat_t)
	return ok && up.Dev != st.Dev
}
