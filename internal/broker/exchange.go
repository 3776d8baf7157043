package broker

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/retry"
	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// pulse is how often a message looks for the connection.
	pulse = 10 * time.Millisecond
	// spare is how many channels without a message the connection keeps open.
	spare = 32
)

// Event is a message for an exchange of other programs.
type Event struct {
	// ID is the same in all repeats of the message, so that consumers can recognize them.
	ID   string
	Type string
	At   time.Time
	// Headers have texts and int64 numbers.
	Headers map[string]any
	Body    []byte // JSON
}

// Exchanges publishes messages to exchanges that other programs have declared. It has a connection of its own, and
// each message a channel of its own, because RabbitMQ closes the channel of a message that it refuses, and reads
// nothing from a connection that publishes too fast. So a message that fails affects no other message, and no worker.
type Exchanges struct {
	options Options
	link    *link
	active  atomic.Int64 // the messages under way

	mu   sync.Mutex
	open *outlets // nil while there is no connection
}

// outlets are the channels of one connection.
type outlets struct {
	connection *connection

	mu   sync.Mutex
	idle []*outlet
}

// outlet is a channel that confirms messages, one at a time.
type outlet struct {
	channel *amqp.Channel
	closed  chan *amqp.Error
}

// NewExchanges makes an Exchanges; Run starts it.
func NewExchanges(o Options) (*Exchanges, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	x := &Exchanges{options: o}
	x.link = &link{options: o, role: "events", log: o.Log, serve: x.serve, counters: new(counters)}
	return x, nil
}

// Run keeps the connection open until ctx is done, and for a moment longer while messages are under way. It returns
// nil.
func (x *Exchanges) Run(ctx context.Context) error {
	within, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	over := context.AfterFunc(ctx, func() {
		defer stop()
		for end := time.Now().Add(closeTimeout); x.active.Load() > 0 && time.Now().Before(end); {
			retry.Sleep(within, pulse)
		}
	})
	defer over()
	x.link.run(within)
	return nil
}

// State returns the state of the connection.
func (x *Exchanges) State() Link { return x.link.current() }

// Check returns an error if Belay never publishes to an exchange of this name. The exchanges and queues of Belay are
// not for events: neither its own exchanges, nor the default exchange, which leads to each queue.
func (x *Exchanges) Check(exchange string) error {
	prefix := x.options.Prefix
	if exchange == "" || exchange == prefix || strings.HasPrefix(exchange, prefix+".") {
		return &belay.Error{Code: belay.CodeForbidden, Op: publishTo(exchange), Message: fmt.Sprintf(
			"the default exchange, and exchanges whose names begin with %s., are not for events", prefix)}
	}
	return nil
}

func publishTo(exchange string) string {
	return fmt.Sprintf("publish to the exchange %.100q", exchange)
}

// serve keeps the channels of one connection until it ends.
func (x *Exchanges) serve(ctx context.Context, c *connection, ready func()) error {
	x.hold(&outlets{connection: c})
	ready()
	<-ctx.Done()
	x.hold(nil)
	return context.Cause(ctx)
}

func (x *Exchanges) hold(o *outlets) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.open = o
}

// outlets returns the channels of the open connection. It waits for a moment if there is none.
func (x *Exchanges) outlets(ctx context.Context, op string) (*outlets, error) {
	for end := time.Now().Add(x.options.patience); ; {
		x.mu.Lock()
		o := x.open
		x.mu.Unlock()
		if o != nil {
			return o, nil
		}
		if time.Now().After(end) || !retry.Sleep(ctx, pulse) {
			return nil, x.link.notConnected(op)
		}
	}
}

