package workspace

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// openUp gives the owner of a directory all permissions on it. It changes nothing if the name is
// not a directory.
func openUp(dir *os.File, name string) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return // the caller's own attempt to open the directory reports the error
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Mode&0o700 != 0o700 {
		_ = os.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0o700) //nolint:gosec // removeTree must enter and empty fd
	}
}
