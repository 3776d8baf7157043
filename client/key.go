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
	var key belay.NewKey
	err := c.post(ctx, "create key "+s.Name, "/v1/keys", s, &key)
	return key, err
}

// Keys lists the keys.
func (c *Client) Keys(ctx context.Context) ([]belay.Key, error) {
	reply, err := get[wire.Keys](ctx, c, "list keys", "/v1/keys", nil)
	return reply.Keys, err
}

// RevokeKey revokes a key.
func (c *Client) RevokeKey(ctx context.Context, r belay.Revocation) error {
	req := &request{op: "revoke key " + r.Key.String(), method: http.MethodDelete, path: "/v1/keys/" + r.Key.String()}
	if r.Actor != "" {
		req.query = url.Values{"actor": {r.Actor}}
	}
	return c.retry(ctx, req)
}
