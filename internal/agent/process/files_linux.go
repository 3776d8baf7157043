package process

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// filesVariable is the environment variable that tells a supervisor how many descriptors follow its
// socket.
const filesVariable = "BELAY_INIT_FILES"

// Helper is a function of this program that runs in a process of its own, with the same supervision
// and the same walls (sandbox) as any other command; see [Command.Helper].
type Helper struct {
	// Name is the Args[0] of the helper's command.
	Name string
	// Run does the helper's work and returns the exit code.
	Run func() int
}

// directoriesOf returns the path of each file that is a directory, and "" for every other file.
func directoriesOf(files []*os.File) []string {
	at := make([]string, len(files))
	for i, f := range files {
		if info, err := f.Stat(); err == nil && info.IsDir() {
			at[i], _ = os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
		}
	}
	return at
}

// errMoved means that the directory is no longer at the path at which it was opened.
var errMoved = errors.New("the directory was moved or replaced")

// reopen opens a directory again in this process's mount namespace and replaces the descriptor fd
// by the new descriptor. It follows no symbolic link. It returns errMoved if path no longer leads
// to the same directory.
func reopen(fd int, path string) error {
	if path == "" {
		return nil
	}
	var want, have unix.Stat_t
	if err := unix.Fstat(fd, &want); err != nil {
		return err
	}
	again, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
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
