package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/mqtest"
	"github.com/belaydev/belay/internal/uid"
	amqp "github.com/rabbitmq/amqp091-go"
)

// events starts an Exchanges at a site.
func (s *site) events(with ...func(*Options)) *Exchanges {
	s.t.Helper()
	o := s.options
	for _, f := range with {
		f(&o)
	}
	x, err := NewExchanges(o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.run(x.Run)
	return x
}

// bound declares an exchange, and a queue that gets its messages.
func (s *site) bound(exchange string, queue amqp.Table) {
	s.t.Helper()
	s.raw(func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(exchange, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
			return err
		}
		if _, err := ch.QueueDeclare(exchange, true, false, false, false, queue); err != nil {
			return err
		}
		return ch.QueueBind(exchange, "#", exchange, false, nil)
	})
}

// got returns the messages of a queue.
func (s *site) got(queue string) (all []amqp.Delivery) {
	s.t.Helper()
	s.raw(func(ch *amqp.Channel) error {
		for {
			d, ok, err := ch.Get(queue, true)
			if err != nil || !ok {
				return err
			}
			all = append(all, d)
		}
	})
	return all
}

func newEvent(id string) *Event {
	return &Event{
		ID: id, Type: "execution.completed", At: time.Unix(1_700_000_000, 0), Body: []byte(`{"n":1}`),
		Headers: map[string]any{"state": "failed", "sequence": int64(2)},
	}
}

// The tests share one virtual host, because each run of rabbitmqctl takes half a second.
func TestEvents(t *testing.T) {
	t.Parallel()
	s := newSite(t, mqtest.Shared(t))
	t.Run("arrive", func(t *testing.T) { testEventsArrive(t, s) })
	t.Run("refused events disturb no others", func(t *testing.T) { testRefusedEvents(t, s) })
	t.Run("late confirmations", func(t *testing.T) { testLateEvents(t, s) })
	t.Run("the connection ends", func(t *testing.T) { testEventsAfterAnEnd(t, s) })
}

// A message arrives as it was given, and persistent. A message that no queue gets is a success.
func testEventsArrive(t *testing.T, s *site) {
	name := s.server.Name("belay-ex")
	s.bound(name, nil)
	x := s.events()
	for _, id := range []string{"a", "b"} {
		if err := x.Publish(ctxOf(t), name, "some.key", newEvent(id)); err != nil {
			t.Fatal(err)
		}
	}
	got := s.got(name)
	if len(got) != 2 || got[1].MessageId != "b" {
		t.Fatalf("the messages are %+v", got)
	}
	m := got[0]
	if m.MessageId != "a" || m.Type != "execution.completed" || m.ContentType != "application/json" ||
		m.DeliveryMode != amqp.Persistent || m.RoutingKey != "some.key" || string(m.Body) != `{"n":1}` ||
		m.Headers["state"] != "failed" || m.Headers["sequence"] != int64(2) || m.Timestamp.Unix() != 1_700_000_000 {
		t.Errorf("the message is %+v", m)
	}
	if n := s.idle(x); n != 1 {
		t.Errorf("two messages one after the other used %d channels", n)
	}
	s.raw(func(ch *amqp.Channel) error { return ch.QueueUnbind(name, "#", name, nil) })
	if err := x.Publish(ctxOf(t), name, "", newEvent("c")); err != nil {
		t.Errorf("a message that no queue gets: %v", err)
	}
}

// idle returns how many channels are open without a message.
func (s *site) idle(x *Exchanges) int {
	s.t.Helper()
	o, err := x.outlets(ctxOf(s.t), "look")
	if err != nil {
		s.t.Fatal(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.idle)
}

// Attack: messages to a missing exchange, to one without permission, and to a full queue, while others are published:
// only these messages fail, with an error that says what to do and has no password. The connection stays open. A
// message that is refused by a full queue is no success.
func testRefusedEvents(t *testing.T, s *site) {
	name := s.server.Name("belay-it's")
	s.bound(name, nil)
	s.bound(name+".full", amqp.Table{"x-max-length": int64(1), "x-overflow": "reject-publish"})
	s.bound(name+".closed", nil)
	missing := s.server.Name("belay-missing")
	x := s.events(func(o *Options) {
		if !s.server.Outside() {
			o.URL = s.server.User(t, s.vhost, mqtest.Permissions{
				Configure: "^$", Write: "^(" + name + "|" + name + "\\.full|" + missing + ")$", Read: "^$",
			})
		}
	})
	if err := x.Publish(ctxOf(t), name+".full", "", newEvent("first")); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range 10 {
				if err := x.Publish(ctxOf(t), name, "", newEvent(fmt.Sprint(worker, i))); err != nil {
					t.Error(err)
				}
				wants(t, x.Publish(ctxOf(t), missing, "", newEvent("x")), belay.CodeNotFound, missing, s.vhost,
					"does not declare it")
				wants(t, x.Publish(ctxOf(t), name+".full", "", newEvent("x")), belay.CodeQueueFull, "full")
				if !s.server.Outside() {
					err := x.Publish(ctxOf(t), name+".closed", "", newEvent("x"))
					wants(t, err, belay.CodeForbidden, "set_permissions", `it'\''s`, "\\.closed$)'")
				}
			}
		})
	}
	all.Wait()
	if n := len(s.got(name)); n != 40 {
		t.Errorf("%d messages arrived, want 40", n)
	}
	if n := x.State().Attempts; n != 1 {
		t.Errorf("there were %d connections", n)
	}
}

