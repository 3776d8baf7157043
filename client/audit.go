package client

import (
	"context"
	"net/url"
	"slices"

	"github.com/belaydev/belay"
)

// Audit lists entries of the audit, the newest first.
func (c *Client) Audit(ctx context.Context, f belay.AuditFilter) (belay.AuditPage, error) {
	const op = "list the audit"
	if f.Kind != "" && !slices.Contains(belay.AuditKinds, f.Kind) || f.Kind == "" && f.Name != "" {
		return belay.AuditPage{}, &belay.Error{
			Code: belay.CodeInvalid, Op: op, Message: "the filter must name one of the kinds in belay.AuditKinds",
		}
	}
	if err := checkTexts(op, f.Actor, f.Action); err != nil {
		return belay.AuditPage{}, err
	}
	q := url.Values{}
	set(q, "actor", f.Actor)
	set(q, "action", f.Action)
	set(q, "kind", f.Kind)
	set(q, "name", f.Name)
	between(q, f.Since, f.Until)
	set(q, "cursor", f.Cursor)
	number(q, "limit", int64(min(max(f.Limit, 0), 1000)))
	return get[belay.AuditPage](ctx, c, op, "/v1/audit", q)
}
