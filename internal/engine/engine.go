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

// Options tell an engine how to run. The zero value is what a user gets.
type Options struct {
	// MaxBatch is the most commands of one transaction; 0 means 1,000.
	MaxBatch int
	// Committers is how many transactions are written at a time; 0 means 1. It
	// is for stores that can write several at once.
	Committers int
	// SlowPoll is how long a hint that got lost may delay anything; 0 means
	// 30 s.
	SlowPoll time.Duration
	// HintPoll is how long a hint of another server that got lost may delay the
	// start of what is due while a worker waits for it here; 0 means 5 s, at most
	// SlowPoll.
	HintPoll time.Duration
	// Retention is how long an ended execution is kept; 0 means 30 days,
	// below 0 for ever.
	Retention time.Duration
	// Log receives what an operator should know; nil means slog.Default().
	Log *slog.Logger
	// IDs makes ids; nil means UUIDv7.
	IDs func() [16]byte
	// Random fills secrets; nil means crypto/rand.
	Random func([]byte)
	// Jitter is a random number in [0, 1); nil means math/rand.
	Jitter func() float64
	// Self is this process, and Dead proves the death of another one on this
	// host, or does not. Without Dead nobody is declared dead before its
	// time. Near, if set, says of which processes Dead can prove it at all.
	Self belay.Process
	Dead func(belay.Process) (proof string, dead bool)
	Near func(belay.Process) bool
	// Bury ends what a dead worker left behind on this host before its
	// executions go on elsewhere.
	Bury func(ctx context.Context, c belay.Client, w belay.Worker) error
	// Pulse has what keeps sessions alive committed beside all batches. It is for
	// stores that keep a connection for store.Urgent commits.
	Pulse bool
	// Gather, if set, is called before what has queued is taken as a batch,
	// and may wait for more to queue; urgent says that it is the pulse that asks.
	// Order, if set, compares commands to take those of one class in its order
	// instead of that of their arrival, which the scheduler decides. With both a
	// simulation has the same batches every time.
	Gather func(urgent bool)
	Order  func(a, b machine.Command) int
	// Observe, if set, is told what each batch did, after its callers have
	// their answers; batches that are committed at the same time one after the
	// other. It must be quick.
	Observe func(*Observation)
}

// Engine is a belay.Backend on a store.
type Engine struct {
	Reader
	opt Options
	log *slog.Logger

	committer  *committer
	dispatcher *dispatcher
	sweeper    *sweeper
	mourner    *mourner
	keyring    keyring
	observers  []observer // set before anything runs
	troubled   troubled

	ctx    context.Context // ends when the engine must not wait any more
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	committing sync.WaitGroup // with the store
	once       sync.Once

	failOnce sync.Once
	failed   chan struct{}
	failure  error // set before failed is closed
}

var _ belay.Backend = (*Engine)(nil)

// New starts an engine on a store. Close ends it; the store stays the caller's.
func New(s store.Store, opt Options) *Engine {
	opt = opt.withDefaults()
	ctx, cancel := context.WithCancelCause(context.Background())
	e := &Engine{opt: opt, log: opt.Log, ctx: ctx, cancel: cancel, failed: make(chan struct{})}
	e.Reader = Reader{store: s, hub: newHub(), poll: opt.SlowPoll, ended: ctx.Done()}
	e.committer = newCommitter(s, opt.Committers, opt.MaxBatch, e.published)
	e.dispatcher = newDispatcher(e)
	e.sweeper, e.mourner = newSweeper(e), newMourner(e)
	e.observers = []observer{e.dispatcher, e.mourner, e.sweeper, e.hub, &e.keyring}
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
	e.serve(e.committer.aside.run)
	e.keyring.want = make(chan struct{}, 1)
	e.serve(func(ctx context.Context) { e.keyring.run(ctx, s) })
	h, shared := s.(store.Hinter)
	e.sweeper.shared, e.dispatcher.shared = shared, shared
	e.serve(e.dispatcher.run)
	e.serve(e.sweeper.run)
	if shared {
		r := &ear{engine: e, hinter: h}
		r.deaf.Store(true) // until it is connected
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
	// rowPatience is how long a batch waits for rows that another transaction holds
	// before those that wait leave it: longer than commits of other servers take.
	rowPatience = 250 * time.Millisecond
	// beatPatience is how long heartbeats wait so, all together.
	beatPatience = 100 * time.Millisecond
)

// serve runs a service until the engine ends. What it reads does not wait for others.
func (e *Engine) serve(run func(context.Context)) {
	e.wg.Go(func() { run(store.Urgent(e.ctx)) })
}

// Close stops the engine in two stages and waits for it.
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

// Failed is closed when the store can keep nothing any more, because a write to
// its disk failed. Whether the last commits are there is known only to a new
// process that reads them, so this one must end.
func (e *Engine) Failed() <-chan struct{} { return e.failed }

// Failure says why, once Failed is closed.
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

// Stats count what the engine has written since it began.
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

// await waits for the reply of a command that was sent, which is never nil. When
// ctx ends first nobody knows what became of it.
func (e *Engine) await(ctx context.Context, call *call) (*machine.Reply, error) {
	select {
	case r := <-call.reply:
		if r.Replayed {
			belay.NoteReplay(ctx)
		}
		return r, r.Err
	case <-ctx.Done():
		return &machine.Reply{}, &belay.Error{
			Code: belay.CodeUnavailable, Message: "gave up waiting; it may have happened or not",
			Err: context.Cause(ctx),
		}
	}
}

// observer is a part of the engine that remembers something of what is stored, and hears
// what may be otherwise by now.
type observer interface {
	// observe hears of a batch that this engine has committed, before its callers have
	// their answers. It runs between two batches and must be quick.
	observe(b *batch)
	// heed hears a hint of another server on the store.
	heed(h store.Hint)
}

// published tells the observers of a batch, and sends what follows from it.
func (e *Engine) published(b *batch) {
	e.committer.life.tell(e.log, b.rows, e.store.Vitals())
	for _, o := range e.observers {
		o.observe(b)
	}
	for i := range b.replies {
		for _, c := range b.replies[i].Follow {
			e.committer.send(c)
		}
	}
}

// sleep waits for d and reports whether ctx is still alive.
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
