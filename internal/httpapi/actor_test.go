package httpapi_test

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/httpapi"
)

// actors is a Backend that records the actor of each change to a key.
type actors struct {
	*embedded.Backend
	named []string
}

func (a *actors) CreateKey(ctx context.Context, s belay.KeySpec) (belay.NewKey, error) {
	a.named = append(a.named, "create by "+s.Actor)
	return a.Backend.CreateKey(ctx, s)
}

func (a *actors) RevokeKey(ctx context.Context, r belay.Revocation) error {
	a.named = append(a.named, "revoke by "+r.Actor)
	return a.Backend.RevokeKey(ctx, r)
}

// The server records the name of the request's key as the actor of a change to keys, even if the
// request names another actor. While a server has no keys, it records the actor that the request
// names.
func TestAChangeToAKeyNamesTheKeyOfTheRequest(t *testing.T) {
	b, err := embedded.Open(t.Context(), "memory:", embedded.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	a := &actors{Backend: b}
	s := serveOn(t, a, httpapi.Options{Keys: b})
	var admin, other belay.NewKey
	s.want(http.StatusCreated, &admin, http.MethodPost, "/v1/keys",
		`{"name": "ops", "scopes": ["admin"], "actor": "root"}`)
	s.key = admin.Secret
	s.want(http.StatusCreated, &other, http.MethodPost, "/v1/keys",
		`{"name": "ci", "scopes": ["read"], "actor": "root"}`)
	s.want(http.StatusNoContent, nil, http.MethodDelete, "/v1/keys/"+other.ID.String()+"?actor=root", "")
	if want := []string{"create by root", "create by ops", "revoke by ops"}; !slices.Equal(a.named, want) {
		t.Errorf("%q, want %q", a.named, want)
	}
}