// Publish sends a message, and waits until RabbitMQ has confirmed it. Errors have these codes: forbidden if Belay or
// RabbitMQ does not permit it; not_found if the exchange does not exist; queue_full if a queue behind the exchange has
// refused the message; and unavailable if the message could not be published now. After unavailable, and if ctx ends
// first, RabbitMQ may have the message all the same. A message that no queue gets is a success.
func (x *Exchanges) Publish(ctx context.Context, exchange, key string, e *Event) error {
	op := publishTo(exchange)
	if err := x.Check(exchange); err != nil {
		return err
	}
	x.active.Add(1)
	defer x.active.Add(-1)
	all, err := x.outlets(ctx, op)
	if err != nil {
		return err
	}
	if reason := x.link.current().Blocked; reason != "" {
		return blockedError(op, reason)
	}
	err = all.publish(ctx, x.options.ConfirmTimeout, exchange, key, &amqp.Publishing{
		ContentType: "application/json", DeliveryMode: amqp.Persistent, AppId: "belay", MessageId: e.ID, Type: e.Type,
		Timestamp: e.At, Headers: e.Headers, Body: e.Body,
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return x.explain(op, exchange, err)
}

func (x *Exchanges) explain(op, exchange string, err error) error {
	var e *amqp.Error
	refused := errors.As(err, &e)
	_, vhost, user := x.options.place()
	switch {
	case errors.Is(err, errRefused):
		return &belay.Error{Code: belay.CodeQueueFull, Op: op, Message: "RabbitMQ refused the message, because a " +
			"queue behind the exchange is full or has no leader"}
	case refused && e.Code == amqp.NotFound:
		return &belay.Error{Code: belay.CodeNotFound, Op: op, Message: x.options.hide(fmt.Sprintf("RabbitMQ's "+
			"virtual host %q has no such exchange; Belay does not declare it: that is for the program that receives "+
			"the messages", vhost))}
	case refused && e.Code == amqp.AccessRefused:
		p := regexp.QuoteMeta(x.options.Prefix)
		name := strings.ReplaceAll(regexp.QuoteMeta(exchange), "'", `'\''`)
		return &belay.Error{Code: belay.CodeForbidden, Op: op, Message: x.options.hide(fmt.Sprintf("RabbitMQ does "+
			"not let the user %q publish there (%s); add the exchange to the user's permission to write, for example "+
			"with: rabbitmqctl set_permissions -p '%s' '%s' '^%s\\.' '^(%s\\.|amq\\.default$|%s$)' '^%s\\.'",
			user, e.Reason, vhost, user, p, p, name, p))}
	case err != nil && !refused:
		return unavailable(op, "%s", x.options.hide(err.Error()))
	}
	return x.options.explain(op, err)
}

// publish sends a message on a channel of its own. The channel is used again unless the message failed.
func (o *outlets) publish(
	ctx context.Context, limit time.Duration, exchange, key string, m *amqp.Publishing,
) error {
	out, err := o.take()
	if err != nil {
		return err
	}
	timer := o.connection.hurry()
	sent, err := out.channel.PublishWithDeferredConfirm(exchange, key, false, false, *m)
	timer.Stop()
	if err == nil {
		late := time.NewTimer(limit)
		defer late.Stop()
		select {
		case <-sent.Done():
			if err = out.result(sent.Acked()); err == nil || errors.Is(err, errRefused) {
				o.give(out)
				return err
			}
		case <-late.C:
			err = fmt.Errorf("RabbitMQ did not confirm the message within %s", limit)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	o.drop(out)
	return err
}

// result returns the result of the message that the channel has confirmed, refused, or given up because it was closed.
func (o *outlet) result(acked bool) error {
	switch {
	case acked:
		return nil
	case !o.channel.IsClosed():
		return errRefused
	}
	if e := <-o.closed; e != nil {
		return e
	}
	return errors.New("the connection is closed")
}

// take returns a channel that no message uses.
func (o *outlets) take() (*outlet, error) {
	o.mu.Lock()
	for n := len(o.idle); n > 0; n = len(o.idle) {
		out := o.idle[n-1]
		o.idle = o.idle[:n-1]
		if !out.channel.IsClosed() {
			o.mu.Unlock()
			return out, nil
		}
	}
	o.mu.Unlock()
	timer := o.connection.hurry()
	defer timer.Stop()
	ch, err := o.connection.amqp.Channel()
	if err != nil {
		return nil, err
	}
	if err := ch.Confirm(false); err != nil {
		return nil, err // RabbitMQ has closed the channel, or the connection has ended
	}
	return &outlet{ch, ch.NotifyClose(make(chan *amqp.Error, 1))}, nil
}

// give keeps a channel for another message.
func (o *outlets) give(out *outlet) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.idle) < spare {
		o.idle = append(o.idle, out)
		return
	}
	o.drop(out)
}

// drop closes a channel. If RabbitMQ does not answer, the connection is closed.
func (o *outlets) drop(out *outlet) {
	if out.channel.IsClosed() {
		return
	}
	go func() { // ends with the connection at the latest
		timer := o.connection.hurry()
		defer timer.Stop()
		_ = out.channel.Close() // the message has its answer
	}()
}
