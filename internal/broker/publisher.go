package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/belaydev/belay"
	amqp "github.com/rabbitmq/amqp091-go"
)

// publisher publishes messages with confirms. It is the service of the connection for publishing.
type publisher struct {
	link     *link
	counters *counters
	slots    chan struct{} // has an element for each message that waits for its confirmation

	mu      sync.Mutex
	session *publishing // nil while there is no connection
}

// publishing is the publisher's use of one connection.
type publishing struct {
	publisher  *publisher
	connection *connection
	channel    *amqp.Channel
	news       chan struct{}     // has an element if unsent may have a message
	confirmed  chan *publication // the messages with a confirmation
	awaited    sync.WaitGroup    // the goroutines that wait for confirmations

	mu      sync.Mutex
	last    uint64                  // the newest correlation id
	waiting map[uint64]*publication // by correlation id: handed to this session, and without an answer
	unsent  []*publication          // not written yet; those that have got an answer meanwhile are dropped
	heard   time.Time               // the time of the newest confirmation
	used    map[string]bool         // the queues that have got a message of this session
	ending  bool                    // the connection is about to end, so no message is handed to it any more
	renew   int                     // after how many more confirmations to renew the connection; 0 means never
}

// publication is one message on its way.
type publication struct {
	correlation  uint64
	queue        string
	message      Message
	began        time.Time
	returned     bool // RabbitMQ returned it; its confirmation follows
	confirmation *amqp.DeferredConfirmation
	result       chan error // has room for the result
}

// renewAfter is how many confirmations may follow a message that RabbitMQ never confirms, until the
// connection is renewed: the library remembers all of them.
const renewAfter = 10_000

// maxUsed is how many queues a session remembers.
const maxUsed = 100_000

var (
	errRefused  = errors.New("RabbitMQ refused the message")
	errReturned = errors.New("the queue does not exist")
	errStuck    = errors.New("RabbitMQ does not answer for this queue")
)

// publish sends a message to a queue and waits until RabbitMQ has confirmed it.
func (p *publisher) publish(ctx context.Context, queue string, m Message) error {
	op := "publish to the queue of worker " + m.Worker.String()
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	w := &publication{queue: queue, message: m, began: time.Now(), result: make(chan error, 1)}
	if err := p.hand(op, w); err != nil {
		<-p.slots
		return err
	}
	select {
	case err := <-w.result:
		return p.explain(op, queue, err)
	case <-ctx.Done():
		return ctx.Err() // the message keeps its slot until its session has an answer or ends
	}
}

func (p *publisher) explain(op, queue string, err error) error {
	switch {
	case errors.Is(err, errReturned):
		return &belay.Error{Code: belay.CodeNotFound, Op: op, Message: "the queue " + queue + " does not exist"}
	case errors.Is(err, errStuck):
		return &belay.Error{Code: belay.CodeUnavailable, Op: op, Message: "RabbitMQ does not confirm messages to " +
			"the queue " + queue, Err: err}
	case errors.Is(err, errRefused):
		return &belay.Error{Code: belay.CodeQueueFull, Op: op, Message: fmt.Sprintf("RabbitMQ refused the message, "+
			"because the queue %s is full or has no leader", queue)}
	}
	return p.link.options.explain(op, err)
}

// hand gives a message to the session of the open connection.
func (p *publisher) hand(op string, w *publication) error {
	p.mu.Lock()
	s := p.session
	p.mu.Unlock()
	if s == nil {
		return p.link.notConnected(op)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// With the lock, because blocked answers the messages of the session only once, at the beginning of an alarm.
	if reason := p.link.current().Blocked; reason != "" {
		return blockedError(op, reason)
	}
	if s.waiting == nil || s.ending {
		return p.link.notConnected(op)
	}
	s.last++
	w.correlation = s.last
	s.waiting[w.correlation] = w
	if len(s.unsent) >= cap(p.slots) {
		// An alarm has answered messages that RabbitMQ did not read, so their slots are free again.
		s.unsent = slices.DeleteFunc(s.unsent, func(w *publication) bool { return s.waiting[w.correlation] == nil })
	}
	s.unsent = append(s.unsent, w)
	select {
	case s.news <- struct{}{}:
	default:
	}
	return nil
}

// next returns the next message to write, nil if there is none.
func (s *publishing) next() *publication {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.unsent) > 0 {
		w := s.unsent[0]
		s.unsent[0], s.unsent = nil, s.unsent[1:]
		if s.waiting[w.correlation] != nil {
			return w
		}
	}
	return nil
}

// serve publishes on one connection until it ends.
func (p *publisher) serve(ctx context.Context, c *connection, ready func()) error {
	timer := c.hurry()
	ch, err := c.amqp.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	timer.Stop()
	if err != nil {
		return err
	}
	s := p.open(c, ch)
	// The channel of returns has no buffer: RabbitMQ's library goes on to the confirmation of a message only
	// after listen has received its return.
	returns := ch.NotifyReturn(make(chan amqp.Return))
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	p.use(s)
	ready()
	var all sync.WaitGroup
	all.Go(func() { s.send(ctx) })
	all.Go(func() { s.watch(ctx) })
	err = s.listen(returns, closed)
	p.use(nil)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err == nil {
		err = errors.New("the connection is closed")
	}
	c.abort(err)
	all.Wait()
	s.finish(err)
	return err
}

// open begins the use of a connection.
func (p *publisher) open(c *connection, ch *amqp.Channel) *publishing {
	return &publishing{
		publisher: p, connection: c, channel: ch, news: make(chan struct{}, 1), confirmed: make(chan *publication),
		waiting: make(map[uint64]*publication), used: make(map[string]bool),
	}
}

