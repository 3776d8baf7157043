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
	broken    func(error)       // told once the store can keep nothing any more
	gather    func(urgent bool) // see Options
	order     func(a, b machine.Command) int
	observe   func(*Observation) // nil if nobody observes

	stats Stats // under mu

	// pulse says that what keeps sessions alive has a goroutine of its own, which
	// commits nothing else and never waits behind other batches.
	pulse  bool
	aside  *aside
	life   *life
	sweep  func() // has the sweeper look
	judges judges

	mu      sync.Mutex
	queue   queue
	hands   hands
	most    int // batches at a time, beside the pulse
	batches int // that are being committed
	load    int // commands in them
	ration  ration
	pace    pace
	stopped bool
	refused refused // the newest write that the store did not take
	wake    chan struct{}
	urgent  chan struct{} // wakes the pulse
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
	c := &committer{
		life: newLife(), sweep: func() {},
		store: s, most: most, max: maxBatch, published: published, hands: make(hands),
		wake: make(chan struct{}, most), urgent: make(chan struct{}, 1),
	}
	c.aside, c.judges = newAside(c), newJudges()
	return c
}

// send queues a command. Its reply comes by the call's channel, which takes it
// without anybody waiting.
func (c *committer) send(cmd machine.Command) *call {
	c.judges.judge(cmd)
	k := newCall(cmd)
	c.sendAll(k)
	return k
}

// sendAll queues calls together, so that no batch begins with the first of them.
func (c *committer) sendAll(calls ...*call) {
	now := time.Now()
	for _, k := range calls {
		k.sent = now
	}
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		for _, k := range calls {
			k.reply <- &machine.Reply{Err: errClosed}
		}
		return
	}
	for _, k := range calls {
		c.hands.take(k)
	}
	c.queue.add(now, calls...)
	c.rouseLocked()
	c.mu.Unlock()
}

// again queues calls that were put aside, before all that came later.
func (c *committer) again(calls []*call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.back(time.Now(), calls...)
	c.rouseLocked()
}

// answer replies to a call, once.
func (c *committer) answer(k *call, r *machine.Reply) {
	if !sessionOf(k.command).IsZero() {
		c.mu.Lock()
		c.hands.answer(k)
		c.mu.Unlock()
	}
	k.reply <- r
}

// inHand gives a channel that closes when every sign of life of a session that was
// received has been answered; nil if there is none.
func (c *committer) inHand(id belay.WorkerID) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.hands[id]; h != nil {
		return h.empty
	}
	return nil
}

// rouseLocked wakes those who have a batch to begin.
func (c *committer) rouseLocked() {
	if c.dueLocked() {
		nudge(c.wake)
	}
	if c.pulse && c.queue.urgent() > 0 {
		nudge(c.urgent)
	}
}

// dueLocked reports whether there is a batch to begin. Beside another one it must
// be worth its while: small ones are, since nobody is in their way, but to cut
// large ones in pieces costs more than it saves.
func (c *committer) dueLocked() bool {
	n := c.countLocked()
	return c.batches < c.most && n > 0 && (2*n >= c.load || c.stopped)
}

// countLocked is how many the next batch may take that is not the pulse's.
func (c *committer) countLocked() int {
	n := c.queue.len - len(c.queue.calls[asked])
	if c.pulse {
		n -= c.queue.urgent()
	}
	room, _ := c.roomLocked()
	return n + min(len(c.queue.calls[asked]), room)
}

func nudge(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// stop refuses new commands; run ends when the queue is empty.
func (c *committer) stop() {
	c.aside.stop()
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	for range c.most {
		nudge(c.wake)
	}
	nudge(c.urgent)
}

// run commits batches until the committer has stopped and the queue is empty. It
// is run as often as there may be batches at a time.
func (c *committer) run(ctx context.Context) { c.work(ctx, c.wake, c.waiting, c.take, c.done) }

// beats does so with what keeps sessions alive.
func (c *committer) beats(ctx context.Context) {
	c.work(store.Urgent(ctx), c.urgent, c.beating, c.takeBeats, func(freight) {})
}

func (c *committer) work(
	ctx context.Context, wake <-chan struct{}, waiting func() bool, take func() ([]*call, freight, bool),
	done func(freight),
) {
	var o *teller
	if c.observe != nil {
		o = &teller{tell: c.observe}
	}
	for {
		if c.gather != nil {
			for !waiting() {
				<-wake
			}
			c.gather(store.IsUrgent(ctx))
		}
		calls, f, over := take()
		if len(calls) > 0 {
			c.commit(ctx, calls, o)
			done(f)
			continue
		}
		if over {
			return
		}
		<-wake
	}
}

// waiting reports whether there is something to take, or nothing more to wait for.
func (c *committer) waiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.countLocked() > 0 || c.stopped
}

