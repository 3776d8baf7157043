package broker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay/internal/retry"
	amqp "github.com/rabbitmq/amqp091-go"
)

// pause is how long a delivery that could not be handled is kept before it is given back, so that it
// does not come back at once.
const pause = time.Second

// errCancelled reports that RabbitMQ ended the consumption, because the queue was deleted or moved.
var errCancelled = errors.New("RabbitMQ cancelled the consumption of the queue, because the queue was deleted or moved")

// consumer consumes one queue on a connection.
type consumer struct {
	queue    string
	prefetch int  // how many deliveries are handled at the same time
	keep     bool // a delivery that could not be handled is handled again, and not given back
	reject   bool // a dropped delivery is rejected, so that the queue's dead-letter exchange gets it
	counters *counters
	link     *link
	random   func() [16]byte
	// handle handles a delivery. It returns the reason if it drops the delivery. An error gives the
	// delivery back to the queue.
	handle func(context.Context, *amqp.Delivery) (Reason, error)
	// consuming, if not nil, is called when the consumption has begun.
	consuming func()
	busy      atomic.Int64 // deliveries whose handling has begun and not ended
}

// errCalm ends a wary consumption.
var errCalm = errors.New("no unreadable delivery came for a while")

// run consumes the queue until the channel or the consumption ends or ctx is done, and returns the
// reason. It waits for its handlers; their context ends when run is about to return.
//
// RabbitMQ gives a message up after its eighth delivery. So after an unreadable delivery has ended a
// connection, run is wary: it receives one message at a time, so that the deliveries of the messages behind
// the unreadable one do not count. It returns after a while without such an end.
func (r *consumer) run(ctx context.Context, c *connection) error {
	timer := c.hurry()
	defer timer.Stop()
	ch, err := c.amqp.Channel()
	if err != nil {
		return err
	}
	defer func() {
		if !ch.IsClosed() {
			_ = ch.Close() // RabbitMQ gives unacknowledged deliveries back; an error ends the connection anyway
		}
	}()
	prefetch, calm := r.prefetch, (<-chan time.Time)(nil)
	if r.link.isWary() {
		prefetch, calm = 1, time.After(settled)
	}
	if err := ch.Qos(prefetch, 0, false); err != nil {
		return err
	}
	cancelled := ch.NotifyCancel(make(chan string, 1))
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	deliveries, err := ch.ConsumeWithContext(context.Background(), r.queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	timer.Stop()
	if r.consuming != nil {
		r.consuming()
	}
	ctx, stop := context.WithCancel(ctx)
	var handlers sync.WaitGroup
	defer handlers.Wait()
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e := <-closed:
			if e == nil {
				return errors.New("the channel is closed")
			}
			return e
		case <-cancelled:
			return errCancelled
		case <-calm:
			r.link.setWary(false)
			return errCalm
		case d, ok := <-deliveries:
			if !ok {
				return reasonOf(closed, cancelled)
			}
			r.counters.received.Add(1)
			r.busy.Add(1)
			handlers.Go(func() { // RabbitMQ sends no more than prefetch
				defer r.busy.Add(-1)
				r.one(ctx, &d)
			})
		}
	}
}

// reasonOf returns why the deliveries have ended.
func reasonOf(closed <-chan *amqp.Error, cancelled <-chan string) error {
	select {
	case <-cancelled:
		return errCancelled
	case e := <-closed:
		if e != nil {
			return e
		}
		return errors.New("the channel is closed")
	}
}

// one handles a delivery, and acknowledges it or gives it back.
func (r *consumer) one(ctx context.Context, d *amqp.Delivery) {
	for {
		bad, err := r.handle(ctx, d)
		switch {
		case err == nil && bad == "":
			r.counters.handled.Add(1)
			_ = d.Ack(false) // an error ends the channel, and RabbitMQ delivers the message again
			return
		case err == nil:
			r.counters.drop(bad)
			if r.reject {
				_ = d.Reject(false) // likewise
			} else {
				_ = d.Ack(false) // likewise
			}
			return
		case !retry.Sleep(ctx, retry.Spread(r.random, pause, pause/2)):
			return // RabbitMQ delivers it again when the channel is closed
		case !r.keep:
			r.counters.givenBack.Add(1)
			_ = d.Nack(false, true) // likewise
			return
		}
	}
}

// follow consumes a queue until ctx is done or the connection ends. It calls prepare before each try,
// which may declare the queue, and report with the reason after each try, which makes it an error that
// says what to do.
func (r *consumer) follow(ctx context.Context, c *connection, prepare func(context.Context) error,
	report func(error) error) {
	delays := retry.NewDelays(r.random)
	consuming := r.consuming
	r.consuming = func() {
		delays.Reset()
		if consuming != nil {
			consuming()
		}
	}
	for ctx.Err() == nil && !c.amqp.IsClosed() {
		err := prepare(ctx)
		if err == nil {
			err = r.run(ctx, c)
		}
		if ctx.Err() != nil || c.amqp.IsClosed() {
			return
		}
		if !errors.Is(err, errCalm) && !delays.Wait(ctx, report(err)) {
			return
		}
	}
}
