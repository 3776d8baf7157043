//go:build unix

package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/belaydev/belay"
)

// ErrForeign means that a data directory belongs to another user.
var ErrForeign = errors.New("the directory belongs to another user")

// Check refuses a data directory whose owner is neither this user nor root, or that other users may
// change. It accepts a directory that does not exist. The error is a [belay.Error] with
// CodeForbidden that says what to do; for a directory of another user it wraps [ErrForeign].
func Check(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("check the data directory: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() {
		return nil // dir is no directory, so the caller cannot open a file in it
	}
	own, mode := uint32(os.Geteuid()), info.Mode().Perm()
	switch {
	case stat.Uid != own && stat.Uid != 0:
		return &belay.Error{Code: belay.CodeForbidden, Err: ErrForeign, Message: fmt.Sprintf(
			"%s belongs to user %d, who may have put anything into it: work as that user, use a directory of your "+
				"own with --data, or take it over with: chown -R %d %s",
			dir, stat.Uid, own, dir)}
	case own != 0 && stat.Uid == 0 && isVolume(dir, stat):
		return nil
	case mode&0o002 != 0, mode&0o020 != 0 && (stat.Uid == own || !ofGroup(stat.Gid)):
		return &belay.Error{Code: belay.CodeForbidden, Message: fmt.Sprintf(
			"%s has mode %#o: other users may change its files; if they have not, close it with: chmod 700 %s", dir,
			mode, dir)}
	}
	return nil
}

// isVolume reports whether dir is a mount point. A mount point of root to which everybody may write
// is the volume of a container, in which there are no other users.
func isVolume(dir string, stat *syscall.Stat_t) bool {
	var up syscall.Stat_t
	return syscall.Stat(dir+"/..", &up) == nil && up.Dev != stat.Dev
}

// ofGroup reports whether this process is in a group. A directory of root with such a group, for
// example a volume of a container, was made for this process.
func ofGroup(gid uint32) bool {
	groups, err := os.Getgroups()
	return int(gid) == os.Getegid() || err == nil && slices.Contains(groups, int(gid))
}

// owns reports whether a user is the owner of a file.
func owns(uid uint32, path string) bool {
	var stat syscall.Stat_t
	return syscall.Stat(path, &stat) == nil && stat.Uid == uid
}

// checkSocket refuses a socket that other users may use, and a file that is no socket.
func checkSocket(path, dir string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return nil
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is no socket", Name)
	case stat.Uid != 0 && stat.Uid != uint32(os.Geteuid()) && !owns(stat.Uid, dir):
		return &belay.Error{
			Code: belay.CodeForbidden, Message: fmt.Sprintf("the socket of the data directory belongs to user %d",
				stat.Uid),
		}
	case info.Mode().Perm()&0o077 != 0:
		return &belay.Error{Code: belay.CodeForbidden, Message: fmt.Sprintf(
			"the socket of the data directory has mode %#o: other users may use it; close it with: chmod 600 %s",
			info.Mode().Perm(), path)}
	}
	return nil
}
