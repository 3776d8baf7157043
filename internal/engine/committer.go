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

// committer makes every write of the engine. Each of its goroutines commits one batch after the
// other; commands that arrive during a commit become the next batch.
type committer struct {
	store store.Store
	max   int
	// claims returns the parked claims that the batch may serve, so that an execution can start in
	// the commit that accepts it.
	claims    func([]*call) []*call
	published func(*batch)
	targets   *targetList // nil without targets of notifications
	begin     func() began
	beat      func(*batch) time.Duration
	broken    func(error)            // called when the store has failed for good (store.ErrBroken)
	unsure    func()                 // called when the store may have written a batch or not
	gather    func(urgent bool) bool // see Options
	order     func(a, b machine.Command) int
	observe   func(*Observation) // nil without Options.Observe

	stats Stats // protected by mu

	// pulse says that a separate goroutine, the pulse, commits signs of life (heartbeats and
	// renewals) and nothing else, so that they never wait for other batches.
	pulse         bool
	blocked       *blocked
	health        *health
	sweep         func() // wakes the sweeper
	payloadChecks payloadChecks

	mu           sync.Mutex
	queue        queue
	pendingBeats pendingBeats
	most         int // maximum number of batches at a time, without the batches of the pulse
	batches      int // batches that are being committed
	load         int // commands in the batches that are being committed
	quota        quota
	pace         pace
	stopped      bool
	refused      refused // the newest write that the store refused
	wake         chan struct{}
	urgent       chan struct{} // wakes the pulse
}

// Stats are counts since the committer started.
type Stats struct {
	// Commands is the number of commands that were decided, Commits the number of transactions that
	// wrote something, and Marks the number of marks of life (times that show that a server runs)
	// that were written without another command.
	Commands, Commits, Marks int64
}

// began has the numbers of the newest hints (reports of changes) at the time when a batch began.
// Hints with higher numbers are newer than the rows that the batch read.
type began struct{ lanes, changes uint64 }

// batch is the input and the result of one commit.
type batch struct {
	began    began
	calls    []*call
	commands []machine.Command
	need     machine.Need
	rows     *machine.Rows
	changes  *machine.Changes
	replies  []machine.Reply
}

// newCommitter makes a committer. The parameter most is the maximum number of batches that it
// commits at the same time.
func newCommitter(s store.Store, most, maxBatch int, published func(*batch)) *committer {
	c := &committer{
		health: newHealth(), sweep: func() {}, unsure: func() {},
		store: s, most: most, max: maxBatch, published: published, pendingBeats: make(pendingBeats),
		wake: make(chan struct{}, most), urgent: make(chan struct{}, 1),
	}
	c.blocked, c.payloadChecks = newBlocked(c), newPayloadChecks()
	return c
}

// send queues a command. The reply arrives in the call's channel, which has room for it, so that
// the committer never waits for the caller.
func (c *committer) send(cmd machine.Command) *call {
	c.payloadChecks.precheck(cmd)
	k := newCall(cmd)
	c.sendAll(k)
	return k
}

// sendAll queues calls in one step, so that no batch begins while only some of them are in the
// queue.
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
		c.pendingBeats.take(k)
	}
	c.queue.add(now, calls...)
	c.rouseLocked()
	c.mu.Unlock()
}

// returnToQueue queues calls again that are not blocked any more. They come before all calls that
// arrived later.
func (c *committer) returnToQueue(calls []*call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.back(time.Now(), calls...)
	c.rouseLocked()
}

// answer replies to a call, once.
func (c *committer) answer(k *call, r *machine.Reply) {
	if !sessionOf(k.command).IsZero() {
		c.mu.Lock()
		c.pendingBeats.answer(k)
		c.mu.Unlock()
	}
	k.answered.Store(true)
	k.reply <- r
}

// pendingBeat returns a channel that closes when the engine has answered all signs of life
// (heartbeats and renewals) that it has received for a session. It returns nil if all of them are
// answered already.
func (c *committer) pendingBeat(id belay.WorkerID) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.pendingBeats[id]; h != nil {
		return h.empty
	}
	return nil
}

// rouseLocked wakes the goroutines that have a batch to begin.
func (c *committer) rouseLocked() {
	if c.dueLocked() {
		nudge(c.wake)
	}
	if c.pulse && c.queue.urgent() > 0 {
		nudge(c.urgent)
	}
}

// dueLocked reports whether a batch should begin. While another batch is committed, the next batch
// must be at least half as large. So several small batches can be committed at the same time. But
// during a large batch the queue is not cut into small batches, because many small transactions
// cost more than the earlier start saves.
func (c *committer) dueLocked() bool {
	n := c.countLocked()
	return c.batches < c.most && n > 0 && (2*n >= c.load || c.stopped)
}

// countLocked is the number of queued commands that wait for the batches of run. Requests of clients
// count at most up to the number that the quota allows for the next batch. If the goroutine pulse
// runs, commands that keep sessions alive do not count, because pulse commits them.
func (c *committer) countLocked() int {
	n := c.queue.len - len(c.queue.calls[clientWork])
	if c.pulse {
		n -= c.queue.urgent()
	}
	room, _ := c.roomLocked()
	return n + min(len(c.queue.calls[clientWork]), room)
}

