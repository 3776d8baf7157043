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

// committer is the one door for writes. Each of its goroutines commits one batch
// after the other; whatever is sent meanwhile becomes the next batch.
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
	observe   func(*Observation) // nil if nobody observes

	stats Stats // under mu

	mu      sync.Mutex
	queue   []*call
	most    int // batches at a time
	batches int // that are being committed
	load    int // commands in them
	stopped bool
	refused refused // the newest write that the store did not take
	wake    chan struct{}
}

// call is a command on its way.
type call struct {
	command machine.Command
	reply   chan *machine.Reply
	sent    time.Time // if somebody observes
}

func newCall(cmd machine.Command) *call {
	return &call{command: cmd, reply: make(chan *machine.Reply, 1)}
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

// newCommitter makes a committer of at most so many batches at a time.
func newCommitter(s store.Store, most, maxBatch int, published func(*batch)) *committer {
	return &committer{store: s, most: most, max: maxBatch, published: published, wake: make(chan struct{}, most)}
}

// send queues a command. Its reply comes by the call's channel, which takes it
// without anybody waiting.
func (c *committer) send(cmd machine.Command) *call {
	k := newCall(cmd)
	c.sendAll(k)
	return k
}

// sendAll queues calls together, so that no batch begins with the first of them.
func (c *committer) sendAll(calls ...*call) {
	if c.observe != nil {
		now := time.Now()
		for _, k := range calls {
			k.sent = now
		}
	}
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		for _, k := range calls {
			k.reply <- &machine.Reply{Err: errClosed}
		}
		return
	}
	c.queue = append(c.queue, calls...)
	due := c.dueLocked()
	c.mu.Unlock()
	if due {
		c.nudge()
	}
}

// dueLocked reports whether there is a batch to begin. Beside another one it must
// be worth its while: small ones are, since nobody is in their way, but to cut
// large ones in pieces costs more than it saves.
func (c *committer) dueLocked() bool {
	return c.batches < c.most && len(c.queue) > 0 && (2*len(c.queue) >= c.load || c.stopped)
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
	for range c.most {
		c.nudge()
	}
}

// run commits batches until the committer has stopped and the queue is empty. It
// is run as often as there may be batches at a time.
func (c *committer) run(ctx context.Context) {
	var o *observer
	if c.observe != nil {
		o = &observer{tell: c.observe}
	}
	for {
		if c.gather != nil {
			for !c.waiting() {
				<-c.wake
			}
			c.gather()
		}
		calls, over := c.take()
		if len(calls) > 0 {
			c.commit(ctx, calls, o)
			c.done(len(calls))
			continue
		}
		if over {
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
// order, and reports whether there will be none any more.
func (c *committer) take() (calls []*call, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dueLocked() {
		return nil, c.stopped && len(c.queue) == 0
	}
	if c.order != nil {
		slices.SortStableFunc(c.queue, func(a, b *call) int { return c.order(a.command, b.command) })
	}
	n := min(len(c.queue), c.max)
	calls = c.queue[:n:n]
	c.queue = c.queue[n:]
	if len(c.queue) == 0 {
		c.queue = nil
	}
	c.batches++
	c.load += n
	if c.dueLocked() {
		c.nudge()
	}
	return calls, false
}

// done notes the end of a batch of n commands.
func (c *committer) done(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches--
	c.load -= n
}

// commit carries out one batch. If the store refuses it for what is in it, or
// something in it waits for rows that others hold, the batch is halved, so that a
// poisoned command never fails its neighbours.
func (c *committer) commit(ctx context.Context, calls []*call, o *observer) {
	began := c.begin()
	if c.claims != nil {
		calls = append(calls, c.claims(calls)...)
	}
	c.try(ctx, calls, began, o)
}

func (c *committer) try(ctx context.Context, calls []*call, began began, o *observer) {
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
		if o != nil {
			o.began(rows)
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
	if belay.CodeOf(err) == belay.CodeUnavailable && !busy {
		c.trouble(err)
	}
	switch {
	case err == nil:
		took := c.now().Sub(start)
		c.count(b)
		c.published(b)
		for i, k := range calls {
			k.reply <- &b.replies[i]
		}
		if o != nil {
			o.committed(b, start, took)
		}
	case len(calls) == 1 || belay.CodeOf(err) == belay.CodeUnavailable && !busy || errors.Is(err, store.ErrBroken):
		for _, k := range calls {
			k.reply <- &machine.Reply{Err: err}
		}
	default:
		if busy {
			ctx = store.Hurried(ctx)
		}
		half := len(calls) / 2
		c.try(ctx, calls[:half], began, o)
		c.try(ctx, calls[half:], began, o)
	}
}

// now is the time, if anybody wants to know how long things take.
func (c *committer) now() time.Time {
	if c.observe == nil {
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
		c.refused = refused{}
	}
}
