package webui

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

const deliveriesSize = 20 // deliveries on the page of a target

// targetList is the page of the targets of notifications.
type targetList struct{ Rows []targetRow }

// targetRow is one target.
type targetRow struct {
	Name, Address     string
	State             state
	About             []string
	Where             string   // the host or the exchange; the rest of a URL may contain a credential
	Ends              []string // the states whose ends it gets
	Alerts            []string
	Workflows, Queues names
	Labels            names
}

// targetPage is the page of one target, with its newest deliveries.
type targetPage struct {
	Row        targetRow
	Terms      []term
	Deliveries []row
	Failed     int
	Gate       *navLink // at which deliveries wait; nil if none does
	More       string
	Offers     []offer
}

func (p *pages) notifications(ctx context.Context, _ *http.Request) (view, error) {
	found, err := p.backend.NotificationTargets(ctx)
	if err != nil {
		return view{}, err
	}
	var d targetList
	now := p.options.Now()
	for i := range found[:min(len(found), belay.MaxNotificationTargets)] {
		d.Rows = append(d.Rows, targetRowOf(&found[i], now))
	}
	return view{template: "notifications", Title: "Notifications", Page: d}, nil
}

func targetRowOf(t *belay.NotificationTargetInfo, now time.Time) targetRow {
	row := targetRow{
		Name: excerpt(t.Name, maxLine), Address: "/notifications/" + t.Name, State: state{"active", "good"},
		Where: receiver(&t.NotificationTarget), Workflows: namesOf(t.Workflows), Queues: namesOf(t.Queues),
		Labels: pairs(t.Labels),
	}
	for s := belay.Succeeded; s <= belay.Cancelled; s++ {
		if t.Reports(s) {
			row.Ends = append(row.Ends, s.String())
		}
	}
	for _, a := range t.Alerts[:min(len(t.Alerts), 10)] {
		row.Alerts = append(row.Alerts, strings.ReplaceAll(excerpt(string(a), 40), "_", " "))
	}
	if pause := t.Paused; pause != nil {
		row.State = state{"paused", "paused"}
		row.About = append(row.About, byOperator("for "+short(now.Sub(pause.At)), pause.By, pause.Reason))
	}
	return row
}

// receiver names the host or the exchange of a target, and nothing of a path, which may be a credential.
func receiver(t *belay.NotificationTarget) string {
	if t.Exchange != "" {
		return "exchange " + excerpt(t.Exchange, 120)
	}
	u, err := url.Parse(t.URL)
	if err != nil || u.Host == "" {
		return "a secret address"
	}
	return excerpt(u.Scheme+"://"+u.Host, 120)
}

func (p *pages) notification(ctx context.Context, r *http.Request) (view, error) {
	name := r.PathValue("name")
	if err := belay.CheckTargetName("notification", name); err != nil {
		return view{}, &belay.Error{Code: belay.CodeNotFound, Message: "No target can have this name."}
	}
	t, err := p.backend.NotificationTarget(ctx, name)
	if err != nil {
		return view{}, err
	}
	found, err := p.backend.Executions(ctx, belay.Filter{
		Labels: map[string]string{belay.LabelNotificationTarget: name}, Limit: deliveriesSize,
	})
	if err != nil {
		return view{}, err
	}
	now := p.options.Now()
	d := targetPage{Row: targetRowOf(&t, now), Terms: changedTerms("", t.Version, t.UpdatedAt, t.UpdatedBy, now)}
	d.Offers = targetOffers(ctx, &t)
	for i := range found.Executions[:min(len(found.Executions), deliveriesSize)] {
		e := &found.Executions[i]
		if e.State == belay.Failed {
			d.Failed++
		}
		if e.Gate != "" && d.Gate == nil && !e.State.Terminal() {
			d.Gate = &navLink{Name: excerpt(string(e.Gate), maxLine), Address: pageOf(ofGate, string(e.Gate))}
		}
		d.Deliveries = append(d.Deliveries, rowOf(e, now))
	}
	if found.Next != "" {
		d.More = "Older deliveries may exist: belay notify get " + t.Name
	}
	return view{template: "notification", Title: "Notifications to " + excerpt(t.Name, 60), Page: d}, nil
}
