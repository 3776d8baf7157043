package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/peer"
)

const (
	// Name is the name of the socket in its data directory.
	Name = "belay.sock"
	// Fresh is the beginning of the temporary name under which a socket is made.
	Fresh = Name + ".new-"
	// maxSocket is the maximum length of a socket's path in bytes: the kernel's sockaddr_un has no
	// room for a longer path.
	maxSocket = 107
)

// Dial connects to the directory's socket. It refuses a server whose user is not the directory's
// owner, this user or root, and a server that is a process of a job.
func Dial(ctx context.Context, dir string, j *peer.Judge) (net.Conn, error) {
	way, free, err := shortcut(dir)
	if err != nil {
		return nil, err
	}
	defer free()
	if err := checkSocket(filepath.Join(way, Name), dir); err != nil {
		return nil, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", filepath.Join(way, Name))
	if err != nil {
		return nil, err
	}
	err = trusted(c, dir)
	if err == nil {
		err = checkHost(j, c)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// shortcut returns a path of the directory that is short enough for a socket, and a function that
// releases the path. If the directory's own path is too long, the result is a path below
// /proc/self/fd.
func shortcut(dir string) (way string, free func(), err error) {
	need := len(filepath.Join(dir, Fresh)) + len(strconv.Itoa(os.Getpid()))
	if need <= maxSocket {
		return dir, func() {}, nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, fmt.Errorf("open the data directory: %w", err)
	}
	way = "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	if _, err := os.Stat(way); err != nil {
		_ = f.Close()
		return "", nil, &belay.Error{Code: belay.CodeInvalid, Message: fmt.Sprintf(
			"the path of the data directory has %d bytes, too many for the socket in it; use one of at most %d",
			len(dir), len(dir)-need+maxSocket)}
	}
	return way, func() { _ = f.Close() }, nil
}

// Listen makes the directory's socket. The caller must have the lock. Closing the listener does not
// remove the socket's file.
func Listen(dir string) (net.Listener, error) {
	if left, err := filepath.Glob(filepath.Join(literal(dir), Fresh+"*")); err == nil {
		for _, path := range left { // a process that died before the rename below has left them
			_ = os.Remove(path)
		}
	}
	way, free, err := shortcut(dir)
	if err != nil {
		return nil, err
	}
	defer free()
	name := Fresh + strconv.Itoa(os.Getpid())
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(way, name), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	fresh := filepath.Join(dir, name)
	err = os.Chmod(fresh, 0o600)
	if err == nil {
		err = os.Rename(fresh, filepath.Join(dir, Name))
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(fresh))
	}
	return own{l, dir}, nil
}

// literal returns a pattern for filepath.Glob that matches only this path.
func literal(path string) string {
	var out []byte
	for _, c := range []byte(path) {
		if c == '*' || c == '?' || c == '[' || c == '\\' {
			out = append(out, '\\')
		}
		out = append(out, c)
	}
	return string(out)
}

// own is a listener that accepts only connections of the directory's owner, of this user and of
// root.
type own struct {
	net.Listener
	dir string
}

func (l own) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if trusted(c, l.dir) == nil {
			return c, nil
		}
		_ = c.Close()
	}
}
