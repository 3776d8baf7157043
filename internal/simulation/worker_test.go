package simulation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
)

// workerSlot is a place for one worker. After the process of the worker has ended, another process
// can start in the slot.
type workerSlot struct {
	w     *world
	name  string
	lives int
	rng   *rand.Rand // only the driver uses rng
	begin func(*process)
	proc  *process // nil while no process runs in the slot
}

// process is one process of a worker.
type process struct {
	w    *world
	name string
	pid  int
	link *link
	rng  *rand.Rand // only the goroutine that starts the process uses rng
	ttl  time.Duration
	stop func() // asks the process to stop, as SIGTERM does
	ctx  context.Context
	done chan struct{}
	// stuckAt is the time that the process's clock shows while the process is stopped. Otherwise it
	// is negative.
	stuckAt atomic.Int64

	mu  sync.Mutex
	at  time.Duration // the moment at which the last id was made
	nth uint64        // the number of ids made at that moment
}

// employ makes a slot for one worker and starts the worker's first process.
func (w *world) employ(name string, begin func(*process)) {
	s := &workerSlot{w: w, name: name, begin: begin, rng: w.random("slot " + name)}
	w.workers = append(w.workers, s)
	s.start()
}

func (s *workerSlot) start() {
	s.lives++
	s.w.pids++
	name := fmt.Sprintf("%s.%d", s.name, s.lives)
	p := &process{
		w: s.w, name: name, pid: 1000 + s.w.pids, link: s.w.newLink(name, s.rng.IntN(len(s.w.nodes))),
		rng: s.w.random(name),
		ttl: s.w.plan.ttl(s.rng), done: make(chan struct{}),
	}
	p.stuckAt.Store(-1)
	ctx, cancel := context.WithCancel(context.Background())
	p.ctx, p.stop = ctx, cancel
	s.proc = p
	go func() {
		defer close(p.done)
		s.begin(p)
	}()
}

// Boottime returns the time of the process's clock. While the process is stopped, Boottime returns
// the time at which it was stopped. After the process has been continued, Boottime returns the
// present time, which includes the time of the stop.
func (p *process) Boottime() time.Duration {
	if p.w.mutant != nil && p.w.mutant.blind {
		return 0
	}
	if at := p.stuckAt.Load(); at >= 0 {
		return time.Duration(at)
	}
	return p.w.gate.now()
}

// kill ends the process as kill -9 does.
func (p *process) kill() {
	p.w.history.gone(p.pid)
	p.link.frozen = false
	p.stuckAt.Store(-1)
	p.link.kill()
	p.stop()
}

// freeze stops the process, as SIGSTOP does. While the process is stopped, the simulation lets a
// waiting request of the process go only if the request had left the process before the stop. The
// clock that the process reads stands still.
func (p *process) freeze() {
	p.link.frozen = true
	p.stuckAt.Store(int64(p.w.gate.now()))
	for _, t := range p.w.gate.those(func(t *ticket) bool { return t.link == p.link && t.place == onRequest }) {
		t.onWire = p.w.rng.IntN(2) == 0
	}
}

func (p *process) thaw() {
	p.link.frozen = false
	p.stuckAt.Store(-1)
}

func (p *process) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// id makes 16 bytes that depend on the virtual time, so that the ids that one goroutine gets do not
// depend on how many ids other goroutines got before.
func (p *process) id() [16]byte {
	p.mu.Lock()
	if now := p.w.gate.now(); now != p.at {
		p.at, p.nth = now, 0
	}
	p.nth++
	name, n := fmt.Sprint(p.name, p.at), p.nth
	p.mu.Unlock()
	var b [16]byte
	p.w.fill(b[:], name, n)
	return b
}

// startSDK runs a worker of the SDK.
func startSDK(p *process) {
	w := worker.New(p.link, worker.Options{
		Concurrency: 1 + p.rng.IntN(3), Name: p.name, TTL: p.ttl, Grace: between(p.rng, 0, 2*time.Second),
		MaxFreeze: between(p.rng, time.Second, 8*time.Second), Linger: between(p.rng, time.Millisecond, time.Second),
		Log: slog.New(slog.DiscardHandler), Process: belay.Process{Host: "host", PID: p.pid}, Clock: p, IDs: p.id,
	})
	worker.Register(w, "play", player{w: p.w, p: p}.play)
	worker.Register(w, "swap", player{w: p.w, p: p}.swap)
	worker.Register(w, belay.NotificationWorkflow, player{w: p.w, p: p}.deliver)
	worker.Register(w, belay.PublishWorkflow, player{w: p.w, p: p}.deliver)
	if err := w.Run(p.ctx); err != nil && !errors.Is(err, context.Canceled) && p.w.longHealed() {
		p.w.history.noteError(p.name, err)
	}
}

// provenDead reports whether the worker process p of the simulation has ended or was killed, and
// the reason.
func (w *world) provenDead(p belay.Process) (string, bool) {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	if _, dead := w.history.crashed[p.PID]; dead {
		return fmt.Sprintf("process %d is gone", p.PID), true
	}
	return "", false
}
