package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// AwaitEnd waits until the process that has the number pid at the time of the call has ended. The
// error is the context's cause if ctx ends first, and another error if the kernel gives no handle
// of the process (before Linux 5.10, or for a number of another PID namespace).
func AwaitEnd(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("wait for the end of process %d: %w", pid, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("wait for the end of process %d: %w", pid, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	defer stop()
	// The handle is readable when the process has ended.
	err = raw.Read(func(fd uintptr) bool {
		n, perr := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n != 0 && !errors.Is(perr, syscall.EINTR)
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("wait for the end of process %d: %w", pid, err)
}
