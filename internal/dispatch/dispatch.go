// Package dispatch connects the engine's scheduler with RabbitMQ: it sends messages to the queues of workers,
// and gives dead letters to the engine.
//
// A worker that wants messages asks a server for its mailbox ([Post.Open]). The engine stores the name of the queue
// in the session, so that every server can send messages to the worker. When a server ends the session, it deletes
// the queue.
package dispatch

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/broker"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/retry"
)

// Engine is the part of an engine that a Post needs.
type Engine interface {
	// Undeliver takes back an execution whose message came back; see engine.Engine.
	Undeliver(ctx context.Context, id belay.ExecutionID, w belay.WorkerID, t belay.Token, waited time.Duration) error
}

const (
	// again is how long a Post waits before it tries again to delete queues.
	again = 15 * time.Second
	// maxRemoved is how many queues can wait to be deleted. RabbitMQ itself deletes others after a while.
	maxRemoved = 10_000
)

// Post is an engine.Courier on RabbitMQ.
type Post struct {
	queues  map[string]bool
	broker  *broker.Broker
	options broker.Options
	log     *slog.Logger
	engine  Engine // set when Run begins

	mu      sync.Mutex
	removed map[string]bool // queues to delete
	wake    chan struct{}   // has an element after a queue was added to removed
}

var _ engine.Courier = (*Post)(nil)

// New makes a Post for executions of some queues; Run starts it.
func New(o broker.Options, queues []string) (*Post, error) {
	p := &Post{
		queues: make(map[string]bool), options: o, log: o.Log, removed: make(map[string]bool),
		wake: make(chan struct{}, 1),
	}
	for _, q := range queues {
		p.queues[q] = true
	}
	b, err := broker.New(o, p.dead)
	if err != nil {
		return nil, err
	}
	p.broker = b
	return p, nil
}

// Run keeps the connections open, handles dead letters, and deletes the queues of sessions that have ended,
// until ctx is done. It returns nil.
func (p *Post) Run(ctx context.Context, e Engine) error {
	p.engine = e
	var all sync.WaitGroup
	all.Go(func() { _ = p.broker.Run(ctx) }) // returns nil
	all.Go(func() { p.remove(ctx) })
	all.Wait()
	return nil
}

// State returns the state of the connections.
func (p *Post) State() broker.State { return p.broker.State() }

// Counters returns the counters of messages.
func (p *Post) Counters() broker.Counters { return p.broker.Counters() }

// Depth returns the number of dead letters that no server has received yet.
func (p *Post) Depth(ctx context.Context) (int, error) { return p.broker.Depth(ctx) }

// Open implements engine.Courier. The worker opens its mailbox at the beginning, and again when it notices that its
// queue is missing.
func (p *Post) Open(ctx context.Context, w belay.WorkerID) (queue string, err error) {
	return p.broker.Declare(ctx, w)
}

// Carries implements engine.Courier.
func (p *Post) Carries(queue string) bool { return p.queues[queue] }

// Ready implements engine.Courier.
func (p *Post) Ready() bool { return p.broker.State().Ready() == nil }

// Send implements engine.Courier. If the queue was deleted, Send does not declare it again: see
// [broker.Broker.Declare].
func (p *Post) Send(ctx context.Context, queue string, a engine.Assigned) error {
	return p.broker.Publish(ctx, queue, broker.Message{Execution: a.Execution, Token: a.Token, Worker: a.Worker})
}

// Remove implements engine.Courier.
func (p *Post) Remove(queue string) {
	p.mu.Lock()
	if len(p.removed) < maxRemoved {
		p.removed[queue] = true
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// dead handles a dead letter. A letter that the engine refuses is of no use: the execution is not scheduled
// under its token any more.
func (p *Post) dead(ctx context.Context, d broker.Dead) error {
	waited := time.Duration(0)
	switch d.Cause {
	case broker.CauseExpired, broker.CauseUnknown: // the engine checks that the message can have expired
		waited = p.broker.TTL()
	}
	err := p.engine.Undeliver(ctx, d.Execution, d.Worker, d.Token, waited)
	switch belay.CodeOf(err) {
	case belay.CodeConflict, belay.CodeNotFound:
		return nil
	}
	return err
}

// remove deletes the queues of sessions that have ended, until ctx is done.
func (p *Post) remove(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		for p.removeAll(ctx) && retry.Sleep(ctx, again) {
		}
	}
}

// removeAll tries to delete the queues, and reports whether some of them are left.
func (p *Post) removeAll(ctx context.Context) (left bool) {
	p.mu.Lock()
	queues := slices.Collect(maps.Keys(p.removed))
	p.mu.Unlock()
	for _, q := range queues {
		if err := p.broker.Delete(ctx, q); err != nil {
			left = true
			continue
		}
		p.mu.Lock()
		delete(p.removed, q)
		p.mu.Unlock()
	}
	return left
}
