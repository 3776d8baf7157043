package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// committer is the one door for writes. Its goroutine commits one batch after
// the other; whatever is sent meanwhile becomes the next batch.
type committer struct {
	store store.Store
	max   int
	// claims gives the parked claims that the batch may serve, so that what
	// is submitted can start in the commit that accepts it.
	claims    func([]*call) []*call
	published func(*batch)
	begin     func() began
	beat      func(*batch) time.Duration
	broken    func(error) // told once the store can keep nothing any more
	gather    func()      // see Options
	order     func(a, b machine.Command) int
	observer  *observer // nil if nobody observes

	stats Stats // under mu

	mu      sync.Mutex
	queue   []*call
	stopped bool
	wake    chan struct{}
	done    chan struct{}
}

// call is a command on its way.
type call struct {
	command machine.Command
	reply   chan machine.Reply
	sent    time.Time // if somebody observes
}

// Stats count what a committer has done since it began.
type Stats struct {
	// Commands is how many were decided, Commits how many transactions wrote
	// something, Marks how many of the server's marks were written alone.
	Commands, Commits, Marks int64
}

// began is what was known when a batch began: what it found says nothing about
// what has become known since.
type began struct{ lanes, changes uint64 }

// batch is what one commit did.
type batch struct {
	began    began
	calls    []*call
	commands []machine.Command
	need     machine.Need
	rows     *machine.Rows
	changes  *machine.Changes
	replies  []machine.Reply
}

func newCommitter(s store.Store, maxBatch int, published func(*batch)) *committer {
	return &committer{
		store: s, max: maxBatch, published: published,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// send queues a command. Its reply comes by the call's channel, which takes it
// without anybody waiting.
func (c *committer) send(cmd machine.Command) *call {
	k := &call{command: cmd, reply: make(chan machine.Reply, 1)}
	if c.observer != nil {
		k.sent = time.Now()
	}
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		k.reply <- machine.Reply{Err: errClosed}
		return k
	}
	c.queue = append(c.queue, k)
	c.mu.Unlock()
	c.nudge()
	return k
}

func (c *committer) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// stop refuses new commands; run ends when the queue is empty.
func (c *committer) stop() {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	c.nudge()
}

func (c *committer) run(ctx context.Context) {
	defer close(c.done)
	for {
		if c.gather != nil {
			for !c.waiting() {
				<-c.wake
			}
			c.gather()
		}
		calls, stopped := c.take()
		if len(calls) > 0 {
			c.commit(ctx, calls)
			continue
		}
		if stopped {
			return
		}
		<-c.wake
	}
}

// waiting reports whether there is something to take, or nothing more to wait for.
func (c *committer) waiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) > 0 || c.stopped
}

// take gives the next batch, oldest commands first unless there is another
// order.
func (c *committer) take() ([]*call, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.order != nil {
		slices.SortStableFunc(c.queue, func(a, b *call) int { return c.order(a.command, b.command) })
	}
	n := min(len(c.queue), c.max)
	calls := c.queue[:n:n]
	c.queue = c.queue[n:]
	if len(c.queue) == 0 {
		c.queue = nil
	}
	return calls, c.stopped
}

// commit carries out one batch. If the store refuses it for what is in it, or
// something in it waits for rows that others hold, the batch is halved, so that a
// poisoned command never fails its neighbours.
func (c *committer) commit(ctx context.Context, calls []*call) {
	began := c.begin()
	if c.claims != nil {
		calls = append(calls, c.claims(calls)...)
	}
	c.try(ctx, calls, began)
}

func (c *committer) try(ctx context.Context, calls []*call, began began) {
	b := &batch{began: began, calls: calls, commands: make([]machine.Command, len(calls))}
	for i, k := range calls {
		b.commands[i] = k.command
		k.command.Need(&b.need)
	}
	var panicked error
	start := c.now()
	err := c.store.Commit(ctx, b.need, func(rows *machine.Rows) (out *machine.Changes) {
		defer func() {
			if r := recover(); r != nil {
				panicked = &belay.Error{
					Code: belay.CodeInternal, Message: fmt.Sprintf("the rules panicked: %v", r), Err: errors.New(string(debug.Stack())),
				}
				out = &machine.Changes{}
			}
		}()
		b.rows = rows
		if c.observer != nil {
			c.observer.began(rows)
		}
		b.changes, b.replies = machine.Fold(rows, b.commands)
		b.changes.Beat = c.beat(b)
		return b.changes
	})
	if err == nil {
		err = panicked
	}
	if errors.Is(err, store.ErrBroken) {
		c.broken(err)
	}
	busy := errors.Is(err, store.ErrBusy)
	switch {
	case err == nil:
		took := c.now().Sub(start)
		c.count(b)
		c.published(b)
		for i, k := range calls {
			k.reply <- b.replies[i]
		}
		if c.observer != nil {
			c.observer.committed(b, start, took)
		}
	case len(calls) == 1 || belay.CodeOf(err) == belay.CodeUnavailable && !busy || errors.Is(err, store.ErrBroken):
		for _, k := range calls {
			k.reply <- machine.Reply{Err: err}
		}
	default:
		if busy {
			ctx = store.Hurried(ctx)
		}
		half := len(calls) / 2
		c.try(ctx, calls[:half], began)
		c.try(ctx, calls[half:], began)
	}
}

// now is the time, if anybody wants to know how long things take.
func (c *committer) now() time.Time {
	if c.observer == nil {
		return time.Time{}
	}
	return time.Now()
}

func (c *committer) count(b *batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Commands += int64(len(b.commands))
	if !b.changes.Empty() {
		c.stats.Commits++
	}
}
