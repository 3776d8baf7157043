package sdktest

import (
	"strings"
	"time"

	"github.com/belaydev/belay"
)

var keys = []testCase{
	{"a key is shown once, listed without its secret, and revoked for ever", func(e *env) {
		admin, err := e.b.CreateKey(e.ctx, belay.KeySpec{Name: "ops", Scopes: []belay.Scope{belay.ScopeAdmin}})
		if err != nil || !strings.HasPrefix(admin.Secret, "bly_") || !admin.Allows(belay.ScopeWorker) {
			e.Fatalf("key %+v, %v", admin.Key, err)
		}
		b := e.with(admin.Secret)
		e.sleep(time.Second)
		ci, err := b.CreateKey(e.ctx, belay.KeySpec{Name: "ci", Scopes: []belay.Scope{belay.ScopeSubmit}})
		e.must(err)
		e.must(b.RevokeKey(e.ctx, belay.Revocation{Key: ci.ID}))
		e.must(b.RevokeKey(e.ctx, belay.Revocation{Key: ci.ID}))
		list, err := b.Keys(e.ctx)
		if err != nil || len(list) != 2 || list[0].ID != admin.ID || list[1].ID != ci.ID {
			e.Fatalf("keys %+v, %v", list, err)
		}
		if !list[0].RevokedAt.IsZero() || list[1].RevokedAt.IsZero() || list[1].Allows(belay.ScopeSubmit) ||
			list[1].Name != "ci" {
			e.Errorf("keys %+v", list)
		}
		e.refused("revoke nothing", b.RevokeKey(e.ctx, belay.Revocation{Key: belay.KeyID{1}}), belay.CodeNotFound, "")
		_, err = b.CreateKey(e.ctx, belay.KeySpec{Name: "x", Scopes: []belay.Scope{"rule the world"}})
		if code := belay.CodeOf(err); code != belay.CodeInvalid {
			e.Errorf("an unknown scope: %v", err)
		}
	}},
}

// with returns a Backend for a program that sends the key.
func (e *env) with(secret string) belay.Backend {
	if k, ok := e.b.(interface{ WithKey(string) belay.Backend }); ok {
		return k.WithKey(secret)
	}
	return e.b
}
