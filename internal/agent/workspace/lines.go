package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay/internal/host"
)

// hello is the first message of a keeper (the helper that fetches) on a line (a socket from the
// keeper to the process that answers for the source). That process then starts the program that
// answers git.
const hello = "\n"

// peer is the process that answers a git fetch for a source. A keeper (the helper that fetches)
// reaches it over lines, which are sockets.
type peer interface {
	// line makes a new line (a socket) to the peer and returns the end that the keeper gets.
	line() (*os.File, error)
	// end ends the peer and waits for it. It returns the peer's error output, or the reason why the
	// peer did not answer.
	end() (complaint string, err error)
}

// newLine makes a line, a pair of connected sockets.
func newLine() (near, far *os.File, err error) {
	syscall.ForkLock.RLock()
	// With ForkLock no process can start between Socketpair and CloseOnExec; such a process would
	// inherit the line and keep it open.
	defer syscall.ForkLock.RUnlock()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a line: %w", err)
	}
	for _, fd := range pair {
		unix.CloseOnExec(fd)
	}
	return os.NewFile(uintptr(pair[0]), "line"), os.NewFile(uintptr(pair[1]), "line"), nil
}

// bridge connects git to its line (a socket to the process that answers for the source) through a
// second socket. Without the bridge, git could wait for ever: if the peer closes the line with
// unread data, reading from the line returns an error, which git's connecting program does not
// handle. Through the bridge git gets an ordinary end of the stream. The caller calls begun after
// the attempt to start git, and hangUp after git has ended.
func bridge(cmd *exec.Cmd, line *os.File) (begun, hangUp func(), err error) {
	gits, ours, err := newLine()
	if err != nil {
		return nil, nil, err
	}
	cmd.ExtraFiles = []*os.File{gits}
	var copies sync.WaitGroup
	copies.Go(func() {
		_, _ = io.Copy(ours, line) // git itself reports a stream that ends too early
		_ = unix.Shutdown(int(ours.Fd()), unix.SHUT_WR)
	})
	copies.Go(func() {
		if _, err := io.Copy(line, ours); err != nil {
			_, _ = io.Copy(io.Discard, ours)
		}
		_ = unix.Shutdown(int(line.Fd()), unix.SHUT_WR)
	})
	begun = func() { _ = gits.Close() }
	return begun, func() {
		_ = errors.Join(unix.Shutdown(int(line.Fd()), unix.SHUT_RDWR), unix.Shutdown(int(ours.Fd()), unix.SHUT_RDWR))
		copies.Wait()
		_ = ours.Close()
	}, nil
}

const (
	// linesOfKeeper is the maximum number of lines (sockets to the source) that a keeper (the helper
	// that fetches) needs: the first to list the refs, the second to fetch the refs, and the third
	// to fetch a commit to which no ref leads.
	linesOfKeeper = 3
	// linesOfReader is a number of lines (sockets) that is enough for all helpers that fetch in one
	// call of Prepare.
	linesOfReader = 4 * linesOfKeeper
)

// readerPeer is a running reader (the helper process that answers git for a local source).
type readerPeer struct {
	trip *trip
	stop context.CancelFunc
	over chan struct{}
	got  *answer
	err  error

	mu   sync.Mutex
	near []*os.File
}

// read starts a reader (the helper that answers for a local source) for src. If status is true, the
// reader also checks whether the source has uncommitted changes.
func (m *Manager) read(ctx context.Context, src source, status bool) (*readerPeer, error) {
	o, err := src.open()
	if err != nil {
		return nil, err
	}
	defer o.close()
	files := []*os.File{o.dir}
	if o.git != nil {
		files = append(files, o.git)
	}
	p := &readerPeer{over: make(chan struct{})}
	far, err := p.lines(linesOfReader)
	defer closeAll(far)
	if err != nil {
		return nil, err
	}
	as, own := readerUser(o.owner, m.Keeper)
	limits := m.Limits
	limits.Pids = 0 // without cgroups the limit would count all processes of the source's owner
	ctx, p.stop = context.WithCancel(ctx)
	p.trip, err = m.start(ctx, errand{
		who: "reader", user: as, files: append(files, far...), limits: limits, hostTmp: true, limit: 1 << 20,
		order: order{Read: &readOrder{Path: src.url, Inside: o.git != nil, Bare: o.bare, Status: status && own}},
	})
	if err != nil {
		p.stop()
		p.hangUp()
		return nil, err
	}
	go func() {
		defer close(p.over)
		p.got, p.err = p.trip.wait()
	}()
	return p, nil
}

// readerUser returns the user as which the reader (the helper that answers git for a source) runs:
// the owner of the source or, for a source of root, the user of the keeper (the helper that
// fetches). If this process is not root, the reader runs as the user of this process; own is false
// if this user does not own the source. The reader must then not run git status, which may run
// programs that the source's configuration names.
func readerUser(owner uint32, keeper *host.User) (as *host.User, own bool) {
	switch {
	case os.Geteuid() != 0:
		return nil, int(owner) == os.Geteuid()
	case owner == 0:
		return keeper, true
	}
	u := userOf(owner)
	return &u, true
}

// lines makes n lines (pairs of connected sockets). It stores the ends for keepers (the helpers
// that fetch) in p and returns the ends for the reader (the helper that answers git).
func (p *readerPeer) lines(n int) (far []*os.File, err error) {
	for range n {
		a, b, err := newLine()
		if err != nil {
			p.hangUp()
			return far, err
		}
		p.near, far = append(p.near, a), append(far, b)
	}
	return far, nil
}

func (p *readerPeer) line() (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.near) == 0 {
		return nil, errors.New("the reader has no line left")
	}
	f := p.near[0]
	p.near = p.near[1:]
	return f, nil
}

// hangUp closes the lines (sockets) that no helper uses, so that the reader (the helper that
// answers git for a source) stops waiting for a message on them and can end.
func (p *readerPeer) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	closeAll(p.near)
	p.near = nil
}

// readerTimeout is the time that a reader gets to end, after all other work is done.
const readerTimeout = 20 * time.Second

// dirty reports whether the source has uncommitted changes. If the reader (the helper for a local
// source) does not answer, dirty returns false.
func (p *readerPeer) dirty() bool {
	_, err := p.end()
	return err == nil && p.got.Read != nil && p.got.Read.Dirty
}

func (p *readerPeer) end() (string, error) {
	p.hangUp()
	late := time.NewTimer(readerTimeout)
	defer late.Stop()
	select {
	case <-p.over:
	case <-late.C:
	}
	p.stop()
	<-p.over
	if p.err != nil || p.got.Read == nil {
		return "", p.err
	}
	return brief(p.got.Read.Said), nil
}
