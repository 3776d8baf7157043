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
	// windowFrames and windowBytes bound how many of the newest frames (marshalled events) a feed
	// keeps. A watcher that is further behind reads the store.
	windowFrames = 1024
	windowBytes  = 1 << 20
	// readAgain is how long a feed waits after the store failed.
	readAgain = 250 * time.Millisecond
	// groupSize is how many watchers are woken at a time, and groupPause the pause before the next
	// group: a thousand watchers that write at the same moment would slow down the commits. For one
	// event there are at most maxPauses pauses: with more than a thousand watchers, several groups
	// are woken at a time, so that all watchers are awake within half a second.
	groupSize  = 4
	groupPause = time.Millisecond
	maxPauses  = 250
	// dataEvents is how many events are read at a time together with their data, which may be of
	// belay.MaxPayload bytes for each event.
	dataEvents = 16
)

// feedKey names a feed: events with data and events without data are different feeds.
type feedKey struct {
	execution belay.ExecutionID
	data      bool
}

// feeds are the feeds of the executions that have watchers. However many watchers an execution has,
// its events are read and marshalled once.
type feeds struct {
	backend  belay.Client
	stopping <-chan struct{}

	mu   sync.Mutex
	open map[feedKey]*feed
}

// feed reads the events of one execution as they are written.
type feed struct {
	key    feedKey
	cancel context.CancelCauseFunc
	run    sync.WaitGroup // the goroutines of read and wake
	dirty  chan struct{}  // gets a value when watchers are to be woken

	watchers int // the number of watchers; guarded by the mu of feeds

	mu     sync.Mutex
	base   int64   // the seq of the event before the first frame
	frames []frame // the newest frames; their seqs have no gap
	bytes  int
	groups []*group
	err    error // why no more frames will come
}

// group is a part of a feed's watchers, which are woken together.
type group struct {
	size int
	next chan struct{} // closed when the group's watchers have something to read
}

// watch joins the feed of an execution. If the execution has no watchers yet, a new feed begins
// with the first event after the seq. The caller must call leave.
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

// forget removes the feed, so that the next watcher begins another one.
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

// leave removes a watcher. The last watcher ends the feed and waits until its goroutines have
// ended.
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

// join adds a watcher to a group that has fewer than groupSize watchers, or to a new group.
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

// part removes a watcher from its group, and removes a group without watchers.
func (fd *feed) part(g *group) {
	fd.mu.Lock()
	defer fd.mu.Unlock()
	if g.size--; g.size == 0 {
		fd.groups = slices.DeleteFunc(fd.groups, func(other *group) bool { return other == g })
	}
}

// wake wakes the groups one after the other when the feed has something new.
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
		burst := 1 + (len(groups)-1)/maxPauses // at least 1, also if there are no groups
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

// read reads events until the feed has no watchers, or returns the error that ends the feed. If the
// store is unavailable, it reads again after a pause.
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
		fd.frames = append([]frame(nil), fd.frames[drop:]...) // watchers may still read the old array
	}
	fd.tell()
}

func (fd *feed) end(err error) {
	fd.mu.Lock()
	defer fd.mu.Unlock()
	fd.err = err
	fd.tell()
}

// tell wakes the goroutine that informs the watchers (see wake), because the feed has changed.
func (fd *feed) tell() {
	select {
	case fd.dirty <- struct{}{}:
	default:
	}
}

// after returns the frames after a seq. If there are none yet, it returns a channel that is closed
// when there may be some. gap says that the feed no longer has the next frames, and that the
// watcher must read the store.
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
