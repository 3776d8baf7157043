package process

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// filesVariable tells a supervisor how many descriptors come after its socket.
const filesVariable = "BELAY_INIT_FILES"

// Helper is a part of this program that runs as a command of its own, supervised and
// kept apart as any other; see [Command.Helper].
type Helper struct {
	// Name is its Args[0].
	Name string
	// Run does its work and returns the exit code.
	Run func() int
}

// directoriesOf says of each file where it is, if it is a directory.
func directoriesOf(files []*os.File) []string {
	at := make([]string, len(files))
	for i, f := range files {
		if info, err := f.Stat(); err == nil && info.IsDir() {
			at[i], _ = os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
		}
	}
	return at
}

// errMoved means that a directory is not where it was when it was opened.
var errMoved = errors.New("the directory was moved or replaced")

// reopen replaces a descriptor of a directory by one of the same directory in the
// view that this process has of the machine. It follows no symbolic link: the
// directory is where it was when the caller opened it, or it is refused.
func reopen(fd int, at string) error {
	if at == "" {
		return nil
	}
	var want, have unix.Stat_t
	if err := unix.Fstat(fd, &want); err != nil {
		return err
	}
	again, err := unix.Openat2(unix.AT_FDCWD, at, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return errors.Join(errMoved, err)
	}
	defer unix.Close(again)
	if err := unix.Fstat(again, &have); err != nil {
		return err
	}
	if want.Dev != have.Dev || want.Ino != have.Ino {
		return errMoved
	}
	return unix.Dup3(again, fd, unix.O_CLOEXEC)
}
