package host

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Handle returns a handle (pidfd) of the process p, if p is proven to live. The handle belongs to p
// for ever, even if another process gets its number. The error wraps [os.ErrProcessDone] if p has
// ended, and is another error if nothing is proven or the kernel has no handles. The caller closes
// the handle.
func (p Process) Handle(self Process) (*os.File, error) {
	if !p.comparable(self) {
		return nil, ErrForeign
	}
	if err := readable(); err != nil {
		return nil, err
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, syscall.ESRCH) {
		return nil, os.ErrProcessDone
	}
	if err != nil {
		return nil, err
	}
	// The handle is opened before the start time is read: if that is right, the handle belongs to p.
	f := os.NewFile(uintptr(fd), "pidfd")
	switch probe(p.PID, p.Start) {
	case Alive:
		return f, nil
	case Dead:
		return nil, errors.Join(os.ErrProcessDone, f.Close())
	case Unknown:
	}
	return nil, errors.Join(ErrForeign, f.Close())
}

// Ended reports for each handle whether its process has ended. It makes one system call for all
// handles.
func Ended(handles []*os.File) ([]bool, error) {
	ended := make([]bool, len(handles))
	if len(handles) == 0 {
		return ended, nil
	}
	fds := make([]unix.PollFd, len(handles))
	for i, f := range handles {
		fds[i] = unix.PollFd{Fd: int32(f.Fd()), Events: unix.POLLIN}
	}
	for {
		if _, err := unix.Poll(fds, 0); err == nil {
			break
		} else if !errors.Is(err, syscall.EINTR) {
			return nil, err
		}
	}
	for i := range fds {
		ended[i] = fds[i].Revents != 0
	}
	return ended, nil
}
