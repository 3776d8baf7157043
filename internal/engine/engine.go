package engine

import (
	"context"
	"crypto/rand"
	"log/slog"
	mrand "math/rand/v2"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/uid"
)

// Options configure an engine. The zero value means the defaults of Belay.
type Options struct {
	// MaxBatch is the maximum number of commands in one transaction; 0 means 1,000.
	MaxBatch int
	// Committers is the number of transactions that may be written at the same time; 0 means 1.
	// More than 1 is for stores that can write several transactions at the same time.
	Committers int
	// SlowPoll is the longest delay that a lost hint (a message about a change) can cause; 0 means
	// 30 s.
	SlowPoll time.Duration
	// HintPoll is the longest delay that the loss of another server's hint (a message about a
	// change) can cause before due work starts while a worker of this server waits for it; 0 means
	// 5 s. It is at most SlowPoll.
	HintPoll time.Duration
	// Retention is how long an ended execution is kept; 0 means 30 days, below 0 means for ever.
	Retention time.Duration
	// LetterRetention is the least time for which an execution with an open dead letter is kept,
	// even if its retention is over; 0 means until the dead letter is resolved.
	LetterRetention time.Duration
	// Defaults are the values of policy fields that submissions to this engine leave out. The engine
	// uses the fields MaxAttempts, BackoffBase, BackoffCap, ScheduledTimeout, StartTimeout and
	// OnNoWorker.
	Defaults belay.Policy
	// RunTrace, if set, returns the trace of a run of an execution whose own trace is t. Without RunTrace it is t.
	RunTrace func(id belay.ExecutionID, token belay.Token, t belay.Trace) belay.Trace
	// Log receives the messages for operators; nil means slog.Default().
	Log *slog.Logger
	// IDs makes ids; nil means UUIDv7.
	IDs func() [16]byte
	// Random fills secrets; nil means crypto/rand.
	Random func([]byte)
	// Jitter is a random number in [0, 1); nil means math/rand.
	Jitter func() float64
	// Self is this process. Dead reports whether another process on this host has certainly ended,
	// and returns the proof. Without Dead no session ends before it expires. Near, if set, reports
	// whether Dead could ever prove the end of the given process.
	Self belay.Process
	Dead func(belay.Process) (proof string, dead bool)
	Near func(belay.Process) bool
	// Bury ends the child processes that a dead worker has left on this host. The engine calls Bury
	// before another worker can claim the dead worker's executions.
	Bury func(ctx context.Context, c belay.Client, w belay.Worker) error
	// CleanUp, if set, is called after sessions of dead workers of this host have ended, to remove
	// files and other things that no run waits for. Calls do not overlap.
	CleanUp func(ctx context.Context)
	// Courier, if set, sends messages about executions that are scheduled to workers. Without a Courier,
	// workers claim all executions.
	Courier Courier
	// Followers is the largest number of followers of states; 0 means 5,000. StatusWindow is how many
	// changes a follower may be behind before it gets a snapshot; 0 means 65,536.
	Followers, StatusWindow int
	// Pulse makes a separate goroutine commit signs of life (heartbeats and renewals), at the same
	// time as all other batches. It is for stores that keep a connection for store.Urgent commits.
	Pulse bool
	// Gather, if set, is called before a batch is taken from the queue, and may wait for more
	// commands; urgent says that the goroutine for signs of life (Pulse) calls it. It returns false
	// if another call with the same value of urgent still waits: that call's batch has the
	// commands. Order, if set, sorts the commands of each class. Without Order they stay in the
	// order of arrival, which depends on the Go scheduler. With Gather and Order a simulation has
	// the same batches in every run.
	Gather func(urgent bool) bool
	Order  func(a, b machine.Command) int
	// Settle, if set, is called before due executions are scheduled to workers. A simulation waits in it until
	// everything has happened that happens at the same instant.
	Settle func()
	// Observe, if set, is called with the results of each batch after the callers have their
	// answers. Calls do not overlap, even if batches are committed at the same time. Observe must
	// return quickly.
	Observe func(*Observation)
}

