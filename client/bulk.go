package client

import (
	"context"
	"net/http"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// Bulk requests an action on many executions, which the server carries out. It makes an operation id if
// the bulk has none.
func (c *Client) Bulk(ctx context.Context, b belay.Bulk) (belay.BulkReply, error) {
	const op = "bulk"
	if b.Op.IsZero() {
		b.Op = belay.OpID(c.set.ids())
	}
	var out belay.BulkReply
	r := &request{op: op, method: http.MethodPost, path: "/v1/bulk", reply: &out, header: idempotent(b.Op)}
	var err error
	if r.body, err = body(op, wire.BulkOf(b)); err != nil {
		return out, err
	}
	err = c.retry(ctx, r)
	return out, err
}
