package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/belaydev/belay"
)

type auditRequest struct {
	Actor  string    `query:"actor" maxLength:"200" doc:"Only actions of this person or program."`
	Action string    `query:"action" maxLength:"200" doc:"Only actions with this name, such as pause."`
	Kind   string    `query:"kind" enum:"dead_letter,document,execution,gate,key,notification_targets,schedule,webhook" doc:"Only actions on objects of this kind."`
	Name   string    `query:"name" maxLength:"600" doc:"Only actions on the object with this name or id; kind is needed too."`
	Since  time.Time `query:"since" doc:"Only actions at this time or later, by the store's clock."`
	Until  time.Time `query:"until" doc:"Only actions before this time, by the store's clock."`
	Cursor string    `query:"cursor" maxLength:"1000" doc:"The field next of the previous page."`
	Limit  int       `query:"limit" minimum:"1" maximum:"1000" doc:"100, unless said otherwise."`
}

// audit adds the route of the audit. It needs the scope admin, because the audit shows what other callers do.
func (a *api) audit() {
	add(a, route{
		id: "listAudit", method: http.MethodGet, path: "/v1/audit", tag: "keys",
		summary: "List the audit, the newest action first",
		doc: "The actors, actions and reasons of changes of keys, gates, documents, schedules, webhooks and notification " +
			"targets, and of actions on executions and dead letters. A page may have fewer entries than the limit, or none, although further pages have " +
			"some: the server examines 10,000 for one page at most.",
		scopes: []belay.Scope{belay.ScopeAdmin}, errors: []int{http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *auditRequest) (*struct{ Body belay.AuditPage }, error) {
		page, err := a.b.Audit(ctx, belay.AuditFilter{
			Actor: in.Actor, Action: in.Action, Kind: in.Kind, Name: in.Name, Since: in.Since, Until: in.Until,
			Cursor: in.Cursor, Limit: in.Limit,
		})
		return &struct{ Body belay.AuditPage }{page}, err
	})
}
