package peer

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// TCP refuses a connection from a job of this machine with [ErrJob], and a connection whose process
// it cannot find with [ErrUnknown]. It takes milliseconds, or longer on a machine with thousands of
// processes.
func (j *Judge) TCP(c net.Conn) error {
	s, err := Remote(c)
	if err != nil {
		return err
	}
	if err := j.user(s.UID); err != nil {
		return err
	}
	own := uint32(os.Geteuid())
	if s.UID != own && own != 0 {
		return nil // jobs run only as the user of this process or as one of Judge.Users
	}
	pids, err := j.search.holders(s.Inode)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if len(pids) == 0 && (s.UID == own || j.Shared) {
		return fmt.Errorf("%w: no visible process has the connection open", ErrUnknown)
	}
	for _, pid := range pids {
		if err := j.process(pid); err != nil {
			return err
		}
	}
	// The connection must still exist: otherwise the data about the socket may belong to a later
	// connection with the same addresses.
	if again, err := Remote(c); err != nil || again != s {
		return errors.Join(fmt.Errorf("%w: the peer has closed the connection", ErrUnknown), err)
	}
	return nil
}

// Credentials are the number and the user of the process at the other end of a unix socket: the
// process that connected, or the process that listens.
type Credentials struct {
	PID int // 0 if the process is in a PID namespace that this process cannot see
	UID uint32
}

// CredentialsOf reads the credentials of the peer from the kernel.
func CredentialsOf(c *net.UnixConn) (Credentials, error) {
	var cred *unix.Ucred
	err := control(c, func(fd int) (err error) {
		cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	if err != nil {
		return Credentials{}, fmt.Errorf("read the credentials of the peer: %w", err)
	}
	return Credentials{int(cred.Pid), cred.Uid}, nil
}

func control(c *net.UnixConn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// Unix refuses a process of a job at the other end of a unix socket with [ErrJob], and a process
// that it cannot find with [ErrUnknown]. Before Linux 6.5 it identifies the process only by its
// number, which another process may have by now.
func (j *Judge) Unix(c *net.UnixConn) error {
	cred, err := CredentialsOf(c)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if err := j.user(cred.UID); err != nil {
		return err
	}
	pidfd := -1
	err = control(c, func(fd int) (err error) {
		pidfd, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		return err
	})
	switch {
	case errors.Is(err, unix.ENOPROTOOPT):
		return j.process(cred.PID)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	defer unix.Close(pidfd)
	pid, err := numberOf(pidfd)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if err := j.process(pid); err != nil {
		return err
	}
	poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	ended := 0
	err = uninterrupted(func() (err error) {
		ended, err = unix.Poll(poll, 0)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	case ended != 0:
		return fmt.Errorf("%w: the process has ended", ErrUnknown)
	}
	return nil
}

// uninterrupted repeats a system call while signals interrupt it. The Go runtime sends signals to its
// own threads.
func uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// numberOf returns the number, in the PID namespace of this process, of the process that a pidfd
// refers to.
func numberOf(pidfd int) (int, error) {
	raw, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(pidfd))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if text, ok := strings.CutPrefix(line, "Pid:"); ok {
			pid, err := strconv.Atoi(strings.TrimSpace(text))
			if err == nil && pid <= 0 {
				err = errors.New("the process has ended, or is in a PID namespace that this process cannot see")
			}
			return pid, err
		}
	}
	return 0, errors.New("the kernel does not show the number of the process")
}
