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

// askAs asks something on a socket as another user. Only this thread, which ends
// here, becomes that user.
func askAs(uid uintptr, path string) error {
	answer := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		_, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uid, ^uintptr(0))
		if e != 0 {
			answer <- e
			return
		}
		answer <- ask(path)
	}()
	return <-answer
}

// ask does so on this very thread.
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

// Rule: another user is refused although somebody has opened the directory to
// all; the modes keep them out otherwise.
func TestAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
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