// A message that RabbitMQ does not confirm in time fails, and so does one whose caller has left. Their channels are not
// used again, and the connection stays open.
func testLateEvents(t *testing.T, s *site) {
	name := s.server.Name("belay-ex")
	s.bound(name, nil)
	x := s.events(func(o *Options) { o.ConfirmTimeout = time.Nanosecond })
	err := x.Publish(ctxOf(t), name, "", newEvent("a"))
	wants(t, err, belay.CodeUnavailable, "did not confirm the message within 1ns")
	if n := s.idle(x); n != 0 {
		t.Errorf("%d channels are idle after a late confirmation", n)
	}
	x.options.ConfirmTimeout = time.Minute
	if err := x.Publish(ctxOf(t), name, "", newEvent("b")); err != nil || s.idle(x) != 1 {
		t.Errorf("%v, %d channels are idle", err, s.idle(x))
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := x.Publish(gone, name, "", newEvent("c")); !errors.Is(err, context.Canceled) || s.idle(x) != 0 {
		t.Errorf("the caller has left: %v, %d channels are idle", err, s.idle(x))
	}
	if n := x.State().Attempts; n != 1 {
		t.Errorf("there were %d connections", n)
	}
	for _, m := range s.got(name) {
		if !slices.Contains([]string{"a", "b", "c"}, m.MessageId) {
			t.Errorf("the message %q", m.MessageId)
		}
	}
}

// Belay's own exchanges and the default exchange are refused before anything is sent.
func TestOwnExchangesAreRefused(t *testing.T) {
	t.Parallel()
	x, err := NewExchanges(Options{URL: "amqp://127.0.0.1:1/", Prefix: "belay"})
	if err != nil {
		t.Fatal(err)
	}
	for name, refused := range map[string]bool{
		"": true, "belay": true, "belay.dead.12345678": true, "belay.": true, "belayed": false, "amq.topic": false,
	} {
		if err := x.Check(name); (err != nil) != refused {
			t.Errorf("%q: %v", name, err)
		}
		if refused {
			wants(t, x.Publish(t.Context(), name, "belay.worker.x", newEvent("x")), belay.CodeForbidden)
		}
	}
}

// After the connection has ended, messages are published again. A message waits for a moment for a connection.
func testEventsAfterAnEnd(t *testing.T, s *site) {
	name := s.server.Name("belay-ex")
	s.bound(name, nil)
	x := s.events()
	if err := x.Publish(ctxOf(t), name, "", newEvent("a")); err != nil {
		t.Fatal(err)
	}
	o, err := x.outlets(ctxOf(t), "look")
	if err != nil {
		t.Fatal(err)
	}
	o.connection.raw.Close()
	await(t, "the end of the connection", func() bool { return o.connection.amqp.IsClosed() })
	await(t, "a message", func() bool { return x.Publish(ctxOf(t), name, "", newEvent("b")) == nil })
	if n := len(s.got(name)); n < 2 {
		t.Errorf("%d messages arrived", n)
	}
}

// A message without a connection fails soon, with an error that has no password.
func TestEventsWithoutRabbitMQ(t *testing.T) {
	t.Parallel()
	x, err := NewExchanges(Options{URL: "amqp://me:hunter2@127.0.0.1:1/", Random: uid.New, Log: slog.New(slog.DiscardHandler),
		patience: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- x.Run(ctx) }()
	err = x.Publish(t.Context(), "ex", "", newEvent("a"))
	wants(t, err, belay.CodeUnavailable, "no connection to RabbitMQ")
	if strings.Contains(err.Error(), "hunter2") {
		t.Error("the error has the password")
	}
	within, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	wants(t, x.Publish(within, "ex", "", newEvent("a")), belay.CodeUnavailable)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