func (c *committer) beating() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.urgent() > 0 || c.stopped
}

// take gives the next batch, and reports whether there will be none any more.
func (c *committer) take() (calls []*call, f freight, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dueLocked() {
		return nil, f, c.stopped && c.countLocked() == 0
	}
	if c.order != nil {
		c.queue.order(c.order)
	}
	first := alive
	if c.pulse {
		first = owned
	}
	room, extra := c.roomLocked()
	calls = c.queue.take(c.max, room, first, asked)
	f = freightOf(calls)
	c.spendLocked(&f, extra)
	c.batches++
	c.load += f.all
	c.pace.took(time.Now(), f.asked, len(c.queue.calls[asked]))
	if c.dueLocked() {
		nudge(c.wake)
	}
	return calls, f, false
}

// takeBeats gives the next batch of the pulse.
func (c *committer) takeBeats() (calls []*call, f freight, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.order != nil {
		c.queue.order(c.order)
	}
	calls = c.queue.take(c.max, 0, alive, alive)
	return calls, f, len(calls) == 0 && c.stopped
}

// done notes the end of a batch.
func (c *committer) done(f freight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches--
	c.load -= f.all
	c.restLocked(f)
}

// commit carries out one batch, without what is known to wait for somebody else.
func (c *committer) commit(ctx context.Context, calls []*call, o *teller) {
	began := c.begin()
	calls = c.aside.screen(calls)
	if c.claims != nil && !store.IsUrgent(ctx) {
		calls = append(calls, c.claims(calls)...)
	}
	if len(calls) > 0 {
		guesses := mostGuesses
		c.try(ctx, calls, began, o, &guesses)
	}
}

// try commits calls together. If the store refuses them for what is in them, or they
// are too many for one transaction, they are halved, so that a poisoned command never
// fails its neighbours. What waits for rows that somebody else holds leaves the others.
func (c *committer) try(ctx context.Context, calls []*call, began began, o *teller, guesses *int) {
	b := &batch{began: began, calls: calls, commands: make([]machine.Command, len(calls))}
	for i, k := range calls {
		b.commands[i] = k.command
	}
	b.need = machine.NeedOf(b.commands)
	start := c.now()
	err := c.decide(ctx, b, o)
	if errors.Is(err, store.ErrBroken) {
		c.broken(err)
	}
	split := errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrSlow) && len(calls) > 1
	if belay.CodeOf(err) == belay.CodeUnavailable && !split {
		c.trouble(err)
	}
	switch half := len(calls) / 2; {
	case err == nil:
		took := c.now().Sub(start)
		c.count(b)
		c.published(b)
		for i, k := range calls {
			c.answer(k, &b.replies[i])
		}
		if o != nil {
			o.committed(b, start, took)
		}
	case errors.Is(err, store.ErrBusy):
		for _, part := range c.aside.part(ctx, calls, b.need, guesses) {
			c.try(store.Waiting(ctx, guessPatience), part, began, o, guesses)
		}
	case len(calls) == 1 || belay.CodeOf(err) == belay.CodeUnavailable && !split || errors.Is(err, store.ErrBroken):
		for _, k := range calls {
			c.answer(k, &machine.Reply{Err: err})
		}
	default:
		c.try(ctx, calls[:half], began, o, guesses)
		c.try(ctx, calls[half:], began, o, guesses)
	}
}

// decide runs the transaction of a batch.
func (c *committer) decide(ctx context.Context, b *batch, o *teller) error {
	landed := c.life.flight()
	defer landed()
	var panicked error
	err := c.store.Commit(ctx, b.need, func(rows *machine.Rows) (out *machine.Changes) {
		defer func() {
			if r := recover(); r != nil {
				panicked = &belay.Error{
					Code: belay.CodeInternal, Message: fmt.Sprintf("the rules panicked: %v", r),
					Err: errors.New(string(debug.Stack())),
				}
				out = &machine.Changes{}
			}
		}()
		b.rows = rows
		if o != nil {
			o.began(rows)
		}
		now := time.Now()
		for _, k := range b.calls {
			k.received(now)
		}
		b.changes, b.replies = machine.Fold(rows, b.commands)
		b.changes.Beat = c.beat(b)
		return b.changes
	})
	if err == nil {
		err = panicked
	}
	return err
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
		c.life.wrote(b.changes.Vital())
		if slices.ContainsFunc(b.calls, func(k *call) bool { return k.class != alive }) {
			c.refused = refused{} // a sign of life may fit on a disk that has no room for more
		}
	}
}
