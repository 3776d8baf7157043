package machine

import (
	"errors"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// keyDeal is one kind of command about a key.
type keyDeal struct {
	name string
	make func(belay.KeyID) Command
}

func create(name string, scopes ...belay.Scope) func(belay.KeyID) Command {
	return func(id belay.KeyID) Command {
		return &CreateKey{KeySpec: belay.KeySpec{Name: name, Scopes: scopes}, ID: id, Hash: [32]byte{1}}
	}
}

var keyDeals = []keyDeal{
	{"create", create("ci", belay.ScopeRead, belay.ScopeSubmit)},
	{"create without a scope", create("ci")},
	{"create with a scope that is not there", create("ci", belay.ScopeRead, "fly")},
	{"create with a scope named twice", create("ci", belay.ScopeRead, belay.ScopeRead)},
	{"create without a name", create("", belay.ScopeRead)},
	{"revoke", func(id belay.KeyID) Command { return &RevokeKey{id} }},
}

// TestEveryKeyCommandInEverySituation holds the rules against testdata/keys.txt.
func TestEveryKeyCommandInEverySituation(t *testing.T) {
	rules := readRules(t, "testdata/keys.txt")
	for _, d := range keyDeals {
		t.Run(d.name, func(t *testing.T) {
			block := rules.block(t, d.name)
			for _, at := range []string{"missing", "living", "revoked"} {
				want, ok := block.find(at)
				if !ok {
					t.Errorf("the table does not say what %q does to a key that is %s", d.name, at)
					continue
				}
				s := newStage(t)
				id := belay.KeyID(s.id())
				if at != "missing" {
					s.do(create("ci", belay.ScopeRead)(id))
				}
				if at == "revoked" {
					s.do(&RevokeKey{id})
				}
				s.pass(time.Second)
				changes, replies := s.batch(d.make(id))
				if got := keyOutcome(s.apiKeys[id], changes, replies[0]); got != want {
					t.Errorf("%s\n got %s\nwant %s", at, got, want)
				}
			}
			block.unused(t)
		})
	}
	rules.done(t)
}

func keyOutcome(k *APIKey, c *Changes, r Reply) string {
	var e *belay.Error
	switch {
	case errors.As(r.Err, &e) && c.Empty():
		return "! " + string(e.Code)
	case r.Replayed && c.Empty():
		return "= repeated"
	case len(c.APIKeys) == 1 && k.RevokedAt == 0:
		return "living"
	case len(c.APIKeys) == 1:
		return "revoked"
	}
	return "something else"
}

// A key that is made and revoked in one batch is written once, as it ends.
func TestAKeyMadeAndRevokedTogether(t *testing.T) {
	s := newStage(t)
	id := belay.KeyID(s.id())
	changes, replies := s.batch(create("ci", belay.ScopeAdmin)(id), &RevokeKey{id}, create("x", belay.ScopeRead)(id))
	if len(changes.APIKeys) != 1 || !changes.APIKeys[0].New || s.apiKeys[id].RevokedAt == 0 || belay.CodeOf(replies[2].Err) != belay.CodeConflict {
		t.Errorf("%+v after %+v", changes.APIKeys, replies)
	}
}
