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

// actors is a Backend that records the actor of each change to a key and of each cordon.
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

func (a *actors) Cordon(ctx context.Context, c belay.Cordon) error {
	a.named = append(a.named, "cordon by "+c.Actor)
	return a.Backend.Cordon(ctx, c)
}

// The server records the name of the request's key as the actor of a cordon, even if the request names
// another actor. A key without the scope operate may not cordon.
func TestACordonNamesTheKeyOfTheRequest(t *testing.T) {
	b, err := embedded.Open(t.Context(), "memory:", embedded.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	a := &actors{Backend: b}
	s := serveOn(t, a, httpapi.Options{Keys: b})
	worker := s.want(http.StatusCreated, nil, http.MethodPost, "/v1/workers",
		`{"name": "a", "workflows": [{"workflow": "w"}], "capacity": 1}`).Header.Get("Location")
	body := `{"reason": "its disk is failing", "actor": "root"}`
	s.want(http.StatusNoContent, nil, http.MethodPost, worker+"/cordon", body)
	var ops, ci belay.NewKey
	s.want(http.StatusCreated, &ops, http.MethodPost, "/v1/keys", `{"name": "ops", "scopes": ["admin"]}`)
	s.key = ops.Secret
	s.want(http.StatusCreated, &ci, http.MethodPost, "/v1/keys",
		`{"name": "ci", "scopes": ["read", "submit", "worker"]}`)
	s.want(http.StatusNoContent, nil, http.MethodPost, worker+"/cordon", body)
	s.key = ci.Secret
	s.want(http.StatusForbidden, nil, http.MethodPost, worker+"/cordon", body)
	want := []string{"cordon by root", "create by ", "create by ops", "cordon by ops"}
	if !slices.Equal(a.named, want) {
		t.Errorf("%q, want %q", a.named, want)
	}
	list, err := b.Workers(t.Context())
	if err != nil || len(list) != 1 || list[0].Cordoned == nil || list[0].Cordoned.By != "ops" ||
		list[0].Cordoned.Reason != "its disk is failing" {
		t.Errorf("%+v, %v", list, err)
	}
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
