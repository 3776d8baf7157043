package engine

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/memory"
)

// Rule: callers that follow webhooks wake after each change of terms, by an operator or a document, and after hints of
// other servers about objects, and not after deliveries.
func TestCallersWakeWhenWebhooksChange(t *testing.T) {
	e := New(memory.New(time.Now), Options{Log: slog.New(slog.DiscardHandler)})
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	woken := func(what string, want bool, f func() error) {
		t.Helper()
		changed := e.WebhooksChanged()
		if err := f(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		select {
		case <-changed:
			if !want {
				t.Errorf("%s wakes the callers", what)
			}
		default:
			if want {
				t.Errorf("%s does not wake the callers", what)
			}
		}
	}
	ctx := t.Context()
	put := belay.WebhookPut{Webhook: belay.Webhook{
		Name: "h", Scheme: belay.SchemeAMQP, AMQP: &belay.WebhookAMQP{Queue: "q"},
		Execution: belay.Submission{Workflow: "w"},
	}}
	putNow := func() error {
		_, err := e.PutWebhook(ctx, put)
		return err
	}
	woken("a new webhook", true, putNow)
	woken("the same terms", false, putNow)
	for _, body := range []string{`1`, `2`} { // started, and failed, whose data has an object of its own
		woken("a delivery", false, func() error {
			_, err := e.Deliver(ctx, belay.WebhookEvent{Webhook: "h", ID: body, Data: json.RawMessage(body)})
			return err
		})
		put.Execution.Labels = map[string]string{"a": "${{ event.data.x }}"}
		woken("other terms", true, putNow)
		put.Filter = "true"
	}
	woken("a pause", true, func() error {
		_, err := e.ChangeWebhook(ctx, belay.WebhookChange{Name: "h", Action: belay.WebhookPauseAction})
		return err
	})
	woken("a removal", true, func() error {
		_, err := e.ChangeWebhook(ctx, belay.WebhookChange{Name: "h", Action: belay.WebhookRemove})
		return err
	})
	woken("a document", true, func() error {
		_, err := e.ApplyDocument(ctx, belay.DocumentApply{Name: "d", Text: "name: d\non:\n  webhooks:\n" +
			"    orders: {scheme: amqp, amqp: {queue: q, without_id: hash}}\n" +
			"tasks:\n  - {id: a, uses: command, with: {run: 'true'}}\n"})
		return err
	})
	h, err := e.Webhook(ctx, "d.orders")
	if err != nil || h.AMQP == nil || *h.AMQP != (belay.WebhookAMQP{Queue: "q", WithoutID: belay.HashWithoutID}) {
		t.Errorf("%+v, %v", h.AMQP, err)
	}
	hint := func(h store.Hint) func() error {
		return func() error {
			e.hooks.onHint(h)
			return nil
		}
	}
	woken("a hint about objects", true, hint(store.Hint{Objects: true}))
	woken("lost hints", true, hint(store.Hint{Lost: true}))
	woken("another hint", false, hint(store.Hint{AnyWorker: true}))
}