// Engine is a belay.Backend on a store.
type Engine struct {
	Reader
	opt Options
	log *slog.Logger

	committer   *committer
	dispatcher  *dispatcher
	sweeper     *sweeper
	localReaper *localReaper
	firing      *firing
	alerter     *alerter
	scheduler   *scheduler // nil without a Courier
	keyring     keyring
	hooks       hookWatch
	observers   []observer // set before any goroutine starts
	outage      outage
	erasing     chan belay.ExecutionID // roots of partly deleted trees, which prune deletes completely

	ctx    context.Context // ends in the second stage of Close, when the queue is committed
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	committing sync.WaitGroup // the goroutines that commit to the store
	once       sync.Once

	failOnce sync.Once
	failed   chan struct{}
	failure  error // set before failed is closed
}

var _ belay.Backend = (*Engine)(nil)

// New starts an engine on a store. Close ends the engine; the caller closes the store.
func New(s store.Store, opt Options) *Engine {
	opt = opt.withDefaults()
	ctx, cancel := context.WithCancelCause(context.Background())
	e := &Engine{opt: opt, log: opt.Log, ctx: ctx, cancel: cancel, failed: make(chan struct{})}
	e.erasing = make(chan belay.ExecutionID, maxErasing)
	e.Reader = Reader{
		store: s, hub: newHub(), poll: opt.SlowPoll, ended: ctx.Done(), statuses: newStatuses(s, &opt),
	}
	e.committer = newCommitter(s, opt.Committers, opt.MaxBatch, e.published)
	e.dispatcher = newDispatcher(e)
	e.sweeper, e.localReaper, e.firing, e.alerter = newSweeper(e), newLocalReaper(e), newFiring(e), newAlerter(e)
	e.committer.targets = newTargetList(s)
	e.observers = []observer{e.dispatcher, e.localReaper, e.sweeper, e.hub, e.statuses, &e.keyring,
		&witness{log: e.log}, e.committer.targets, e.alerter, &e.hooks}
	if opt.Courier != nil {
		e.scheduler = newScheduler(e, opt.Courier)
		e.observers = append(e.observers, e.scheduler) // after the dispatcher, whose hints it reads
	}
	e.committer.unsure = e.statuses.lose
	e.committer.begin = func() began { return began{e.dispatcher.begin(), e.hub.begin()} }
	e.committer.claims = e.dispatcher.join
	e.committer.beat, e.committer.sweep = e.sweeper.beat, e.sweeper.nudge
	e.committer.broken = e.fail
	e.committer.gather, e.committer.order = opt.Gather, opt.Order
	if opt.Observe != nil {
		var one sync.Mutex
		e.committer.observe = func(o *Observation) {
			one.Lock()
			defer one.Unlock()
			opt.Observe(o)
		}
	}
	e.committer.pulse = opt.Pulse
	for range opt.Committers {
		e.committing.Go(func() { e.committer.run(store.Waiting(ctx, rowPatience)) })
	}
	if opt.Pulse {
		e.committing.Go(func() { e.committer.beats(store.Waiting(ctx, beatPatience)) })
	}
	e.serve(e.committer.blocked.run)
	e.keyring.want = make(chan struct{}, 1)
	e.serve(func(ctx context.Context) { e.keyring.run(ctx, s) })
	h, shared := s.(store.Hinter)
	e.sweeper.shared, e.dispatcher.shared = shared, shared
	e.serve(e.dispatcher.run)
	e.serve(e.sweeper.run)
	e.serve(e.firing.run)
	e.serve(e.alerter.run)
	e.serve(e.localReaper.run)
	e.serve(e.localReaper.cleanUp)
	e.serve(e.statuses.run)
	if e.scheduler != nil {
		e.serve(e.scheduler.run)
	}
	if shared {
		r := &listener{engine: e, hinter: h}
		r.disconnected.Store(true) // true until the listener is connected
		e.serve(r.listen)
		e.serve(r.poll)
	}
	e.serve(e.prune)
	return e
}