func (p *publisher) use(s *publishing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session = s
}

// send writes the messages to the connection. A write can block for as long as RabbitMQ does not read.
func (s *publishing) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.news:
		}
		for w := s.next(); w != nil && ctx.Err() == nil; w = s.next() {
			if err := s.write(w); err != nil {
				s.connection.abort(err)
				return
			}
		}
	}
}

func (s *publishing) write(w *publication) error {
	m, err := w.message.publishing(w.correlation)
	if err != nil {
		return err
	}
	s.publisher.counters.published.Add(1)
	w.confirmation, err = s.channel.PublishWithDeferredConfirm(amqp.DefaultExchange, w.queue, true, false, m)
	if err != nil {
		return err
	}
	// A goroutine for each message, because the library's notifications of confirmations keep all behind a
	// message that RabbitMQ does not confirm. There are as many as slots, and they end with the channel.
	s.awaited.Go(func() {
		<-w.confirmation.Done()
		s.confirmed <- w
	})
	return nil
}

// listen receives the answers of RabbitMQ until the channel is closed, and returns the reason.
func (s *publishing) listen(returns <-chan amqp.Return, closed <-chan *amqp.Error) error {
	var reason error
	for returns != nil || closed != nil {
		select {
		case r, ok := <-returns:
			if !ok {
				returns = nil
				continue
			}
			s.returned(r)
		case w := <-s.confirmed:
			s.confirm(w)
		case e, ok := <-closed:
			if !ok {
				closed = nil
			} else if e != nil {
				reason = e
			}
		}
	}
	return reason
}

func (s *publishing) returned(r amqp.Return) {
	correlation, err := strconv.ParseUint(r.CorrelationId, 10, 64)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.waiting[correlation]; w != nil {
		w.returned = true
	}
}

// confirm answers a message that RabbitMQ has confirmed or refused. When the channel is closed, the
// library refuses all messages that wait; finish answers those.
func (s *publishing) confirm(w *publication) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Now()
	if s.renew > 0 {
		if s.renew--; s.renew == 0 {
			s.connection.abort(unavailable("publish", "Belay renews the connection, because RabbitMQ never "+
				"confirmed a message on it"))
		}
	}
	switch counters := s.publisher.counters; {
	case s.waiting[w.correlation] == nil || !w.confirmation.Acked() && s.channel.IsClosed():
	case w.returned:
		counters.returned.Add(1)
		s.answerLocked(w, errReturned)
		if s.used[w.queue] || len(s.used) == maxUsed {
			// RabbitMQ numbers the messages of a channel for each quorum queue. A new queue with the name of one
			// that was deleted waits for the numbers that the deleted queue has got, and confirms and keeps back all
			// later messages of the channel.
			s.ending = true
			s.connection.abort(unavailable("publish", "Belay renews the connection, because the queue %s was deleted",
				w.queue))
		}
	case w.confirmation.Acked():
		counters.confirmed.Add(1)
		s.answerLocked(w, nil)
		if len(s.used) < maxUsed {
			s.used[w.queue] = true
		}
	default:
		counters.refused.Add(1)
		s.answerLocked(w, errRefused)
	}
}

// answerLocked gives a message its result and frees its slot.
func (s *publishing) answerLocked(w *publication, err error) {
	delete(s.waiting, w.correlation)
	<-s.publisher.slots
	w.result <- err
}

// finish answers all messages of the session, and makes it refuse others.
func (s *publishing) finish(err error) {
	go func() { // ends when the goroutines that wait for confirmations have ended
		s.awaited.Wait()
		close(s.confirmed)
	}()
	for w := range s.confirmed {
		s.confirm(w) // RabbitMQ may have confirmed it before the channel was closed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failLocked(err)
	s.waiting = nil
}

func (s *publishing) failLocked(err error) {
	for _, w := range s.waiting {
		s.publisher.counters.unconfirmed.Add(1)
		s.answerLocked(w, err)
	}
}

// blocked answers the messages of the session when RabbitMQ has an alarm: they may wait for hours.
func (p *publisher) blocked(reason string) {
	p.mu.Lock()
	s := p.session
	p.mu.Unlock()
	if s == nil || reason == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failLocked(blockedError("publish", reason))
}

// watch is the watchdog of the session: it ends the connection if RabbitMQ does not answer in time, and
// closes it if ctx is done.
func (s *publishing) watch(ctx context.Context) {
	limit := s.publisher.link.options.ConfirmTimeout
	ticks := time.NewTicker(max(time.Millisecond, min(time.Second, limit/8)))
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			s.connection.hangUp()
			return
		case now := <-ticks.C:
			if s.late(now.Add(-limit)) {
				s.connection.abort(unavailable("publish", "RabbitMQ did not confirm a message within %s, so "+
					"Belay closed the connection", limit))
			}
		}
	}
}

// late reports whether RabbitMQ has not confirmed any message since before the given time, although one
// waits. It gives up the messages that wait since then while others are confirmed, and otherwise the oldest:
// their queues may be stuck. RabbitMQ handles the messages of a channel in their order, and waits for ever
// for the leader of a queue that has none.
func (s *publishing) late(before time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest *publication
	for _, w := range s.waiting {
		switch {
		case !w.began.Before(before):
		case s.heard.After(w.began):
			s.stuckLocked(w)
		case oldest == nil || w.correlation < oldest.correlation:
			oldest = w
		}
	}
	if oldest == nil {
		return false
	}
	s.stuckLocked(oldest)
	return true
}

func (s *publishing) stuckLocked(w *publication) {
	s.publisher.counters.unconfirmed.Add(1)
	s.answerLocked(w, errStuck)
	if s.renew == 0 {
		s.renew = renewAfter
	}
}
