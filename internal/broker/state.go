package broker

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
)

// State is the state of the connections to RabbitMQ.
type State struct {
	// Publish is the connection for publishing; a Receiver has none.
	Publish Link
	// Consume is the connection for consuming and for declarations.
	Consume Link
}

// Link is the state of one connection.
type Link struct {
	// Connected reports whether the connection is open and set up.
	Connected bool
	// Since is the time of the last change of Connected or Blocked; zero before the first connection.
	Since time.Time
	// Blocked is RabbitMQ's reason for accepting no messages on this connection, for example "low on
	// memory". It is empty if RabbitMQ accepts messages.
	Blocked string
	// Err says why the connection is not open or not set up, and what to do about it. It is nil while
	// Connected is true.
	Err error
	// Attempts counts the attempts to connect.
	Attempts int64
}

// Ready returns nil if messages can be published and consumed, and otherwise the reason.
func (s State) Ready() error {
	switch {
	case !s.Publish.Connected && s.Publish.Err != nil:
		return s.Publish.Err
	case s.Publish.Blocked != "":
		return blockedError("publish", s.Publish.Blocked)
	case !s.Consume.Connected && s.Consume.Err != nil:
		return s.Consume.Err
	case !s.Publish.Connected || !s.Consume.Connected:
		return unavailable("connect to RabbitMQ", "no connection to RabbitMQ was opened yet")
	}
	return nil
}

func blockedError(op, reason string) error {
	return unavailable(op, "RabbitMQ accepts no messages, because it has an alarm (%s); free memory or disk space "+
		"on the machine of RabbitMQ (rabbitmq-diagnostics alarms shows the alarm)", reason)
}

// Counters count messages since the start of this process.
type Counters struct {
	Published   int64 // sent to RabbitMQ
	Confirmed   int64 // confirmed by RabbitMQ
	Refused     int64 // not confirmed, because a queue was full or failed
	Returned    int64 // returned, because the queue did not exist
	Unconfirmed int64 // without an answer, because the connection ended or RabbitMQ had an alarm
	Received    int64 // received by this process, dropped ones included
	Handled     int64 // handled and acknowledged
	GivenBack   int64 // given back, because handling them failed
	Dropped     map[Reason]int64
}

// counters are the counters while they change.
type counters struct {
	published, confirmed, refused, returned, unconfirmed, received, handled, givenBack atomic.Int64

	mu      sync.Mutex
	dropped map[Reason]int64
}

func (c *counters) drop(r Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped == nil {
		c.dropped = make(map[Reason]int64)
	}
	c.dropped[r]++
}

func (c *counters) snapshot() Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Counters{
		Published: c.published.Load(), Confirmed: c.confirmed.Load(), Refused: c.refused.Load(),
		Returned: c.returned.Load(), Unconfirmed: c.unconfirmed.Load(), Received: c.received.Load(),
		Handled: c.handled.Load(), GivenBack: c.givenBack.Load(), Dropped: make(map[Reason]int64),
	}
	maps.Copy(s.Dropped, c.dropped)
	return s
}

// isMissing reports whether an error says that a queue or exchange does not exist.
func isMissing(err error) bool { return belay.CodeOf(err) == belay.CodeNotFound }
