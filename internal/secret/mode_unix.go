//go:build unix

package secret

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// noFollow is the flag with which open refuses a symbolic link.
const noFollow = syscall.O_NOFOLLOW

// open opens a file for reading. If the file is a named pipe, open does not wait until a process
// opens the pipe for writing.
func open(path string, flags int) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|flags, 0)
}

// judge refuses a file whose mode lets other users change or read it. It returns a warning for a
// file that is accepted although every user can read it; see the package comment.
func judge(f *os.File, info fs.FileInfo) (warning string, err error) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", nil
	}
	mode := info.Mode().Perm()
	fixed := readOnly(f)
	ours := (os.Geteuid() == 0 || int(stat.Uid) == os.Geteuid()) && !fixed // this user can change the mode
	switch {
	case mode&0o022 != 0 && !fixed:
		return "", refuse(f, mode, "other users can change it")
	case mode&0o044 != 0 && ours:
		return "", refuse(f, mode, "other users of this machine can read it")
	case mode&0o004 != 0:
		return fmt.Sprintf("%s has mode %#o: every user of this machine can read it", f.Name(), mode), nil
	}
	return "", nil
}

// readOnly reports whether a file is on a read-only file system.
func readOnly(f *os.File) bool {
	var s unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &s) == nil && uint64(s.Flags)&readOnlyFlag != 0
}
