package datadir

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/belaydev/belay/internal/socket"
)

// askAs sends a request on a socket as another user. Only the thread of the goroutine becomes this
// user, and the thread ends with the goroutine.
func askAs(uid uintptr, path string) error {
	answer := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		_, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uid, ^uintptr(0))
		if e != 0 {
			answer <- e
			return
		}
		answer <- ask(path)
	}()
	return <-answer
}

// ask sends a request on a socket from this thread.
func ask(path string) error {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		return err
	}
	if _, err := syscall.Write(fd, []byte(
		"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")); err != nil {
		return err
	}
	var b [64]byte
	n, err := syscall.Read(fd, b[:])
	if err == nil && n == 0 {
		err = net.ErrClosed
	}
	return err
}

// Rule: the modes of the directory and the socket keep another user out. If the modes let every
// user in, the process with the engine still refuses another user.
func TestAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	root, err := os.MkdirTemp("", "belay-peer-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	dir := filepath.Join(root, "data")
	b := open(t, dir, "root's")
	submit(t, b)
	path := filepath.Join(dir, socket.Name)
	const nobody = 65534
	if err := askAs(nobody, path); err == nil {
		t.Error("the modes do not keep another user out")
	}
	for _, p := range []string{root, dir, path} {
		if err := os.Chmod(p, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := askAs(0, path); err != nil {
		t.Errorf("root was refused: %v", err)
	}
	if err := askAs(nobody, path); err == nil {
		t.Error("another user was answered")
	}
}
