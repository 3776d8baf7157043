package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
)

// A key works as soon as it is made and not a moment longer than it is revoked,
// on the server that did so; on another one within five seconds.
func TestAKeyWorksUntilItIsRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(time.Now)
		here, there := engine.New(s, engine.Options{}), engine.New(s, engine.Options{})
		defer here.Close()
		defer there.Close()
		ctx := t.Context()
		if must[bool](t)(here.HasKeys(ctx)) || must[bool](t)(there.HasKeys(ctx)) {
			t.Fatal("there is a key before any was made")
		}
		k := must[belay.NewKey](t)(here.CreateKey(ctx, belay.KeySpec{Name: "ci", Scopes: []belay.Scope{belay.ScopeRead, belay.ScopeSubmit}}))
		if !strings.HasPrefix(k.Secret, "bly_") || len(k.Secret) != 56 {
			t.Errorf("the secret has %d characters", len(k.Secret))
		}
		got := must[belay.Key](t)(here.KeyOf(ctx, k.Secret))
		if got.ID != k.ID || got.Name != "ci" || !got.Allows(belay.ScopeSubmit) || got.Allows(belay.ScopeAdmin) || !must[bool](t)(here.HasKeys(ctx)) {
			t.Errorf("the key is %+v", got)
		}
		time.Sleep(5 * time.Second)
		must[belay.Key](t)(there.KeyOf(ctx, k.Secret))
		if err := here.RevokeKey(ctx, k.ID); err != nil {
			t.Fatal(err)
		}
		_, err := here.KeyOf(ctx, k.Secret)
		refusal(t, err, belay.CodeUnauthorized, "")
		must[belay.Key](t)(there.KeyOf(ctx, k.Secret)) // not noticed yet
		time.Sleep(5 * time.Second)
		_, err = there.KeyOf(ctx, k.Secret)
		refusal(t, err, belay.CodeUnauthorized, "")
		if must[bool](t)(here.HasKeys(ctx)) || must[bool](t)(there.HasKeys(ctx)) {
			t.Error("a revoked key counts")
		}
		if all := must[[]belay.Key](t)(there.Keys(ctx)); len(all) != 1 || all[0].RevokedAt.IsZero() {
			t.Errorf("keys %+v", all)
		}
		for _, secret := range []string{"", "bly_", "bly_" + strings.Repeat("0", 52), "Basic x"} {
			_, err := here.KeyOf(ctx, secret)
			refusal(t, err, belay.CodeUnauthorized, "")
		}
	})
}
