package broker

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/retry"
	amqp "github.com/rabbitmq/amqp091-go"
)

// Subscriber consumes foreign queues: queues that other programs have declared, and whose messages other programs send.
// It never declares, deletes or changes anything in RabbitMQ. All consumptions share one connection.
//
// No message ends the connection: a message whose headers the library cannot read, or whose body is too large, reaches
// the handler without them, and is rejected.
type Subscriber struct {
	options  Options
	counters *counters
	link     *link

	mu   sync.Mutex
	now  *consuming    // the open connection, or nil
	news chan struct{} // closed when now changes
}

// consuming is the time of one connection.
type consuming struct {
	ctx        context.Context
	connection *connection
	users      sync.WaitGroup
}

// Refused counts messages of foreign queues that their handler has refused.
const Refused Reason = "refused"

// Arrival is a message of a foreign queue.
type Arrival struct {
	ID, Type                     string
	ContentType, ContentEncoding string
	Exchange, RoutingKey         string
	UserID                       string // RabbitMQ has checked it
	AppID, CorrelationID         string
	ReplyTo                      string
	Priority                     uint8
	Time                         time.Time
	Headers                      map[string]any
	Body                         []byte
	// Broken is TooLarge or Unreadable if Headers and perhaps Body are missing. The message is rejected in any case.
	Broken Reason
}

// ErrRefused is the answer of a handler that refuses a message for good. Other errors may wrap it.
var ErrRefused = errors.New("the message is refused")

// NewSubscriber makes a Subscriber; Run starts it. Messages with a larger body than most bytes are rejected.
func NewSubscriber(o Options, most int) (*Subscriber, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Subscriber{options: o, counters: new(counters), news: make(chan struct{})}
	s.link = &link{options: o, role: "triggers", log: o.Log, serve: s.serve, counters: s.counters,
		guard: uint64(max(1, most))}
	return s, nil
}

// Run keeps the connection open until ctx is done. It returns nil.
func (s *Subscriber) Run(ctx context.Context) error {
	s.link.run(ctx)
	return nil
}

// State returns the state of the connection.
func (s *Subscriber) State() State { return State{Consume: s.link.current()} }

// Counters returns the counters of this process.
func (s *Subscriber) Counters() Counters { return s.counters.snapshot() }

// CheckQueue returns CodeInvalid for the name of a queue that belongs to Belay or to RabbitMQ itself.
func (s *Subscriber) CheckQueue(queue string) error {
	for _, prefix := range []string{s.options.Prefix + ".", "amq."} {
		if strings.HasPrefix(queue, prefix) {
			return &belay.Error{Code: belay.CodeInvalid, Op: "consume a queue", Message: fmt.Sprintf(
				"the queue %.100q cannot be consumed: the names that begin with %s belong to Belay and RabbitMQ", queue,
				prefix)}
		}
	}
	return nil
}

// serve offers a connection to the consumptions until it ends.
func (s *Subscriber) serve(ctx context.Context, c *connection, ready func()) error {
	now := &consuming{ctx: ctx, connection: c}
	s.set(now)
	ready()
	<-ctx.Done()
	c.hangUp()
	s.set(nil)
	now.users.Wait()
	return errors.New("the connection is closed")
}

func (s *Subscriber) set(now *consuming) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now
	close(s.news)
	s.news = make(chan struct{})
}

// use returns the open connection, on which the caller must call users.Done, or nil and a channel that is closed when
// there may be one.
func (s *Subscriber) use() (*consuming, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil {
		s.now.users.Add(1)
	}
	return s.now, s.news
}

// Consume consumes a queue until ctx is done, over all connections. At most prefetch messages are handled at the same
// time. After nil from handle the message is acknowledged. After ErrRefused it is rejected, so that the dead-letter
// exchange of the queue gets it, if the queue has one; otherwise RabbitMQ drops it. After any other error handle is
// called again a second later, and the message stays with this consumer. When ctx or the connection ends, RabbitMQ
// gives all messages that have no answer to the next consumer.
//
// report gets nil when the consumption begins, and an error that says what to do each time when it cannot begin or has
// ended. Consume tries again with growing delays.
func (s *Subscriber) Consume(
	ctx context.Context, queue string, prefetch int, handle func(context.Context, *Arrival) error, report func(error),
) {
	if err := s.CheckQueue(queue); err != nil {
		report(err)
		<-ctx.Done()
		return
	}
	for ctx.Err() == nil {
		now, news := s.use()
		if now == nil {
			report(s.link.notConnected("consume the queue " + queue))
			select {
			case <-news:
			case <-ctx.Done():
			}
			continue
		}
		s.consume(ctx, now, queue, prefetch, handle, report)
	}
}

