package broker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/retry"
	amqp "github.com/rabbitmq/amqp091-go"
)

// Receiver is a worker's side of RabbitMQ: it receives the messages for one worker.
type Receiver struct {
	options  Options
	worker   belay.WorkerID
	prefetch int
	handle   func(context.Context, Message) error
	counters *counters
	link     *link

	mu     sync.Mutex
	queues []string      // the newest last
	news   chan struct{} // closed when queues grows
}

// maxQueues is how many queues a receiver consumes at the same time: the worker's own, and former ones
// that are not empty yet.
const maxQueues = 4

// NewReceiver makes a Receiver for a worker; Run starts it. handle handles a message: after nil it is
// acknowledged, and after an error it is given back to the queue after a moment, at most eight times. At most
// slots messages are handled at the same time; the others wait in the queue, where their time runs. A
// message may be handled more than once.
func NewReceiver(o Options, w belay.WorkerID, slots int, handle func(context.Context, Message) error) (*Receiver,
	error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if slots < 1 || slots > 10_000 {
		return nil, invalid("a worker handles 1 to 10000 messages at the same time, not %d", slots)
	}
	r := &Receiver{options: o, worker: w, prefetch: slots, handle: handle, counters: new(counters),
		news: make(chan struct{})}
	r.link = &link{options: o, role: "receive", log: o.Log, serve: r.consume, counters: r.counters,
		changes: make(chan struct{}, 1)}
	return r, nil
}

// PrefixOf returns the prefix of the names of Belay in RabbitMQ, from the name of a worker's queue; empty if it is not
// such a name. A worker uses the prefix of its server.
func PrefixOf(queue string) string {
	prefix, _, _ := strings.Cut(queue, ".worker.")
	if _, ok := workerOf(prefix, queue); !ok {
		return ""
	}
	return prefix
}

// CheckURL refuses a text that is not the URL of a RabbitMQ. The error has no part of the text.
func CheckURL(text string) error { return checkURL(text) }

// Follow makes the receiver consume the queue that a server has declared for the worker. The receiver
// still consumes the queues of former calls until they are empty.
func (r *Receiver) Follow(queue string) error {
	if w, ok := workerOf(r.options.Prefix, queue); !ok || w != r.worker {
		return invalidQueue("consume the queue of worker "+r.worker.String(), queue)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queues) > 0 && r.queues[len(r.queues)-1] == queue {
		return nil
	}
	r.queues = append(slices.DeleteFunc(r.queues, func(q string) bool { return q == queue }), queue)
	r.queues = r.queues[max(0, len(r.queues)-maxQueues):]
	close(r.news)
	r.news = make(chan struct{})
	return nil
}

// Run keeps the connection open until ctx is done. It returns nil.
func (r *Receiver) Run(ctx context.Context) error {
	r.link.run(ctx)
	return nil
}

// State returns the state of the connection. It is connected if the newest queue is consumed.
func (r *Receiver) State() State { return State{Consume: r.link.current()} }

// Changes has an element after the state has changed.
func (r *Receiver) Changes() <-chan struct{} { return r.link.changes }

// Counters returns the counters of this receiver.
func (r *Receiver) Counters() Counters { return r.counters.snapshot() }

// following returns the queues and a channel that is closed when there are others.
func (r *Receiver) following() ([]string, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.queues), r.news
}

func (r *Receiver) isNewest(queue string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queues) > 0 && r.queues[len(r.queues)-1] == queue
}

// leave stops following a former queue.
func (r *Receiver) leave(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.queues); n > 0 && r.queues[n-1] != queue {
		r.queues = slices.DeleteFunc(r.queues, func(q string) bool { return q == queue })
	}
}

// consume consumes the queues on one connection until it ends.
func (r *Receiver) consume(ctx context.Context, c *connection, ready func()) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	all.Go(func() {
		<-ctx.Done()
		c.hangUp()
	})
	var mu sync.Mutex
	running, ended := make(map[string]bool), make(chan struct{}, maxQueues)
	for ctx.Err() == nil {
		queues, news := r.following()
		mu.Lock()
		for _, q := range queues {
			if !running[q] {
				running[q] = true
				all.Go(func() {
					r.one(ctx, c, q, ready)
					mu.Lock()
					defer mu.Unlock()
					delete(running, q)
					select {
					case ended <- struct{}{}:
					default: // the loop will look in any case
					}
				})
			}
		}
		mu.Unlock()
		select {
		case <-ctx.Done():
		case <-news:
		case <-ended:
		}
	}
	all.Wait()
	return errors.New("the connection is closed")
}

// one consumes one queue until ctx is done, or until the queue is a former one and empty.
func (r *Receiver) one(ctx context.Context, c *connection, queue string, ready func()) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	k := &consumer{
		queue: queue, prefetch: r.prefetch, counters: r.counters, random: r.options.Random, link: r.link,
		consuming: func() {
			if r.isNewest(queue) {
				ready()
			}
		},
		handle: r.delivered,
	}
	var all sync.WaitGroup
	all.Go(func() { r.watchFormer(ctx, c, k, stop) })
	k.follow(ctx, c, func(context.Context) error { return nil }, func(err error) error {
		if !r.isNewest(queue) {
			return r.options.explain("consume the former queue "+queue, err)
		}
		return r.link.trouble("consume the queue "+queue, err)
	})
	stop()
	all.Wait()
}

// delivered handles a delivery.
func (r *Receiver) delivered(ctx context.Context, d *amqp.Delivery) (Reason, error) {
	m, bad := decode(d)
	if bad == "" && m.Worker != r.worker {
		bad = WrongQueue
	}
	if bad != "" {
		return bad, nil
	}
	return "", r.handle(ctx, m)
}

// watchFormer stops the consumption of a queue once the queue is a former one and empty or deleted.
func (r *Receiver) watchFormer(ctx context.Context, c *connection, k *consumer, stop func()) {
	queue := k.queue
	for delays := retry.NewDelays(r.options.Random); delays.Wait(ctx, nil); {
		if r.isNewest(queue) {
			continue
		}
		var messages int
		err := r.options.explain("look at the queue", c.do(ctx, func(ch *amqp.Channel) error {
			q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
			messages = q.Messages
			return err
		}))
		if isMissing(err) || err == nil && messages == 0 && k.busy.Load() == 0 {
			r.leave(queue)
			stop()
			return
		}
	}
}
