package desk

import (
	"net"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// through calls f with a short path to the socket, because the address of a Unix socket has at most
// 107 bytes.
func through(path string, f func(short string) error) error {
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return f(filepath.Join("/proc/self/fd", strconv.Itoa(dir), filepath.Base(path)))
}

// peerOf returns the number of the process that has connected; 0 if it is unknown, or in a PID namespace that this
// process cannot see.
func peerOf(c *net.UnixConn) (pid int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}
