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

// hello is what a keeper says first on a line, to whoever starts the program with which
// it wants to talk.
const hello = "\n"

// peer is what answers for a source at the other end of keepers' lines.
type peer interface {
	// line is a new one.
	line() (*os.File, error)
	// end ends it, and waits. It says what it has complained of, or why it did not
	// answer at all.
	end() (complaint string, err error)
}

// newLine makes the two ends of a line.
func newLine() (near, far *os.File, err error) {
	syscall.ForkLock.RLock()
	// a process that starts between the two calls would hold the line for as long as it lives
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

// bridge lets a git that is about to start talk over its line, by a line of its own. Git's
// program for a connection waits for ever where the other end leaves with something
// unread, which a socket reports as an error: git's own line just ends. Call begun when
// the git has started, or could not, and hangUp when it has ended.
func bridge(cmd *exec.Cmd, line *os.File) (begun, hangUp func(), err error) {
	gits, ours, err := newLine()
	if err != nil {
		return nil, nil, err
	}
	cmd.ExtraFiles = []*os.File{gits}
	var copies sync.WaitGroup
	copies.Go(func() {
		_, _ = io.Copy(ours, line) // an end in the middle of something is git's to find
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
	// linesOfKeeper is how many a keeper needs at most: to look, to fetch, and to fetch
	// a commit that no ref leads to.
	linesOfKeeper = 3
	// linesOfReader are enough for the keepers of one Prepare.
	linesOfReader = 4 * linesOfKeeper
)

// readerPeer is a reader that answers for a local source.
type readerPeer struct {
	trip *trip
	stop context.CancelFunc
	over chan struct{}
	got  *answer
	err  error

	mu   sync.Mutex
	near []*os.File
}

// read sends out a reader for a local source; status says that it is to look for
// changes that are not committed.
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
	limits.Pids = 0 // without cgroups it would count all that the owner runs
	ctx, p.stop = context.WithCancel(ctx)
	p.trip, err = m.start(ctx, errand{
		who: "reader", user: as, files: append(files, far...), limits: limits, besides: true, limit: 1 << 20,
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

// readerUser is as whom a source is read: as its owner, or for root's as the keeper.
// Where this process can be nobody else, it reads it; then, own says, nothing of it may
// be run that is not its user's.
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

// lines makes lines, whose far ends it gives.
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

// hangUp lets the reader know that nobody will ask any more.
func (p *readerPeer) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	closeAll(p.near)
	p.near = nil
}

// readerMost bounds how long is waited for a reader, once all else is done.
const readerMost = 20 * time.Second

// dirty tells whether the source has changes that are not committed. No answer is no.
func (p *readerPeer) dirty() bool {
	_, err := p.end()
	return err == nil && p.got.Read != nil && p.got.Read.Dirty
}

func (p *readerPeer) end() (string, error) {
	p.hangUp()
	late := time.NewTimer(readerMost)
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