// consume consumes a queue on one connection.
func (s *Subscriber) consume(
	ctx context.Context, now *consuming, queue string, prefetch int, handle func(context.Context, *Arrival) error,
	report func(error),
) {
	defer now.users.Done()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	forget := context.AfterFunc(now.ctx, stop)
	defer forget()
	k := &consumer{
		queue: queue, prefetch: prefetch, keep: true, reject: true, counters: s.counters, link: s.link,
		random: s.options.Random, consuming: func() { report(nil) },
		handle: func(ctx context.Context, d *amqp.Delivery) (Reason, error) { return s.one(ctx, queue, d, handle) },
	}
	k.follow(ctx, now.connection, func(context.Context) error { return nil }, func(err error) error {
		err = s.options.explainForeign(queue, err)
		report(err)
		return err
	})
	if ctx.Err() == nil { // the connection is closed, and serve is about to notice it
		<-now.ctx.Done()
	}
}

// one handles a message.
func (s *Subscriber) one(
	ctx context.Context, queue string, d *amqp.Delivery, handle func(context.Context, *Arrival) error,
) (Reason, error) {
	a, bad := arrival(d), Refused
	if mark, marked := d.Headers[guardMark]; marked {
		if a.Broken, bad = Unreadable, Unreadable; mark == string(TooLarge) {
			a.Broken, bad = TooLarge, TooLarge
		}
	}
	if err := handle(ctx, a); !errors.Is(err, ErrRefused) && (err != nil || a.Broken == "") {
		return "", err
	}
	// A dead-letter exchange may lead back to the queue, and RabbitMQ does not end such a loop of rejections.
	if rejectedBefore(queue, d) && !retry.Sleep(ctx, retry.Spread(s.options.Random, pause, pause/2)) {
		return "", context.Cause(ctx)
	}
	return bad, nil
}

// rejectedBefore reports whether the message was rejected from the queue before.
func rejectedBefore(queue string, d *amqp.Delivery) bool {
	deaths, ok := d.Headers["x-death"].([]any)
	if !ok {
		return d.Headers[guardMark] != nil // guard has replaced the deaths
	}
	for _, death := range deaths {
		t, ok := death.(amqp.Table)
		if ok && t["queue"] == queue && t["reason"] == "rejected" {
			return true
		}
	}
	return false
}

func arrival(d *amqp.Delivery) *Arrival {
	return &Arrival{
		ID: d.MessageId, Type: d.Type, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding,
		Exchange: d.Exchange, RoutingKey: d.RoutingKey, UserID: d.UserId, AppID: d.AppId,
		CorrelationID: d.CorrelationId, ReplyTo: d.ReplyTo, Priority: d.Priority, Time: d.Timestamp,
		Headers: d.Headers, Body: d.Body,
	}
}

// explainForeign is explain for a queue that Belay does not declare.
func (o Options) explainForeign(queue string, err error) error {
	op := "consume the queue " + queue
	_, vhost, user := o.place()
	if errors.Is(err, errCancelled) {
		return &belay.Error{Code: belay.CodeNotFound, Op: op, Message: fmt.Sprintf(
			"the queue %q in RabbitMQ's virtual host %q was deleted or moved; Belay declares no queue of a webhook",
			queue, vhost)}
	}
	var e *amqp.Error
	if !errors.As(err, &e) || isLogin(e) {
		return o.explain(op, err)
	}
	code, wait := belay.CodeConflict, o.later
	var text string
	switch e.Code {
	case amqp.NotFound:
		code, wait = belay.CodeNotFound, o.later/2
		text = fmt.Sprintf("RabbitMQ's virtual host %q has no queue %q; create it, because Belay declares no queue of "+
			"a webhook (%s)", vhost, queue, e.Reason)
	case amqp.AccessRefused:
		code = belay.CodeForbidden
		text = fmt.Sprintf("the user %q may not consume the queue %q in RabbitMQ's virtual host %q (%s); add "+
			"the queue to the last pattern, the one for reading, of: rabbitmqctl set_permissions -p '%s' '%s' … … "+
			"'^(%s\\.|%s$)'", user, queue, vhost, e.Reason, vhost, user, regexp.QuoteMeta(o.Prefix),
			regexp.QuoteMeta(queue))
	case amqp.ResourceLocked:
		text = fmt.Sprintf("another connection alone may use the queue %q (%s)", queue, e.Reason)
	case amqp.PreconditionFailed, amqp.NotImplemented, amqp.NotAllowed:
		text = fmt.Sprintf("RabbitMQ does not let Belay consume the queue %q, or has ended the consumption (%s)", queue,
			e.Reason)
	default:
		return o.explain(op, err)
	}
	return &belay.Error{Code: code, Op: op, Message: o.hide(text), RetryAfter: wait}
}
