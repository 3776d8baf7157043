// Package dispatch connects the engine's scheduler with RabbitMQ: it sends messages to the queues of workers,
// and gives dead letters to the engine.
//
// A worker that wants messages asks a server for its queue ([Post.Connect]). From then on this server, and only
// this server, schedules executions to the worker. When the worker's session has ended, the queue is deleted.
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
	// Living lists the sessions with these ids that have not ended.
	Living(ctx context.Context, ids []belay.WorkerID) ([]belay.Worker, error)
}

// look is how often a Post looks for sessions that have ended.
const look = 15 * time.Second

// Post is an engine.Courier on RabbitMQ.
type Post struct {
	queues  map[string]bool
	broker  *broker.Broker
	options broker.Options
	log     *slog.Logger
	engine  Engine // set when Run begins

	mu      sync.Mutex
	workers map[belay.WorkerID]string // the names of the queues in RabbitMQ
}

var _ engine.Courier = (*Post)(nil)

// New makes a Post for executions of some queues; Run starts it.
func New(o broker.Options, queues []string) (*Post, error) {
	p := &Post{queues: make(map[string]bool), options: o, log: o.Log, workers: make(map[belay.WorkerID]string)}
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
	for retry.Sleep(ctx, look) {
		p.bury(ctx)
	}
	all.Wait()
	return nil
}

// State returns the state of the connections.
func (p *Post) State() broker.State { return p.broker.State() }

// Counters returns the counters of messages.
func (p *Post) Counters() broker.Counters { return p.broker.Counters() }

// Connect declares the queue of a worker, and returns its name. From now on messages reach the worker. The worker
// calls it at the beginning, and again when it notices that its queue is missing.
func (p *Post) Connect(ctx context.Context, w belay.WorkerID) (queue string, err error) {
	if queue, err = p.broker.Declare(ctx, w); err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.workers[w] = queue
	return queue, nil
}

// Carries implements engine.Courier.
func (p *Post) Carries(queue string) bool { return p.queues[queue] }

// Reaches implements engine.Courier.
func (p *Post) Reaches(w belay.WorkerID) bool {
	return p.queueOf(w) != "" && p.broker.State().Ready() == nil
}

func (p *Post) queueOf(w belay.WorkerID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.workers[w]
}

// Send implements engine.Courier. If the queue was deleted, messages do not reach the worker any more
// until it connects again. Send does not declare the queue again: see [broker.Broker.Declare].
func (p *Post) Send(ctx context.Context, a engine.Assigned) error {
	queue := p.queueOf(a.Worker)
	if queue == "" {
		return &belay.Error{Code: belay.CodeNotFound, Op: "send", Message: "the worker has no queue any more"}
	}
	err := p.broker.Publish(ctx, queue, broker.Message{Execution: a.Execution, Token: a.Token, Worker: a.Worker})
	if belay.CodeOf(err) == belay.CodeNotFound {
		p.forget(a.Worker)
	}
	return err
}

func (p *Post) forget(w belay.WorkerID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.workers, w)
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

// bury deletes the queues of sessions that have ended.
func (p *Post) bury(ctx context.Context) {
	p.mu.Lock()
	ids := slices.Collect(maps.Keys(p.workers))
	p.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	living, err := p.engine.Living(ctx, ids)
	if err != nil {
		return // the next look tries again
	}
	for _, w := range living {
		ids = slices.DeleteFunc(ids, func(id belay.WorkerID) bool { return id == w.ID })
	}
	for _, id := range ids {
		if err := p.broker.Delete(ctx, p.queueOf(id)); err != nil {
			continue // likewise; RabbitMQ deletes an unused queue by itself after a while
		}
		p.forget(id)
	}
}
