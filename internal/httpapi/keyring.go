package httpapi

import (
	"context"
	"net/http"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

type keyAt struct {
	ID     belay.KeyID `path:"id"`
	Actor  string      `query:"actor" maxLength:"200" doc:"The name of the actor, if the request needs no key."`
	Reason string      `query:"reason" maxLength:"200" doc:"The reason, which the audit keeps."`
}

type newKeyRequest struct {
	Key  string `header:"Idempotency-Key" maxLength:"200" doc:"Names the request: a repeat with the same key makes no second API key, and gets the status 409, because only the first answer has the secret."`
	Body belay.KeySpec
}

type newKeyReply struct {
	Location string `header:"Location"`
	Body     belay.NewKey
}

func (a *api) keyring() {
	admin := []belay.Scope{belay.ScopeAdmin}
	add(a, route{
		id: "createKey", method: http.MethodPost, path: "/v1/keys", tag: "keys", summary: "Make a key",
		doc:     "Only this answer shows the secret. Once the first key is made, the server refuses requests without a key.",
		example: `{"name": "ci", "scopes": ["submit", "read"]}`,
		scopes:  admin, status: http.StatusCreated, body: true, errors: []int{http.StatusConflict},
	}, func(ctx context.Context, in *newKeyRequest) (*newKeyReply, error) {
		in.Body.Op = wire.OpOf(in.Key)
		in.Body.Actor = callerOf(ctx).actor(in.Body.Actor)
		k, err := a.b.CreateKey(ctx, in.Body)
		return &newKeyReply{Location: "/v1/keys/" + k.ID.String(), Body: k}, err
	})
	add(a, route{
		id: "listKeys", method: http.MethodGet, path: "/v1/keys", tag: "keys",
		summary: "List the keys, revoked ones too", scopes: admin,
	}, func(ctx context.Context, _ *struct{}) (*struct{ Body wire.Keys }, error) {
		list, err := a.b.Keys(ctx)
		if list == nil {
			list = []belay.Key{}
		}
		return &struct{ Body wire.Keys }{wire.Keys{Keys: list}}, err
	})
	add(a, route{
		id: "revokeKey", method: http.MethodDelete, path: "/v1/keys/{id}", tag: "keys",
		summary: "Revoke a key for good", scopes: admin, status: http.StatusNoContent,
	}, func(ctx context.Context, in *keyAt) (*struct{}, error) {
		return nil, a.b.RevokeKey(ctx, belay.Revocation{
			Key: in.ID, Actor: callerOf(ctx).actor(in.Actor), Reason: in.Reason,
		})
	})
}
