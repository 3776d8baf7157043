package httpapi

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

const (
	// windowFrames and windowBytes bound what a feed keeps for watchers that
	// are not at its end. Whoever is further behind reads the store.
	windowFrames = 1024
	windowBytes  = 1 << 20
	// readAgain is how long a feed waits after the store failed.
	readAgain = 250 * time.Millisecond
	// groupSize is how many watchers are woken at a time, and groupPause the
	// pause before the next ones: a thousand that want to write in the same
	// moment would be in the way of whoever commits. There are at most maxPauses
	// for one event: of more than a thousand, more are woken at a time, and all
	// within half a second.
	groupSize  = 4
	groupPause = time.Millisecond
	maxPauses  = 250
	// dataEvents is how many events are read at a time with their data, each of
	// which may be of belay.MaxPayload.
	dataEvents = 16
)

// feedKey names a feed: events with data are another feed than those without.
type feedKey struct {
	execution belay.ExecutionID
	data      bool
}

// feeds are the executions that are watched. However many watch one, it is read
// once, and each event is marshalled once.
type feeds struct {
	backend  belay.Client
	stopping <-chan struct{}

	mu   sync.Mutex
	open map[feedKey]*feed
}

// feed reads the events of one execution as they come.
type feed struct {
	key    feedKey
	cancel context.CancelCauseFunc
	run    sync.WaitGroup // the reader and the waker
	dirty  chan struct{}  // there is something to wake watchers for

	watchers int // under the feeds' mu

	mu     sync.Mutex
	base   int64   // the seq before the first frame
	frames []frame // seqs without a gap
	bytes  int
	groups []*group
	err    error // why there will be no more
}

// group is some of a feed's watchers.
type group struct {
	size int
	next chan struct{} // closed when there is something for them
}

// watch joins the feed of an execution, which begins after a seq if nobody
// watched it yet. leave must be called.
func (f *feeds) watch(key feedKey, after int64) (fd *feed, g *group, leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fd = f.open[key]
	if fd == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		fd = &feed{key: key, cancel: cancel, dirty: make(chan struct{}, 1), base: after}
		f.open[key] = fd
		fd.run.Go(func() {
			if err := fd.read(ctx, f.backend, after); err != nil {
				f.forget(fd)
				fd.end(err)
			}
		})
		fd.run.Go(func() { fd.wake(ctx) })
	}
	fd.watchers++
	g = fd.join()
	return fd, g, func() { f.leave(fd, g) }
}

// forget has whoever comes from now on begin another feed.
func (f *feeds) forget(fd *feed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetLocked(fd)
}

func (f *feeds) forgetLocked(fd *feed) {
	if f.open[fd.key] == fd {
		delete(f.open, fd.key)
	}
}

// leave ends the feed with its last watcher, and waits for that.
func (f *feeds) leave(fd *feed, g *group) {
	fd.part(g)
	f.mu.Lock()
	fd.watchers--
	last := fd.watchers == 0
	if last {
		f.forgetLocked(fd)
	}
	f.mu.Unlock()
	if last {
		fd.cancel(nil)
		fd.run.Wait()
	}
}

// join finds a group that has room.
func (fd *feed) join() *group {
	fd.mu.Lock()
	defer fd.mu.Unlock()
	for _, g := range fd.groups {
		if g.size < groupSize {
			g.size++
			return g
		}
	}
	g := &group{size: 1, next: make(chan struct{})}
	fd.groups = append(fd.groups, g)
	return g
}

// part leaves a group; an empty one is forgotten.
func (fd *feed) part(g *group) {
	fd.mu.Lock()
	defer fd.mu.Unlock()
	if g.size--; g.size == 0 {
		fd.groups = slices.DeleteFunc(fd.groups, func(other *group) bool { return other == g })
	}
}

// wake wakes the groups one after the other whenever something has come.
func (fd *feed) wake(ctx context.Context) {
	for {
		select {
		case <-fd.dirty:
		case <-ctx.Done():
			return
		}
		fd.mu.Lock()
		groups := slices.Clone(fd.groups)
		fd.mu.Unlock()
		burst := 1 + (len(groups)-1)/maxPauses // 1 of none as well
		for i, g := range groups {
			if i > 0 && i%burst == 0 && !pause(ctx, groupPause) {
				return
			}
			fd.mu.Lock()
			close(g.next)
			g.next = make(chan struct{})
			fd.mu.Unlock()
		}
	}
}

// read reads events until the feed has no watcher any more, or says why it cannot
// go on. A store that is away is waited for.
func (fd *feed) read(ctx context.Context, b belay.Client, after int64) error {
	q := belay.EventQuery{Execution: fd.key.execution, Wait: wire.MaxWait, Data: fd.key.data, Limit: fd.key.atATime()}
	for ctx.Err() == nil {
		q.After = after
		frames, err := read(ctx, b, q)
		switch {
		case err == nil && len(frames) > 0:
			after = frames[len(frames)-1].seq
			fd.add(frames)
		case err == nil || ctx.Err() != nil:
		case belay.CodeOf(err) == belay.CodeUnavailable:
			pause(ctx, readAgain)
		default:
			return err
		}
	}
	return nil
}

// atATime is how many events are read at a time.
func (k feedKey) atATime() int {
	if k.data {
		return dataEvents
	}
	return windowFrames / 4
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// add appends frames and wakes the watchers.
func (fd *feed) add(frames []frame) {
	fd.mu.Lock()
	defer fd.mu.Unlock()
	for _, f := range frames {
		fd.bytes += len(f.text)
	}
	fd.frames = append(fd.frames, frames...)
	drop := 0
	for n := len(fd.frames); n-drop > windowFrames || fd.bytes > windowBytes && n-drop > 1; drop++ {
		fd.bytes -= len(fd.frames[drop].text)
	}
	if drop > 0 {
		fd.base = fd.frames[drop-1].seq
		fd.frames = append([]frame(nil), fd.frames[drop:]...) // watchers keep the old array
	}
	fd.tell()
}

func (fd *feed) end(err error) {
	fd.mu.Lock()
	defer fd.mu.Unlock()
	fd.err = err
	fd.tell()
}

// tell has the watchers woken.
func (fd *feed) tell() {
	select {
	case fd.dirty <- struct{}{}:
	default:
	}
}

// after gives the frames after a seq. If there are none it gives a channel that is
// closed when there may be some. gap says that the feed does not hold what comes
// next: the store does.
func (fd *feed) after(seq int64, g *group) (frames []frame, next <-chan struct{}, gap bool, err error) {
	fd.mu.Lock()
	defer fd.mu.Unlock()
	switch i := seq - fd.base; {
	case i < 0:
		return nil, g.next, true, nil
	case i < int64(len(fd.frames)):
		return fd.frames[i:len(fd.frames):len(fd.frames)], g.next, false, nil
	}
	return nil, g.next, false, fd.err
}
