package httpapi

import (
	"context"
	"net/http"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

type bulkRequest struct {
	Key  string `header:"Idempotency-Key" maxLength:"200" doc:"Names the bulk: a repeat with the same key finds the first one."`
	Body wire.Bulk
}

type bulkReply struct {
	Replayed string `header:"Idempotency-Replayed" doc:"true, if the bulk was started before."`
	Body     belay.BulkReply
}

// bulk adds the route that starts a bulk: one action on all executions or dead letters that match a
// filter.
func (a *api) bulk() {
	add(a, route{
		id: "bulk", method: http.MethodPost, path: "/v1/bulk", tag: "dead letters",
		summary: "Requeue or discard dead letters, or cancel or retry executions, by a filter",
		doc: "An execution carries the bulk out, at the rate, and first on the stages of the canary. It stops by itself if " +
			"the share of failures is too large. Its newest state is its progress; cancel it to stop the bulk. With dry_run " +
			"the answer counts the selection and shows the first ten, and nothing is changed.",
		example: `{"action": "requeue", "filter": {"workflow": "charge"}, "input_patch": {"url": "https://example.org/fixed"}, "notes": "the URL was wrong"}`,
		scopes:  []belay.Scope{belay.ScopeOperate}, body: true,
	}, func(ctx context.Context, in *bulkRequest) (*bulkReply, error) {
		who := callerOf(ctx)
		if in.Body.DryRun && !who.allows(belay.ScopeRead) {
			return nil, forbidden(who, []belay.Scope{belay.ScopeRead})
		}
		b, err := in.Body.Bulk()
		if err != nil {
			return nil, err
		}
		b.Actor, b.Op = who.actor(b.Actor), wire.OpOf(in.Key)
		ctx, replayed := belay.WithReplay(ctx)
		reply, err := a.b.Bulk(ctx, b)
		return &bulkReply{yes(replayed), reply}, err
	})
}