func nudge(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// stop refuses new commands; run ends when the queue is empty.
func (c *committer) stop() {
	c.blocked.stop()
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	for range c.most {
		nudge(c.wake)
	}
	nudge(c.urgent)
}

// run commits batches until the committer has stopped and the queue is empty. There is one
// goroutine of run for each batch that may be committed at the same time.
func (c *committer) run(ctx context.Context) { c.work(ctx, c.wake, c.dueLocked, c.take, c.done) }

// beats is the goroutine pulse: it commits batches of heartbeats and renewals until the committer
// has stopped.
func (c *committer) beats(ctx context.Context) {
	beating := func() bool { return c.queue.urgent() > 0 }
	c.work(store.Urgent(ctx), c.urgent, beating, c.takeBeats, func(contents) {})
}

func (c *committer) work(
	ctx context.Context, wake chan struct{}, dueLocked func() bool, take func() ([]*call, contents, bool),
	done func(contents),
) {
	var o *recorder
	if c.observe != nil {
		o = &recorder{report: c.observe}
	}
	for {
		if c.gather != nil && !c.gathered(store.IsUrgent(ctx), dueLocked) {
			<-wake
			continue
		}
		calls, f, over := take()
		if len(calls) > 0 {
			c.commit(ctx, calls, o)
			done(f)
			continue
		}
		if over {
			nudge(wake) // wakes the next goroutine of this kind, so that it also ends
			return
		}
		<-wake
	}
}

// gathered waits in Options.Gather if a batch is due, and reports whether the caller may take a
// batch.
func (c *committer) gathered(urgent bool, dueLocked func() bool) bool {
	c.mu.Lock()
	due, stopped := dueLocked(), c.stopped
	c.mu.Unlock()
	if !due {
		return stopped
	}
	return c.gather(urgent)
}

// take returns the next batch. over says that no further batch will come.
func (c *committer) take() (calls []*call, f contents, over bool) {
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
	calls = c.queue.take(c.max, room, first, clientWork)
	f = contentsOf(calls)
	c.chargeLocked(&f, extra)
	c.batches++
	c.load += f.all
	c.pace.took(time.Now(), f.clientWork, len(c.queue.calls[clientWork]))
	if c.dueLocked() {
		nudge(c.wake)
	}
	return calls, f, false
}

// takeBeats returns the next batch of heartbeats and renewals.
func (c *committer) takeBeats() (calls []*call, f contents, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.order != nil {
		c.queue.order(c.order)
	}
	calls = c.queue.take(c.max, 0, alive, alive)
	return calls, f, len(calls) == 0 && c.stopped
}

// done subtracts a finished batch from the batches that are being committed.
func (c *committer) done(f contents) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches--
	c.load -= f.all
	c.delayExtraLocked(f)
}

// commit commits one batch, without the commands that are known to be blocked by another
// transaction.
func (c *committer) commit(ctx context.Context, calls []*call, o *recorder) {
	began := c.begin()
	calls = c.blocked.removeBlocked(calls)
	if c.claims != nil && !store.IsUrgent(ctx) {
		calls = append(calls, c.claims(calls)...)
	}
	if len(calls) > 0 {
		guesses := maxGuesses
		c.try(ctx, calls, began, o, &guesses)
	}
}

// try commits calls together. If the store refuses the content of a call, or the calls are too many
// for one transaction, try halves them, so that a refused command never makes other commands fail.
// A call that needs rows which another transaction has locked is taken out of the batch, so that
// the other calls do not wait for it.
func (c *committer) try(ctx context.Context, calls []*call, began began, o *recorder, guesses *int) {
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
		if !errors.Is(err, store.ErrSlow) {
			c.unsure()
		}
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
		for _, part := range c.blocked.separate(ctx, calls, b.need, guesses) {
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
func (c *committer) decide(ctx context.Context, b *batch, o *recorder) error {
	ended := c.health.transaction()
	defer ended()
	targets, err := c.targetsOf(ctx, b)
	if err != nil {
		return err
	}
	var panicked error
	err = c.store.Commit(ctx, b.need, func(rows *machine.Rows) (out *machine.Changes) {
		defer func() {
			if r := recover(); r != nil {
				panicked = &belay.Error{
					Code: belay.CodeInternal, Message: fmt.Sprintf("the rules panicked: %v", r),
					Err: errors.New(string(debug.Stack())),
				}
				out = &machine.Changes{}
			}
		}()
		b.rows, rows.Targets = rows, targets
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

// now is the present time if the committer has an observer, and the zero time otherwise.
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
		c.health.wrote(b.changes.Vital())
		if slices.ContainsFunc(b.calls, func(k *call) bool { return k.class != alive }) {
			// A batch that has only signs of life (heartbeats and renewals) does not show that the
			// store accepts writes again: such a batch is small, and may succeed on a disk that is
			// too full for other writes.
			c.refused = refused{}
		}
	}
}
