package webui

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/belaydev/belay"
)

// lastDeliveries is for how many webhooks of a page the page shows the newest delivery.
const lastDeliveries = 25

// webhookPage is the page of one webhook.
type webhookPage struct {
	Row    triggerRow
	Terms  []term
	Recent occasions
	Offers []offer
}

func (p *pages) webhooks(ctx context.Context, r *http.Request) (view, error) {
	q := chosen(r.URL.Query(), "cursor")
	found, err := p.backend.Webhooks(ctx, belay.WebhookFilter{Cursor: q.Get("cursor"), Limit: triggersSize})
	if err != nil {
		return view{}, err
	}
	d, now := triggerPage{Pager: pagerOf("/webhooks", q, found.Next)}, p.options.Now()
	for i := range found.Webhooks[:min(len(found.Webhooks), triggersSize)] {
		h := &found.Webhooks[i]
		if i < lastDeliveries && len(h.Deliveries) > 0 {
			full, err := p.backend.Webhook(ctx, h.Name)
			switch {
			case err == nil:
				h = &full
			case belay.CodeOf(err) != belay.CodeNotFound: // it may have been removed meanwhile
				return view{}, err
			}
		}
		d.Rows = append(d.Rows, webhookRowOf(h, now))
	}
	if err := p.results(ctx, d.lasts()...); err != nil {
		return view{}, err
	}
	return view{template: "webhooks", Title: "Webhooks", Page: d}, nil
}

func webhookRowOf(h *belay.WebhookInfo, now time.Time) triggerRow {
	row := triggerRow{
		Name: excerpt(h.Name, maxLine), Address: "/webhooks/" + h.Name, When: excerpt(string(h.Scheme), 40),
		Starts: startsOf(&h.Execution), DefinedBy: h.DefinedBy, State: state{"active", "good"},
		Counts: countsOf(h.Deliveries, belay.DeliveryStarted, belay.DeliverySignalled, belay.DeliveryDuplicate,
			belay.DeliveryFiltered, belay.DeliveryPaused, belay.DeliveryFailed),
	}
	if h.Signal != nil {
		row.Starts = line("the signal " + h.Signal.Name)
	}
	if h.AMQP != nil {
		row.When += " queue " + excerpt(h.AMQP.Queue, 80)
	}
	if len(h.Recent) > 0 {
		o := deliveryOf(&h.Recent[0], now)
		row.Last = &o
	}
	switch pause := h.Paused; {
	case pause != nil:
		row.State = state{"paused", "paused"}
		row.About = append(row.About, byOperator("for "+short(now.Sub(pause.At)), pause.By, pause.Reason))
	case row.Last != nil && row.Last.Outcome.Word == string(belay.DeliveryFailed):
		row.State = state{"failing", "bad"}
	}
	return row
}

func deliveryOf(w *belay.WebhookDelivery, now time.Time) occasion {
	o := occasion{
		At: when(w.At, now), Outcome: state{excerpt(string(w.Outcome), 20), slotClasses[string(w.Outcome)]},
		Name: excerpt(w.ID, 80), Execution: maybeLink(w.Execution),
	}
	by := ""
	if w.By != "" {
		by = "by " + excerpt(w.By, 40)
	}
	o.Text = joined(line(w.Type), line(w.Source), by, line(w.Text), bytesOf(w.Bytes))
	return o
}

func (p *pages) webhook(ctx context.Context, r *http.Request) (view, error) {
	if err := belay.CheckWebhookName("webhook", r.PathValue("name")); err != nil {
		return view{}, &belay.Error{Code: belay.CodeNotFound, Message: "No webhook can have this name."}
	}
	h, err := p.backend.Webhook(ctx, r.PathValue("name"))
	if err != nil {
		return view{}, err
	}
	now := p.options.Now()
	d := webhookPage{Row: webhookRowOf(&h, now), Recent: occasions{Of: "Delivery"}}
	if h.Filter != "" {
		d.Terms = append(d.Terms, term{Name: "Filter", Value: excerpt(h.Filter, 500), Mono: true})
	}
	if h.Rate > 0 {
		d.Terms = append(d.Terms, term{Name: "Rate", Value: fmt.Sprintf("%d per second", h.Rate)})
	}
	d.Terms = append(d.Terms, changedTerms(h.Execution.Queue, h.Version, h.UpdatedAt, h.UpdatedBy, now)...)
	for i := range h.Recent[:min(len(h.Recent), belay.MaxRecentDeliveries)] {
		row := deliveryOf(&h.Recent[i], now)
		row.Offers = deedsOn(ctx, ofDelivery, h.Name+"/"+h.Recent[i].ID, "replay")
		d.Recent.Rows = append(d.Recent.Rows, row)
	}
	if err := p.results(ctx, d.Recent.pointers()...); err != nil {
		return view{}, err
	}
	d.Offers = webhookOffers(ctx, &h)
	return view{template: "webhook", Title: "Webhook " + excerpt(h.Name, 60), Page: d}, nil
}