func (o Options) withDefaults() Options {
	if o.MaxBatch == 0 {
		o.MaxBatch = 1000
	}
	if o.Committers == 0 {
		o.Committers = 1
	}
	if o.SlowPoll == 0 {
		o.SlowPoll = 30 * time.Second
	}
	if o.HintPoll == 0 {
		o.HintPoll = 5 * time.Second
	}
	o.HintPoll = min(o.HintPoll, o.SlowPoll)
	if o.Retention == 0 {
		o.Retention = 30 * 24 * time.Hour
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.IDs == nil {
		o.IDs = uid.New
	}
	if o.Random == nil {
		o.Random = func(b []byte) { _, _ = rand.Read(b) } // never fails since Go 1.24
	}
	if o.Jitter == nil {
		o.Jitter = mrand.Float64
	}
	return o
}

const (
	// rowPatience is how long a batch waits for rows that another transaction has locked. It is
	// longer than commits of other servers take. After that time the commands that need the locked
	// rows leave the batch.
	rowPatience = 250 * time.Millisecond
	// beatPatience is how long a batch of heartbeats waits for rows that another transaction has
	// locked.
	beatPatience = 100 * time.Millisecond
)

// serve runs a service until the engine ends. The reads of a service are urgent, so that they do
// not wait for other reads.
func (e *Engine) serve(run func(context.Context)) {
	e.wg.Go(func() { run(store.Urgent(e.ctx)) })
}

// Close stops the engine in two stages and waits until it has stopped.
func (e *Engine) Close() error {
	e.once.Do(func() {
		e.dispatcher.stop()
		e.committer.stop()
		e.committing.Wait()
		e.cancel(errClosed)
	})
	e.wg.Wait()
	return nil
}

// errClosed refuses calls after Close.
var errClosed = &belay.Error{Code: belay.CodeUnavailable, Message: "the engine is stopping", RetryAfter: time.Second}

// Failed returns a channel that is closed when the store refuses all writes because a write to its
// disk has failed. This process must end then, because only a new process can find out, by reading
// the database, whether the last commits are in it.
func (e *Engine) Failed() <-chan struct{} { return e.failed }

// Failure returns the error of the store after the channel of Failed is closed.
func (e *Engine) Failure() error {
	select {
	case <-e.failed:
		return e.failure
	default:
		return nil
	}
}

func (e *Engine) fail(err error) {
	e.failOnce.Do(func() {
		e.log.Error("the store has failed; this process must end", "error", err)
		e.failure = err
		close(e.failed)
	})
}

// Stats returns counts of the engine's writes since it started.
func (e *Engine) Stats() Stats {
	e.sweeper.mu.Lock()
	marks := e.sweeper.marks
	e.sweeper.mu.Unlock()
	e.committer.mu.Lock()
	defer e.committer.mu.Unlock()
	s := e.committer.stats
	s.Marks = marks
	return s
}

// do commits one command.
func (e *Engine) do(ctx context.Context, c machine.Command) (*machine.Reply, error) {
	call := e.committer.send(c)
	return e.await(ctx, call)
}

// await waits for the reply of a command that was sent. The reply is never nil. If ctx ends first,
// the outcome of the command is unknown.
func (e *Engine) await(ctx context.Context, call *call) (*machine.Reply, error) {
	select {
	case r := <-call.reply:
		if r.Replayed {
			belay.NoteReplay(ctx)
		}
		return r, r.Err
	case <-ctx.Done():
		return &machine.Reply{}, &belay.Error{
			Code: belay.CodeUnavailable,
			Message: "the call ended before the reply arrived; the command may have been " +
				"carried out or not",
			Err: context.Cause(ctx),
		}
	}
}

// observer is a part of the engine that keeps hints about the stored data. The engine reports every
// change to it that can make its hints wrong.
type observer interface {
	// observe receives a batch that this engine has committed, before the batch's callers have
	// their answers. It runs between two batches and must return quickly.
	observe(b *batch)
	// onHint receives a hint: a message of another server about a change.
	onHint(h store.Hint)
}

// published passes a batch to the observers and sends the batch's follow-up commands.
func (e *Engine) published(b *batch) {
	e.committer.health.logChanges(e.log, b.rows, e.store.Vitals())
	for _, o := range e.observers {
		o.observe(b)
	}
	for i := range b.replies {
		for _, c := range b.replies[i].Follow {
			if s, ok := c.(*machine.BeginSwap); ok {
				s.Execution = belay.ExecutionID(e.opt.IDs())
			}
			e.committer.send(c)
		}
	}
}

// sleep waits for d. It reports false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
