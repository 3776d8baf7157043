package webui

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

const (
	auditSize     = 100 // entries on one page
	mostOfAddress = 600 // bytes of a text that becomes a part of an address
)

// auditPage is the page of the audit.
type auditPage struct {
	Rows   []auditRow
	Filter auditFilter
	Kinds  []auditKind
	Pager  pager
	Chosen bool // the filter selects a part of the audit
}

// auditFilter has the values of the form.
type auditFilter struct{ Actor, Action, Kind, Name, Since, Until string }

// auditKind is a choice of the form.
type auditKind struct{ Value, Name string }

// auditRow is one entry.
type auditRow struct {
	At            *moment
	Actor, Action string
	ByActor       string // the address of the entries of this actor; empty if the caller named no actor
	Kind, Name    string
	Of            string // the address of the entries of this object; empty if its name is too long
	Address       string // the page of the object; empty if it has none
	Reason        string
}

// audit shows who did what. It needs the scope admin, as the route does.
func (p *pages) audit(ctx context.Context, r *http.Request) (view, error) {
	if !visitorOf(ctx).allows(belay.ScopeAdmin) {
		return view{}, lacks(belay.ScopeAdmin)
	}
	q := chosen(r.URL.Query(), "actor", "action", "kind", "name", "since", "until", "cursor")
	f := belay.AuditFilter{
		Actor: strings.TrimSpace(q.Get("actor")), Action: strings.TrimSpace(q.Get("action")), Kind: q.Get("kind"),
		Name: strings.TrimSpace(q.Get("name")), Cursor: q.Get("cursor"), Limit: auditSize,
	}
	var err error
	if f.Since, err = timeOf("since", q.Get("since")); err != nil {
		return view{}, err
	}
	if f.Until, err = timeOf("until", q.Get("until")); err != nil {
		return view{}, err
	}
	found, err := p.backend.Audit(ctx, f)
	if err != nil {
		return view{}, err
	}
	d := auditPage{
		Filter: auditFilter{f.Actor, f.Action, f.Kind, f.Name, q.Get("since"), q.Get("until")},
		Pager:  pagerOf("/audit", q, found.Next), Chosen: len(q) > 0 && (len(q) > 1 || f.Cursor == ""),
	}
	for _, kind := range belay.AuditKinds {
		d.Kinds = append(d.Kinds, auditKind{kind, strings.ReplaceAll(kind, "_", " ")})
	}
	now := p.options.Now()
	for i := range found.Entries[:min(len(found.Entries), auditSize)] {
		d.Rows = append(d.Rows, auditRowOf(&found.Entries[i], now))
	}
	return view{template: "audit", Title: "Audit", Page: d}, nil
}

func auditRowOf(e *belay.AuditEntry, now time.Time) auditRow {
	row := auditRow{
		At: when(e.At, now), Actor: excerpt(e.Actor, maxLine),
		Action: strings.ReplaceAll(excerpt(e.Action, 60), "_", " "),
		Kind:   strings.ReplaceAll(excerpt(e.Kind, 60), "_", " "), Name: excerpt(e.Name, maxLine),
		Reason: excerpt(e.Reason, 600),
	}
	if len(e.Name) <= mostOfAddress {
		row.Of, row.Address = addressOf("/audit", url.Values{"kind": {e.Kind}}, "name", e.Name), placeOf(e)
	}
	if e.Kind == "notification_targets" { // all targets are one object; the reason begins with the name of the target
		name, _, named := strings.Cut(e.Reason, ", version ")
		if named && belay.CheckTargetName("audit", name) == nil {
			row.Name, row.Address = excerpt(name, maxLine), pageOf(ofTarget, name)
		}
	}
	if e.Actor != "" && len(e.Actor) <= mostOfAddress {
		row.ByActor = addressOf("/audit", url.Values{}, "actor", e.Actor)
	}
	return row
}

// placeOf returns the address of the page of an object of the audit. The object may be gone.
func placeOf(e *belay.AuditEntry) string {
	switch e.Kind {
	case "gate":
		return pageOf(ofGate, e.Name)
	case "schedule":
		return pageOf(ofSchedule, e.Name)
	case "execution", "dead_letter":
		return pageOf(ofLetter, e.Name)
	case "webhook":
		return "/webhooks/" + url.PathEscape(e.Name)
	case "document":
		return "/workflows/" + url.PathEscape(e.Name)
	case "key":
		return "/keys"
	case "notification_targets":
		return "/notifications"
	}
	return ""
}

// timeOf reads a time of a filter.
func timeOf(name, text string) (time.Time, error) {
	at, ok := readTime(text)
	if !ok {
		return at, &belay.Error{Code: belay.CodeMalformed, Message: name + " is " + strconv.Quote(excerpt(text, 60)) +
			"; write a time like 2026-11-20 or 2026-11-20 08:00"}
	}
	return at, nil
}
