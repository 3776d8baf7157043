package queuetrigger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/broker"
	"github.com/belaydev/belay/internal/retry"
	"github.com/belaydev/belay/internal/webhook"
)

const (
	// prefetch is how many messages of one webhook a server handles at the same time, so that the engine commits many
	// deliveries together.
	prefetch = 64
	// mostRefused is how many refused messages of a webhook are kept, and mostText the largest size of a reason.
	mostRefused, mostText = 10, 300
	// patience is how often a delivery finds that the terms have changed until the state says so.
	patience = 5
	// warnAgain is how often the log says that messages of a webhook are refused.
	warnAgain = time.Minute
)

// trigger is the consumption for one version of a webhook.
type trigger struct {
	service *Service
	terms   belay.WebhookInfo
	stop    context.CancelFunc
	limit   *rate.Limiter // nil if there is no limit

	mu      sync.Mutex
	now     belay.WebhookConsumer
	shared  string                 // warns that other webhooks have the same queue
	trouble string                 // why messages wait
	refused []belay.WebhookRefusal // the newest first
	warned  time.Time
	quiet   int // refused messages since then
}

func newTrigger(s *Service, h *belay.WebhookInfo, stop context.CancelFunc, former *trigger) *trigger {
	t := &trigger{service: s, terms: *h, stop: stop}
	t.now.Text = "the server is about to consume the queue"
	if h.Rate > 0 {
		t.limit = rate.NewLimiter(rate.Limit(h.Rate), h.Rate)
	}
	if former != nil && former.terms.CreatedAt.Equal(h.CreatedAt) {
		former.mu.Lock()
		t.refused, t.warned, t.now.Since = slices.Clone(former.refused), former.warned, former.now.Since
		former.mu.Unlock()
	}
	return t
}

// state returns the state of the consumption, and the newest messages that were refused.
func (t *trigger) state() (belay.WebhookConsumer, []belay.WebhookRefusal) {
	link := t.service.subscriber.State().Consume
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now
	if !now.Consuming && t.terms.Paused == nil && link.Err != nil {
		now.Text = link.Err.Error()
	}
	if now.Consuming {
		parts := slices.DeleteFunc([]string{t.trouble, t.shared}, func(x string) bool { return x == "" })
		now.Text = strings.Join(parts, "; ")
	}
	return now, slices.Clone(t.refused)
}

// share notes the webhooks that have the same queue.
func (t *trigger) share(names []string) {
	text := ""
	if also := others(names, t.terms.Name); len(also) > 0 {
		text = fmt.Sprintf("each message of the queue goes to one webhook only, and %s consume it too", also)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if text != "" && t.shared == "" {
		t.service.log.Warn("several webhooks consume one queue, so each gets a part of its messages", "queue",
			queueOf(&t.terms), "webhook", t.terms.Name, "others", others(names, t.terms.Name))
	}
	t.shared = text
}

// report notes that the consumption has begun, or why it has not or has ended.
func (t *trigger) report(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.now
	t.now = belay.WebhookConsumer{Consuming: err == nil, Since: before.Since}
	if before.Since.IsZero() || before.Consuming != t.now.Consuming {
		t.now.Since = time.Now()
	}
	if err != nil {
		t.now.Text = err.Error()
	}
	log := t.service.log.With("webhook", t.terms.Name, "queue", queueOf(&t.terms))
	switch {
	case err == nil && !before.Consuming:
		log.Info("the queue of a webhook is consumed")
	case err != nil && before.Text != t.now.Text && t.terms.Paused == nil:
		log.Warn("the queue of a webhook cannot be consumed; Belay tries again until it can", "error", err)
	}
}

// handle delivers a message, and tries again until the delivery is stored, the message is refused, or ctx is done.
func (t *trigger) handle(ctx context.Context, a *broker.Arrival) error {
	e, err := webhook.EventOf(&t.terms.Webhook, message(a))
	if a.Broken == broker.TooLarge {
		err = fmt.Errorf("the body has more than %d bytes", belay.MaxDeliveryBytes)
	} else if a.Broken != "" {
		err = errors.New("the headers cannot be read, because they are nested too deep or have unknown types")
	}
	if err != nil {
		t.service.count(t.terms.Name, "refused")
		return t.refuse(a, err)
	}
	if t.limit != nil {
		if err := t.limit.Wait(ctx); err != nil {
			return err
		}
	}
	e.IfVersion, e.IfCreated = t.terms.Version, t.terms.CreatedAt
	delays := retry.NewDelays(t.service.random)
	for tries := 1; ; tries++ {
		d, err := t.service.backend.Deliver(ctx, e)
		switch code := belay.CodeOf(err); {
		case err == nil:
			t.service.count(t.terms.Name, string(d.Outcome))
			t.wait(nil)
			if d.Outcome == belay.DeliveryFailed {
				return t.refuse(a, fmt.Errorf("nothing can be made of it: %s", d.Text))
			}
			return nil
		case ctx.Err() != nil:
			return err
		case code == belay.CodeInvalid, code == belay.CodePayloadTooLarge, code == belay.CodeForbidden:
			t.service.count(t.terms.Name, "refused")
			return t.refuse(a, err)
		case code == belay.CodeConflict, code == belay.CodeNotFound:
			t.service.relist() // the terms have changed, and so this consumption is about to end
			if tries > patience {
				t.wait(err)
			}
		default:
			t.wait(err)
		}
		if !delays.Wait(ctx, err) {
			return err
		}
	}
}

// wait notes why messages wait; nil says that they do not.
func (t *trigger) wait(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.trouble
	t.trouble = ""
	if err != nil {
		t.trouble = fmt.Sprintf("messages wait: %v", err)
	}
	if err != nil && before == "" {
		t.service.log.Warn("messages for a webhook wait, because their deliveries cannot be stored now", "webhook",
			t.terms.Name, "error", err)
	}
}

// refuse remembers a message that is refused, for operators, and returns the error for the broker.
func (t *trigger) refuse(a *broker.Arrival, why error) error {
	text := fmt.Sprintf("message %.100q: %v", a.ID, why)
	if len(text) > mostText {
		text = strings.ToValidUTF8(text[:mostText], "") + "…"
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused = slices.Insert(t.refused, 0, belay.WebhookRefusal{
		At: now, From: "queue " + queueOf(&t.terms), Text: text,
	})
	t.refused = t.refused[:min(len(t.refused), mostRefused)]
	t.quiet++
	if now.Sub(t.warned) >= warnAgain {
		t.service.log.Warn("messages for a webhook are refused; the dead-letter exchange of the queue gets them",
			"webhook", t.terms.Name, "queue", queueOf(&t.terms), "messages", t.quiet, "newest", text)
		t.warned, t.quiet = now, 0
	}
	return errors.Join(broker.ErrRefused, why)
}

// message is a message of the broker with its properties for expressions.
func message(a *broker.Arrival) *webhook.Message {
	return &webhook.Message{
		ID: a.ID, Type: a.Type, ContentType: a.ContentType, ContentEncoding: a.ContentEncoding, Exchange: a.Exchange,
		RoutingKey: a.RoutingKey, User: a.UserID, App: a.AppID, Correlation: a.CorrelationID, ReplyTo: a.ReplyTo,
		Priority: a.Priority, Time: a.Time, Headers: a.Headers, Body: a.Body,
	}
}
