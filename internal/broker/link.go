package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/retry"
	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	dialTimeout  = 10 * time.Second // for TCP, TLS and the handshake of AMQP together
	closeTimeout = 2 * time.Second
	heartbeat    = 10 * time.Second
	// settled is how long a connection must have been open until the next attempt to connect begins with
	// the shortest delay again.
	settled = 5 * time.Second
)

// link keeps one connection to RabbitMQ open.
type link struct {
	options Options
	role    string // what the connection is for, for the logs
	log     *slog.Logger

	counters *counters

	// serve uses a connection. It returns when the connection ends or ctx is done, after all goroutines
	// that it started. It calls ready once it is set up.
	serve func(ctx context.Context, c *connection, ready func()) error

	// alarmed, if not nil, receives each change of the reason for which RabbitMQ accepts no messages.
	alarmed func(reason string)

	// changes, if not nil, has an element after the state has changed.
	changes chan struct{}

	mu    sync.Mutex
	state Link
	now   *connection // the open connection, or nil
	wary  bool        // an unreadable delivery has ended a connection; see consumer.run
}

// connection is one open connection.
type connection struct {
	amqp *amqp.Connection
	raw  net.Conn
	end  context.CancelCauseFunc // ends the context of the connection
	call time.Duration           // bounds one call
	done chan struct{}           // closed when the notifications are drained to their end

	calls sync.WaitGroup // the calls of do that have not returned
}

// errStopped is why a connection ends when its service stops.
var errStopped = errors.New("the service stops")

// run opens the connection and opens it again whenever it ends, until ctx is done.
func (l *link) run(ctx context.Context) {
	delays := retry.NewDelays(l.options.Random)
	for ctx.Err() == nil {
		begin := time.Now()
		err := l.session(ctx)
		if ctx.Err() != nil {
			l.change(func(s *Link) { s.Connected, s.Blocked, s.Err = false, "", errStopped })
			return
		}
		l.change(func(s *Link) { s.Blocked = "" })
		l.down(err)
		if time.Since(begin) > settled {
			delays.Reset()
		}
		if !delays.Wait(ctx, err) {
			return
		}
	}
}

// session opens the connection and uses it until it ends.
func (l *link) session(ctx context.Context) error {
	l.change(func(s *Link) { s.Attempts++ })
	ctx, end := context.WithCancelCause(ctx)
	defer end(errStopped)
	c, err := l.dial(ctx)
	if err != nil {
		return l.options.explain("connect to RabbitMQ", err)
	}
	c.end = end
	blocked := c.amqp.NotifyBlocked(make(chan amqp.Blocking, 16))
	closed := c.amqp.NotifyClose(make(chan *amqp.Error, 1))
	go l.watch(c, blocked, closed)
	l.hold(c)
	err = l.serve(ctx, c, l.up)
	l.hold(nil)
	c.close()
	if cause := context.Cause(ctx); cause != nil {
		err = cause // the end of the connection is the reason for the errors of the calls that used it
	}
	if isUnreadable(err) {
		l.counters.drop(Unreadable)
		l.setWary(true)
	}
	return l.options.explain("use RabbitMQ", err)
}

