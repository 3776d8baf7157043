package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// CreateKey makes a key. The Client does not repeat the call if it gets no answer. The secret is
// lost then, and the caller should revoke the key if the server has made it.
func (c *Client) CreateKey(ctx context.Context, s belay.KeySpec) (belay.NewKey, error) {
	op := "create key " + s.Name
	data, err := body(op, s)
	if err != nil {
		return belay.NewKey{}, err
	}
	var key belay.NewKey
	r := &request{op: op, method: http.MethodPost, path: "/v1/keys", body: data, reply: &key}
	if !s.Op.IsZero() {
		r.header = idempotent(s.Op)
	}
	return key, c.once(ctx, r)
}

// Keys lists the keys.
func (c *Client) Keys(ctx context.Context) ([]belay.Key, error) {
	reply, err := get[wire.Keys](ctx, c, "list keys", "/v1/keys", nil)
	return reply.Keys, err
}

// RevokeKey revokes a key.
func (c *Client) RevokeKey(ctx context.Context, r belay.Revocation) error {
	req := &request{op: "revoke key " + r.Key.String(), method: http.MethodDelete, path: "/v1/keys/" + r.Key.String()}
	req.query = url.Values{}
	set(req.query, "actor", r.Actor)
	set(req.query, "reason", r.Reason)
	return c.retry(ctx, req)
}
