package queuetrigger

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/broker"
	"github.com/belaydev/belay/internal/retry"
	"github.com/belaydev/belay/internal/webhook"
)

const (
	// look is how often a Service lists the webhooks without a report of a change.
	look = 30 * time.Second
	// gap is the shortest time between two lists, however often webhooks change.
	gap = time.Second
)

// Backend is the part of a belay.Backend that a Service needs.
type Backend interface {
	webhook.Lister
	Deliver(ctx context.Context, d belay.WebhookEvent) (belay.WebhookDelivery, error)
}

// Service consumes the queues of webhooks.
type Service struct {
	subscriber *broker.Subscriber
	random     func() [16]byte
	log        *slog.Logger
	count      func(webhook, outcome string)
	stale      chan struct{} // a value says that a delivery has found other terms than those of its consumption

	backend Backend // set, as count, when Run begins
	all     sync.WaitGroup
	begin   sync.Once

	mu       sync.Mutex
	triggers map[string]*trigger // by the names of their webhooks
}

// New makes a Service; Run starts it.
func New(o broker.Options) (*Service, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	b, err := broker.NewSubscriber(o, belay.MaxDeliveryBytes)
	if err != nil {
		return nil, err
	}
	return &Service{
		subscriber: b, random: o.Random, log: o.Log, stale: make(chan struct{}, 1),
		triggers: make(map[string]*trigger),
	}, nil
}

// CheckQueue returns CodeInvalid for the name of a queue that the Service does not consume.
func (s *Service) CheckQueue(queue string) error { return s.subscriber.CheckQueue(queue) }

// State returns the state of the connection.
func (s *Service) State() broker.State { return s.subscriber.State() }

// Counters returns the counters of messages.
func (s *Service) Counters() broker.Counters { return s.subscriber.Counters() }

// Consumer returns the state of the consumption for a webhook, and its newest messages that were refused.
func (s *Service) Consumer(name string) (belay.WebhookConsumer, []belay.WebhookRefusal) {
	s.mu.Lock()
	t := s.triggers[name]
	s.mu.Unlock()
	if t == nil {
		return belay.WebhookConsumer{Text: "the server has not looked at the webhook yet"}, nil
	}
	return t.state()
}

// Run consumes the queues until ctx is done. It returns nil. changed returns a channel that is closed when a webhook
// may have changed. count counts the outcomes of messages: those of deliveries, and "refused" for messages that are no
// deliveries. Deliver of the Backend must judge submissions, as that of httpapi.Admitting does.
func (s *Service) Run(ctx context.Context, b Backend, changed func() <-chan struct{},
	count func(webhook, outcome string)) error {
	s.backend, s.count = b, count
	defer s.all.Wait()
	delays, failing := retry.NewDelays(s.random), false
	for ctx.Err() == nil {
		news := changed() // before the list, so that no change is missed
		list, err := webhook.OfScheme(ctx, b, belay.SchemeAMQP)
		if err != nil {
			if ctx.Err() == nil && !failing {
				s.log.Warn("list the webhooks of queues; Belay tries again until it can", "error", err)
			}
			failing = true
			delays.Wait(ctx, err)
			continue
		}
		failing = false
		delays.Reset()
		s.follow(ctx, list)
		if !retry.Sleep(ctx, gap) {
			break
		}
		timer := time.NewTimer(look)
		select {
		case <-ctx.Done():
		case <-news:
		case <-s.stale:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// follow begins the consumptions of new terms, and ends those of others.
func (s *Service) follow(ctx context.Context, list []belay.WebhookInfo) {
	sharing := make(map[string][]string, len(list)) // the webhooks of each queue
	for i := range list {
		if q := queueOf(&list[i]); list[i].Paused == nil {
			sharing[q] = append(sharing[q], list[i].Name)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[string]*trigger, len(list))
	for i := range list {
		h := &list[i]
		old := s.triggers[h.Name]
		if old == nil || old.terms.Version != h.Version || !old.terms.CreatedAt.Equal(h.CreatedAt) {
			next[h.Name] = s.start(ctx, h, old)
		} else {
			next[h.Name] = old
		}
		next[h.Name].share(sharing[queueOf(h)])
	}
	for name, t := range s.triggers {
		if next[name] != t {
			t.stop()
		}
	}
	s.triggers = next
}

// start begins the consumption for a webhook. The former consumption, if there is one, may still run.
func (s *Service) start(ctx context.Context, h *belay.WebhookInfo, former *trigger) *trigger {
	s.begin.Do(func() { // a server without such webhooks opens no connection
		s.all.Go(func() { _ = s.subscriber.Run(ctx) }) // returns nil
	})
	consumption, stop := context.WithCancel(ctx)
	t := newTrigger(s, h, stop, former)
	if h.Paused != nil {
		t.report(fmt.Errorf("the webhook is paused; messages wait in the queue %q", queueOf(h)))
		return t
	}
	s.all.Go(func() { s.subscriber.Consume(consumption, queueOf(h), prefetch, t.handle, t.report) })
	return t
}

// relist makes Run list the webhooks soon.
func (s *Service) relist() {
	select {
	case s.stale <- struct{}{}:
	default:
	}
}

// queueOf is the queue of a webhook; empty if a later version of Belay has stored it without one.
func queueOf(h *belay.WebhookInfo) string {
	if h.AMQP == nil {
		return ""
	}
	return h.AMQP.Queue
}

// others are the names in a list without one.
func others(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}
