package queuetrigger_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/broker"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/queuetrigger"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/internal/testkit/mqtest"
	"github.com/belaydev/belay/internal/uid"
)

// site is an engine with queues in the RabbitMQ that all tests share.
type site struct {
	t       *testing.T
	server  *mqtest.Server
	options broker.Options
	engine  *engine.Engine
	channel *amqp.Channel // confirms what it publishes
	queue   string        // a classic queue, whose dead letters go to dead
	dead    string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, server: mqtest.Shared(t)}
	s.options = broker.Options{
		URL: s.server.URL("/"), Prefix: "belay" + s.server.Name(""), Random: uid.New,
		Log: slog.New(slog.DiscardHandler),
	}
	s.engine = engine.New(memory.New(time.Now), engine.Options{Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		if err := s.engine.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := amqp.Dial(s.options.URL)
	s.must(err)
	t.Cleanup(func() { _ = c.Close() })
	s.channel, err = c.Channel()
	s.must(err)
	s.must(s.channel.Confirm(false))
	s.queue, s.dead = s.server.Name("belay-orders"), s.server.Name("belay-rejected")
	s.declare(s.dead, nil)
	s.declare(s.queue, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": s.dead})
	return s
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// declare declares a queue, which is deleted at the end of the test.
func (s *site) declare(name string, args amqp.Table) {
	s.t.Helper()
	_, err := s.channel.QueueDeclare(name, true, false, false, false, args)
	s.must(err)
	s.t.Cleanup(func() { _, _ = s.channel.QueueDelete(name, false, false, false) })
}

// put sets the webhook h of the site's queue.
func (s *site) put(with ...func(*belay.WebhookPut)) {
	s.t.Helper()
	p := belay.WebhookPut{Webhook: belay.Webhook{
		Name: "h", Scheme: belay.SchemeAMQP, AMQP: &belay.WebhookAMQP{Queue: s.queue},
		Execution: belay.Submission{Workflow: "w"},
	}}
	for _, f := range with {
		f(&p)
	}
	_, err := s.engine.PutWebhook(s.t.Context(), p)
	s.must(err)
}

func (s *site) change(a belay.WebhookAction) {
	s.t.Helper()
	_, err := s.engine.ChangeWebhook(s.t.Context(), belay.WebhookChange{Name: "h", Action: a})
	s.must(err)
}

func (s *site) pause(name string) {
	s.t.Helper()
	_, err := s.engine.ChangeWebhook(s.t.Context(), belay.WebhookChange{Name: name, Action: belay.WebhookPauseAction})
	s.must(err)
}

// publish sends a message to the queue, and waits until RabbitMQ has confirmed it.
func (s *site) publish(m amqp.Publishing) {
	s.t.Helper()
	d, err := s.channel.PublishWithDeferredConfirm("", s.queue, true, false, m)
	s.must(err)
	if !d.Wait() {
		s.t.Fatal("RabbitMQ refused a message")
	}
}

// send sends a message with an id.
func (s *site) send(id, body string) { s.publish(amqp.Publishing{MessageId: id, Body: []byte(body)}) }

// outcomes counts the outcomes of messages.
type outcomes struct {
	mu sync.Mutex
	n  map[string]int
}

func (o *outcomes) add(_, outcome string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n == nil {
		o.n = make(map[string]int)
	}
	o.n[outcome]++
}

func (o *outcomes) of(outcome string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n[outcome]
}

// serve starts a service, as a server with this Backend does.
func (s *site) serve(b queuetrigger.Backend) (*queuetrigger.Service, *outcomes) {
	s.t.Helper()
	counts := new(outcomes)
	q, err := queuetrigger.New(s.options)
	s.must(err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx, b, s.engine.WebhooksChanged, counts.add) }()
	s.t.Cleanup(func() {
		stop()
		select {
		case err := <-ended:
			s.must(err)
		case <-time.After(20 * time.Second):
			s.t.Error("the service does not stop")
		}
	})
	return q, counts
}

// await polls, because the events for which the tests wait happen in another process.
func (s *site) await(what string, done func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); <-time.After(3 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// consuming waits until the service consumes the queue of the webhook h.
func (s *site) consuming(q *queuetrigger.Service) {
	s.t.Helper()
	s.await("the consumption", func() bool {
		c, _ := q.Consumer("h")
		return c.Consuming
	})
}

// text waits until the state of the webhook h has all the words.
func (s *site) text(q *queuetrigger.Service, words ...string) {
	s.t.Helper()
	s.await(strings.Join(words, " "), func() bool {
		c, _ := q.Consumer("h")
		for _, w := range words {
			if !strings.Contains(c.Text, w) {
				return false
			}
		}
		return true
	})
}

// left returns how many messages are ready in a queue, and how many consumers it has.
func (s *site) left(queue string) (messages, consumers int) {
	s.t.Helper()
	d, err := s.channel.QueueDeclarePassive(queue, true, false, false, false, nil)
	s.must(err)
	return d.Messages, d.Consumers
}

// letters takes n dead letters, and returns their message ids. It uses a Subscriber, because the library alone cannot
// read all of them.
func (s *site) letters(n int) []string {
	s.t.Helper()
	b, err := broker.NewSubscriber(s.options, belay.MaxDeliveryBytes)
	s.must(err)
	ctx, stop := context.WithCancel(context.Background())
	ids := make(chan string, 100)
	var all sync.WaitGroup
	all.Go(func() { _ = b.Run(ctx) })
	all.Go(func() {
		b.Consume(ctx, s.dead, 10, func(_ context.Context, a *broker.Arrival) error {
			ids <- a.ID
			return nil
		}, func(error) {})
	})
	s.await("dead letters", func() bool { return len(ids) >= n })
	stop()
	all.Wait()
	close(ids)
	return slices.Sorted(func(yield func(string) bool) {
		for id := range ids {
			if !yield(id) {
				return
			}
		}
	})
}

// executions returns all executions.
func (s *site) executions() []belay.Execution {
	s.t.Helper()
	page, err := s.engine.Executions(s.t.Context(), belay.Filter{Limit: 1000})
	s.must(err)
	return page.Executions
}

// payloadOf is the trigger payload of an execution.
func (s *site) payloadOf(id belay.ExecutionID) (p belay.WebhookPayload) {
	s.t.Helper()
	x, err := s.engine.Detail(s.t.Context(), id)
	s.must(err)
	s.must(json.Unmarshal(x.TriggerPayload, &p))
	return p
}