// dial connects and logs in.
func (l *link) dial(ctx context.Context) (*connection, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, fmt.Errorf("no connection within %s", dialTimeout))
	defer cancel()
	c := &connection{call: l.options.call, done: make(chan struct{})}
	stop := func() bool { return true }
	defer func() { stop() }()
	properties := amqp.NewConnectionProperties()
	properties["product"] = "Belay"
	properties.SetClientConnectionName(fmt.Sprintf("belay %s %s", l.options.Name, l.role))
	config := amqp.Config{
		Heartbeat: heartbeat, TLSClientConfig: l.options.TLS, Properties: properties,
		Dial: func(network, address string) (net.Conn, error) {
			raw, err := new(net.Dialer).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			deadline, _ := ctx.Deadline()
			if err := raw.SetDeadline(deadline); err != nil { // the library clears it after the handshake
				return nil, errors.Join(err, raw.Close())
			}
			c.raw = raw
			stop = context.AfterFunc(ctx, func() { raw.Close() })
			return raw, nil
		},
	}
	var err error
	if c.amqp, err = amqp.DialConfig(l.options.URL, config); err != nil {
		if c.raw != nil {
			c.raw.Close()
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	if !stop() {
		c.raw.Close()
		return nil, context.Cause(ctx)
	}
	return c, nil
}

// watch drains the notifications of a connection until it has ended, so that the library never waits
// for this package.
func (l *link) watch(c *connection, blocked <-chan amqp.Blocking, closed <-chan *amqp.Error) {
	defer close(c.done)
	for closed != nil {
		select {
		case b, ok := <-blocked:
			if !ok {
				blocked = nil
				continue
			}
			l.blocked(b)
		case e, ok := <-closed:
			if ok && e != nil {
				c.end(e)
				continue
			}
			closed = nil
		}
	}
	c.end(errors.New("the connection is closed"))
}

func (l *link) blocked(b amqp.Blocking) {
	reason := ""
	if b.Active {
		reason = "reason unknown"
		if b.Reason != "" {
			reason = b.Reason
		}
		l.log.Warn("RabbitMQ accepts no messages, because it has an alarm", "connection", l.role, "reason", reason)
	} else {
		l.log.Info("RabbitMQ accepts messages again", "connection", l.role)
	}
	l.change(func(s *Link) { s.Blocked, s.Since = reason, time.Now() })
	if l.alarmed != nil {
		l.alarmed(reason)
	}
}

// close ends the connection: politely, but within a bounded time, and with its socket in any case. A
// call that RabbitMQ does not read or answer returns then.
func (c *connection) close() {
	c.hangUp()
	<-c.done
	c.calls.Wait()
}

// hangUp closes the connection without waiting for its notifications.
func (c *connection) hangUp() {
	_ = c.amqp.CloseDeadline(time.Now().Add(closeTimeout)) // the socket is closed here in any case
	c.raw.Close()
}

// abort ends the connection at once, because of an error.
func (c *connection) abort(err error) {
	c.end(err)
	c.raw.Close()
}

// hurry ends the connection unless the returned timer is stopped in time. The caller is about to make a
// call, which returns when the connection ends.
func (c *connection) hurry() *time.Timer {
	return time.AfterFunc(c.call, func() {
		c.abort(unavailable("call RabbitMQ", "RabbitMQ did not answer for %s, so Belay closed the connection", c.call))
	})
}

func (l *link) hold(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = c
}

func (l *link) setWary(wary bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wary = wary
}

func (l *link) isWary() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wary
}

func (l *link) change(f func(*Link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.state)
	select {
	case l.changes <- struct{}{}:
	default: // nobody has read the last change yet, or nobody reads changes
	}
}

// current returns the state of the connection.
func (l *link) current() Link {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// up notes that the connection is open and set up.
func (l *link) up() {
	l.change(func(s *Link) { s.Connected, s.Err, s.Since = true, nil, time.Now() })
	host, vhost, user := l.options.place()
	l.log.Info("connected to RabbitMQ", "connection", l.role, "host", host, "vhost", vhost, "user", user)
}

// down notes that the connection has ended or was not opened. It logs an error once, and not again at
// each attempt that fails in the same way.
func (l *link) down(err error) {
	before := l.current()
	l.change(func(s *Link) {
		if s.Connected || s.Since.IsZero() {
			s.Since = time.Now()
		}
		s.Connected, s.Err = false, err
	})
	if before.Err == nil || before.Err.Error() != err.Error() {
		l.log.Warn("RabbitMQ cannot be used; Belay tries again until it can", "connection", l.role, "error", err)
	}
}

// trouble notes why the open connection is not set up, and returns the error with the advice.
func (l *link) trouble(op string, err error) error {
	err = l.options.explain(op, err)
	l.down(err)
	return err
}

// notConnected returns the error for a call that needs the connection while there is none.
func (l *link) notConnected(op string) error {
	if err := l.current().Err; err != nil {
		return &belay.Error{Code: belay.CodeUnavailable, Op: op, Message: "there is no connection to RabbitMQ",
			Err: err}
	}
	return unavailable(op, "there is no connection to RabbitMQ yet")
}

// do calls f with a channel of its own, because an error of RabbitMQ closes the channel. If f does not
// return in time, the connection is closed, so that f returns.
func (l *link) do(ctx context.Context, op string, f func(*amqp.Channel) error) error {
	l.mu.Lock()
	c := l.now
	l.mu.Unlock()
	if c == nil {
		return l.notConnected(op)
	}
	return l.options.explain(op, c.do(ctx, f))
}

func (c *connection) do(ctx context.Context, f func(*amqp.Channel) error) error {
	timer := c.hurry()
	result := make(chan error, 1)
	c.calls.Go(func() { // ends with the connection at the latest
		defer timer.Stop()
		ch, err := c.amqp.Channel()
		if err != nil {
			result <- err
			return
		}
		err = f(ch)
		if !ch.IsClosed() {
			_ = ch.Close() // f's error counts, and a connection that ends closes its channels
		}
		result <- err
	})
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
