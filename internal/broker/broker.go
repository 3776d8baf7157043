package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/retry"
	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// deadHandlers is how many dead letters a server handles at the same time.
	deadHandlers = 32
	// calls is how many declarations and deletions a server makes at the same time.
	calls = 8
)

// Broker is a server's side of RabbitMQ: it declares queues, publishes messages, and handles dead
// letters.
type Broker struct {
	options   Options
	dead      func(context.Context, Dead) error
	counters  *counters
	publishes *link
	consumes  *link
	publisher *publisher
	calls     chan struct{} // has an element for each declaration or deletion under way
}

// New makes a Broker; Run starts it. dead handles a dead letter: after nil the letter is acknowledged, and
// after an error it is kept and handled again later. Several dead letters are handled at the same time,
// and a letter may be handled more than once, by several servers.
func New(o Options, dead func(context.Context, Dead) error) (*Broker, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Broker{options: o, dead: dead, counters: new(counters), calls: make(chan struct{}, calls)}
	b.publisher = &publisher{counters: b.counters, slots: make(chan struct{}, o.Outstanding)}
	b.publishes = &link{options: o, role: "publish", log: o.Log, serve: b.publisher.serve,
		alarmed: b.publisher.blocked, counters: b.counters}
	b.publisher.link = b.publishes
	b.consumes = &link{options: o, role: "consume", log: o.Log, serve: b.consume, counters: b.counters}
	return b, nil
}

// Run keeps the connections open until ctx is done. It returns nil.
func (b *Broker) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { b.publishes.run(ctx) })
	all.Go(func() { b.consumes.run(ctx) })
	all.Wait()
	return nil
}

// State returns the state of the connections.
func (b *Broker) State() State {
	return State{Publish: b.publishes.current(), Consume: b.consumes.current()}
}

// Counters returns the counters of this process.
func (b *Broker) Counters() Counters { return b.counters.snapshot() }

// Declare declares the queue of a worker and returns its name. It may be repeated. If the queue was deleted, it
// must not be declared again before its receiver has noticed that ([Receiver.State] says not_found): RabbitMQ 3.10
// may otherwise attach the consumer of the deleted queue to the new one, and lose what it delivers to it.
func (b *Broker) Declare(ctx context.Context, w belay.WorkerID) (queue string, err error) {
	d := workerQueue(b.options.Prefix, w, b.options.TTL)
	op := "declare the queue of worker " + w.String()
	return d.name, b.call(ctx, op, func(ch *amqp.Channel) error { return d.on(ch) })
}

// Delete deletes a queue of a worker that has ended, with the messages in it. No error is returned if
// the queue does not exist.
func (b *Broker) Delete(ctx context.Context, queue string) error {
	if _, ok := workerOf(b.options.Prefix, queue); !ok {
		return invalidQueue("delete a queue", queue)
	}
	return b.call(ctx, "delete the queue "+queue, func(ch *amqp.Channel) error { return remove(ch, queue) })
}

// remove deletes a queue. RabbitMQ answers with success if there is none. Quorum queues cannot be deleted
// on the condition that they are empty or unused.
func remove(ch *amqp.Channel, queue string) error {
	_, err := ch.QueueDelete(queue, false, false, false)
	return err
}

func invalidQueue(op, queue string) error {
	return &belay.Error{Code: belay.CodeInvalid, Op: op,
		Message: fmt.Sprintf("%.300q is not the name of a worker's queue", queue)}
}

// Publish sends a message to a queue that Declare has returned, and waits until RabbitMQ has confirmed it.
// Errors have these codes: not_found if the queue does not exist, so that it must be declared again;
// queue_full if RabbitMQ has refused the message; forbidden if a permission is missing; and unavailable if
// the message could not be published now. After unavailable, and if ctx ends first, RabbitMQ may have the
// message all the same. A queue that is stuck is deleted, and the code is not_found.
func (b *Broker) Publish(ctx context.Context, queue string, m Message) error {
	if w, ok := workerOf(b.options.Prefix, queue); !ok || w != m.Worker {
		return invalidQueue("publish to the queue of worker "+m.Worker.String(), queue)
	}
	err := b.publisher.publish(ctx, queue, m)
	if !errors.Is(err, errStuck) {
		return err
	}
	// A quorum queue may have no leader for ever if RabbitMQ crashed right after it was declared. Deleting it
	// helps, which takes RabbitMQ five seconds. Messages are only hints.
	b.options.Log.Warn("a queue in RabbitMQ is stuck; Belay deletes it", "queue", queue)
	if failure := b.Delete(ctx, queue); failure != nil {
		return unavailable("publish to the queue of worker "+m.Worker.String(), "RabbitMQ did not confirm a message "+
			"to the queue %s within %s, and did not delete the queue: %v", queue, b.options.ConfirmTimeout, failure)
	}
	return &belay.Error{Code: belay.CodeNotFound, Op: "publish to the queue of worker " + m.Worker.String(),
		Message: "the queue " + queue + " was stuck, and was deleted", Err: err}
}

