package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// proxy is the parent's side of the connection between a run and its Proxy; nil if the run has no
// Proxy.
type proxy struct {
	port     int
	listener net.Listener
	// ours and theirs are the ends of a socket pair. Through this socket the supervisor sends the
	// listener that it has made in the run's network namespace.
	ours, theirs *os.File
	ended        chan struct{} // closed when Proxy has returned; nil before Proxy is called
}

// open prepares the proxy of a run. Without a network namespace it listens on the machine's
// loopback and returns the port; otherwise it returns 0, and the supervisor listens in the
// namespace.
func (t *Tree) open() (port int, err error) {
	switch {
	case t.command.Network != ProxiedNetwork:
		return 0, nil
	case t.isolation != Subreaper:
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return 0, fmt.Errorf("make the proxy's socket: %w", err)
		}
		t.proxy = &proxy{
			port: proxyPort, ours: os.NewFile(uintptr(pair[0]), "proxy"), theirs: os.NewFile(uintptr(pair[1]),
				"supervisor"),
		}
		return 0, nil
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("listen for the proxy: %w", err)
	}
	address, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.Join(fmt.Errorf("listen for the proxy: at %s", l.Addr()), l.Close())
	}
	t.proxy = &proxy{port: address.Port, listener: l}
	return address.Port, nil
}

// environment returns the variables that make the command use the proxy.
func (p *proxy) environment(token string, direct []string) map[string]string {
	if p == nil {
		return nil
	}
	return proxyEnvironment("127.0.0.1:"+strconv.Itoa(p.port), token, direct)
}

// files returns the descriptors that the supervisor needs for the proxy.
func (p *proxy) files() []*os.File {
	if p == nil || p.theirs == nil {
		return nil
	}
	return []*os.File{p.theirs}
}

// serve calls the command's Proxy after the command was started.
func (p *proxy) serve(proxy func(net.Listener)) error {
	if p == nil {
		return nil
	}
	if p.listener == nil {
		l, err := receive(int(p.ours.Fd()))
		if err != nil {
			return fmt.Errorf("%w: take over the proxy's listener: %w", ErrLost, err)
		}
		p.listener = l
	}
	p.ended = make(chan struct{})
	go func() {
		defer close(p.ended)
		proxy(p.listener)
	}()
	return nil
}

// close closes the listener and waits for Proxy to return, but no longer than the given time. It
// may be called twice.
func (p *proxy) close(within time.Duration) {
	if p == nil {
		return
	}
	if p.ours != nil {
		_, _ = p.ours.Close(), p.theirs.Close()
	}
	if p.listener != nil {
		_ = p.listener.Close()
	}
	if p.ended == nil {
		return
	}
	patience := time.NewTimer(within)
	defer patience.Stop()
	select {
	case <-p.ended:
	case <-patience.C:
	}
}

// receive returns the listener in a message that has already arrived on the socket.
func receive(socket int) (net.Listener, error) {
	var text [1]byte
	rights := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, text[:], rights, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(errors.New("a message without a descriptor"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.Join(errors.New("a message without a descriptor"), err)
	}
	f := os.NewFile(uintptr(fds[0]), "listener")
	defer f.Close() // the returned listener has a copy of the descriptor
	return net.FileListener(f)
}

// connect enables the loopback in this process's network namespace. If socket is the socket to the
// parent, connect also listens on that loopback, and sends the listener through the socket to the
// parent, whose proxy uses it.
func connect(socket int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		if socket < 0 && errors.Is(err, unix.EPERM) {
			return nil // root has no CAP_NET_ADMIN: the run can connect to nothing, not even to itself
		}
		return fmt.Errorf("bring up the loopback: %w", err)
	}
	if socket < 0 {
		return nil
	}
	defer unix.Close(socket)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: proxyPort}); err != nil {
		return fmt.Errorf("listen for the proxy: %w", err)
	}
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return fmt.Errorf("listen for the proxy: %w", err)
	}
	if err := unix.Sendmsg(socket, []byte{0}, unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL); err != nil {
		return fmt.Errorf("hand over the proxy's listener: %w", err)
	}
	return nil
}
