//go:build !linux

package workspace

import (
	"os"
	"path/filepath"
)

// openUp gives the owner of a directory all permissions on it.
func openUp(dir *os.File, name string) {
	path := filepath.Join(dir.Name(), name)
	if info, err := os.Lstat(path); err == nil && info.IsDir() && info.Mode().Perm()&0o700 != 0o700 {
		_ = os.Chmod(path, 0o700) //nolint:gosec // removeTree must enter and empty the directory
	}
}
