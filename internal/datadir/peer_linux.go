package datadir

import (
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/belaydev/belay"
)

// trusted refuses a peer of another user than this one, the directory's owner and
// root. The directory's mode keeps others out already, unless somebody has opened
// it.
func trusted(c net.Conn, dir string) error {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return fmt.Errorf("ask who is on the socket: %w", err)
	}
	var cred *syscall.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("ask who is on the socket: %w", err)
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() && !owns(cred.Uid, dir) {
		return &belay.Error{Code: belay.CodeForbidden, Message: fmt.Sprintf(
			"the socket of the data directory belongs to process %d of user %d; the directory must be yours alone: chmod 700", cred.Pid, cred.Uid)}
	}
	return nil
}

func owns(uid uint32, dir string) bool {
	var stat syscall.Stat_t
	return syscall.Stat(dir, &stat) == nil && stat.Uid == uid
}
