package machine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// keyCommand is a command on an API key, with the name of its block in testdata/keys.txt.
type keyCommand struct {
	name string
	make func(belay.KeyID) Command
}

func create(name string, scopes ...belay.Scope) func(belay.KeyID) Command {
	return func(id belay.KeyID) Command {
		return &CreateKey{KeySpec: belay.KeySpec{Name: name, Scopes: scopes}, ID: id, Hash: [32]byte{1}}
	}
}

// createOther makes a key with another secret under the same id.
func createOther(id belay.KeyID) Command {
	return &CreateKey{
		KeySpec: belay.KeySpec{Name: "x", Scopes: []belay.Scope{belay.ScopeRead}}, ID: id, Hash: [32]byte{2},
	}
}

// signOut ends the sessions that last until a time after the beginning of the test.
func signOut(after time.Duration) func(belay.KeyID) Command {
	return func(id belay.KeyID) Command { return &SignOut{id, began.Add(after)} }
}

var keyCommands = []keyCommand{
	{"create", create("ci", belay.ScopeRead, belay.ScopeSubmit)},
	{"create without a scope", create("ci")},
	{"create with an unknown scope", create("ci", belay.ScopeRead, "fly")},
	{"create with a scope named twice", create("ci", belay.ScopeRead, belay.ScopeRead)},
	{"create without a name", create("", belay.ScopeRead)},
	{"create again with another secret", createOther},
	{"sign out", signOut(time.Hour)},
	{"sign out of an earlier session", signOut(0)},
	{"sign out until a time that no session has", signOut(25 * time.Hour)},
	{"revoke", func(id belay.KeyID) Command { return &RevokeKey{Revocation: belay.Revocation{Key: id}} }},
}

// TestEveryKeyCommandInEverySituation compares the rules with testdata/keys.txt.
func TestEveryKeyCommandInEverySituation(t *testing.T) {
	rules := readRules(t, "testdata/keys.txt")
	for _, d := range keyCommands {
		t.Run(d.name, func(t *testing.T) {
			block := rules.block(t, d.name)
			for _, at := range []string{"missing", "living", "revoked", "signed-out"} {
				want, ok := block.find(at)
				if !ok {
					t.Errorf("the table has no line for %q and a key that is %s", d.name, at)
					continue
				}
				s := newStage(t)
				id := belay.KeyID(s.id())
				if at != "missing" {
					s.do(create("ci", belay.ScopeRead)(id))
				}
				if at == "revoked" {
					s.do(&RevokeKey{Revocation: belay.Revocation{Key: id}})
				}
				if at == "signed-out" {
					s.do(signOut(time.Minute)(id))
				}
				s.pass(time.Second)
				changes, replies := s.batch(d.make(id))
				if got := keyOutcome(s.key(t, id), changes, replies[0]); got != want {
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
	case len(c.Objects) == 1 && k.RevokedAt == 0 && k.SignedOut != 0:
		return "signed-out"
	case len(c.Objects) == 1 && k.RevokedAt == 0:
		return "living"
	case len(c.Objects) == 1:
		return "revoked"
	}
	return "something else"
}

// A key that is created and revoked in one batch is written once, in its last state.
func TestAKeyCreatedAndRevokedInOneBatchIsWrittenOnce(t *testing.T) {
	s := newStage(t)
	id := belay.KeyID(s.id())
	changes, replies := s.batch(create("ci", belay.ScopeAdmin)(id), &RevokeKey{Revocation: belay.Revocation{Key: id}},
		createOther(id))
	if len(changes.Objects) != 1 || changes.Objects[0].Was != 0 || s.key(t, id).RevokedAt == 0 ||
		belay.CodeOf(replies[2].Err) != belay.CodeConflict {
		t.Errorf("%+v after %+v", changes.Objects, replies)
	}
	var told []string
	for _, a := range changes.Audit {
		told = append(told, fmt.Sprint(a.Action, a.Version))
	}
	if fmt.Sprint(told) != "[create1 revoke2]" {
		t.Errorf("the audit says %v", told)
	}
}

// key returns the stored key, nil if there is no such key.
func (s *stage) key(t *testing.T, id belay.KeyID) *APIKey {
	t.Helper()
	o := s.objects[KeyRef(id)]
	if o == nil {
		return nil
	}
	k, err := ReadAPIKey(o)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Other versions of Belay, and migrations, read and write the body of a key, so its format must
// not change.
func TestTheBodyOfAKeyKeepsItsFormat(t *testing.T) {
	k := &APIKey{
		ID: belay.KeyID{0xab, 15: 1}, Name: `ci <"é">`, Scopes: []belay.Scope{belay.ScopeRead, belay.ScopeAdmin},
		Hash: [32]byte{0xcd, 31: 2}, CreatedAt: 3, RevokedAt: 4, SignedOut: 5,
	}
	const name, hash = "ab000000000000000000000000000001",
		"cd00000000000000000000000000000000000000000000000000000000000002"
	const want = `{"name":"ci \u003c\"é\"\u003e","scopes":["read","admin"],"hash":"` + hash +
		`","created_at":3,"revoked_at":4,"signed_out":5}`
	body, err := k.body()
	if err != nil || string(body) != want {
		t.Errorf("%s, %v", body, err)
	}
	living := `{"revoked_at": null, "hash" : "` + hash +
		`", "scopes":["read","admin"], "created_at":3, "name":"ci <\"é\">", "later":{}}`
	for _, x := range []struct {
		text    string
		revoked Time
	}{{want, 4}, {living, 0}} {
		text, revoked := x.text, x.revoked
		got, err := ReadAPIKey(&Object{ObjectRef: ObjectRef{"key", name}, Body: []byte(text)})
		if k.RevokedAt = revoked; revoked == 0 {
			k.SignedOut = 0
		}
		if err != nil || !same(got, k) {
			t.Errorf("%s is read as %+v, %v", text, got, err)
		}
	}
	for _, bad := range []Object{
		{ObjectRef: ObjectRef{"key", name}, Body: []byte(`{`)},
		{ObjectRef: ObjectRef{"gate", name}, Body: []byte(want)},
		{ObjectRef: ObjectRef{"key", name[1:]}, Body: []byte(want)},
		{ObjectRef: ObjectRef{"key", name + "00"}, Body: []byte(want)},
		{ObjectRef: ObjectRef{"key", "x" + name[1:]}, Body: []byte(want)},
		{ObjectRef: ObjectRef{"key", name}, Body: []byte(`{"name":"ci"}`)},
	} {
		if got, err := ReadAPIKey(&bad); belay.CodeOf(err) != belay.CodeInternal {
			t.Errorf("%s %s %s is read as %+v, %v", bad.Kind, bad.Name, bad.Body, got, err)
		}
	}
}