// Depth returns the number of dead letters that no server has received yet.
func (b *Broker) Depth(ctx context.Context) (n int, err error) {
	d := deadLetters(b.options.Prefix)
	err = b.call(ctx, "count the dead letters", func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(d.name, true, false, false, false, nil)
		n = q.Messages
		return err
	})
	return n, err
}

// call makes a declaration or deletion. At most calls of them are under way.
func (b *Broker) call(ctx context.Context, op string, f func(*amqp.Channel) error) error {
	select {
	case b.calls <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-b.calls }()
	return b.consumes.do(ctx, op, f)
}

// on declares the queue.
func (d declaration) on(ch *amqp.Channel) error {
	_, err := ch.QueueDeclare(d.name, true, false, false, false, d.args)
	return err
}

// onDead declares the dead-letter exchange and queue.
func (d declaration) onDead(ch *amqp.Channel) error {
	if err := ch.ExchangeDeclare(d.name, amqp.ExchangeFanout, true, false, false, false, nil); err != nil {
		return err
	}
	if err := d.on(ch); err != nil {
		return err
	}
	return ch.QueueBind(d.name, "", d.name, false, nil)
}

// consume handles dead letters on one connection until it ends.
func (b *Broker) consume(ctx context.Context, c *connection, ready func()) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	d := deadLetters(b.options.Prefix)
	var all sync.WaitGroup
	all.Go(func() { // when ctx is done, a call of this service that RabbitMQ does not answer ends too
		<-ctx.Done()
		c.hangUp()
	})
	all.Go(func() { b.repair(ctx, c, d, ready) })
	for _, former := range b.options.dead {
		all.Go(func() { b.drain(ctx, c, former) })
	}
	r := b.deadConsumer(d, ready)
	r.follow(ctx, c, func(ctx context.Context) error { return c.do(ctx, d.onDead) },
		func(err error) error { return b.consumes.trouble("consume the dead letters", err) })
	stop()
	all.Wait()
	return errors.New("the connection is closed")
}

func (b *Broker) deadConsumer(d declaration, consuming func()) *consumer {
	return &consumer{
		queue: d.name, prefetch: deadHandlers, keep: true, counters: b.counters, link: b.consumes,
		random: b.options.Random, consuming: consuming,
		handle: func(ctx context.Context, d *amqp.Delivery) (Reason, error) {
			letter, bad := decodeDead(b.options.Prefix, d)
			if bad != "" {
				return bad, nil
			}
			return "", b.dead(ctx, letter)
		},
	}
}

// repair declares the dead-letter exchange and queue from time to time, so that dead letters of queues
// are routed again soon after either was deleted.
func (b *Broker) repair(ctx context.Context, c *connection, d declaration, ready func()) {
	broken := false
	for retry.Sleep(ctx, retry.Spread(b.options.Random, b.options.repair, b.options.repair/4)) {
		err := c.do(ctx, d.onDead)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			_ = b.consumes.trouble("declare the dead-letter queue", err) // Broker.State tells it
		case broken:
			ready()
		}
		broken = err != nil
	}
}

// drainPause is how often a former dead-letter queue is looked at.
const drainPause = 30 * time.Second

// drain handles the dead letters of an earlier version's queue. Servers of that version may still run, and
// queues of workers may still name its exchange, so drain does not delete it.
func (b *Broker) drain(ctx context.Context, c *connection, former declaration) {
	exists := func(ctx context.Context) error {
		return c.do(ctx, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive(former.name, true, false, false, false, nil)
			return err
		})
	}
	r := b.deadConsumer(former, nil)
	r.follow(ctx, c, exists, func(error) error { // the queue need not exist
		return &belay.Error{Code: belay.CodeNotFound, RetryAfter: drainPause}
	})
}

// TTL returns how long a message waits for its worker.
func (b *Broker) TTL() time.Duration { return b.options.TTL }
