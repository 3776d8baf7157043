package machine

import (
	"slices"

	"github.com/belaydev/belay"
)

// APIKey is the row of a key that lets somebody use a server. Of its secret only
// the hash is kept.
type APIKey struct {
	ID        belay.KeyID
	Name      string
	Scopes    []belay.Scope // never changed in place
	Hash      [32]byte      // SHA-256 of the secret
	CreatedAt Time
	RevokedAt Time // 0 while it lives
	New       bool
}

// View is the key as belay shows it.
func (k *APIKey) View() belay.Key {
	return belay.Key{
		ID: k.ID, Name: k.Name, Scopes: slices.Clone(k.Scopes), CreatedAt: k.CreatedAt.Time(), RevokedAt: k.RevokedAt.Time(),
	}
}

// scopes are those there are.
var scopes = []belay.Scope{belay.ScopeRead, belay.ScopeSubmit, belay.ScopeOperate, belay.ScopeWorker, belay.ScopeAdmin}

// CreateKey makes a key.
type CreateKey struct {
	belay.KeySpec
	ID   belay.KeyID
	Hash [32]byte
}

// Need names the key.
func (c *CreateKey) Need(n *Need) { n.APIKeys = append(n.APIKeys, c.ID) }

func (c *CreateKey) apply(w *world) (Reply, error) {
	const op = "create key"
	if c.ID.IsZero() {
		return Reply{}, refuse(belay.CodeInvalid, op, "the key has no id")
	}
	if err := checkName(op, "the key's name", c.Name, true); err != nil {
		return Reply{}, err
	}
	if len(c.Scopes) == 0 {
		return Reply{}, refuse(belay.CodeInvalid, op, "the key has no scope; there are %v", scopes)
	}
	for i, s := range c.Scopes {
		if !slices.Contains(scopes, s) {
			return Reply{}, refuse(belay.CodeInvalid, op, "there is no scope %q; there are %v", s, scopes)
		}
		if slices.Contains(c.Scopes[:i], s) {
			return Reply{}, refuse(belay.CodeInvalid, op, "scope %s is named twice", s)
		}
	}
	if w.apiKey(c.ID) != nil {
		return Reply{}, refuse(belay.CodeConflict, op, "there is a key %s already", c.ID)
	}
	k := &APIKey{ID: c.ID, Name: c.Name, Scopes: slices.Clone(c.Scopes), Hash: c.Hash, CreatedAt: w.Now, New: true}
	w.out.APIKeys = append(w.out.APIKeys, k)
	return Reply{Key: k.View()}, nil
}

// RevokeKey ends a key for good.
type RevokeKey struct{ ID belay.KeyID }

// Need names the key.
func (c *RevokeKey) Need(n *Need) { n.APIKeys = append(n.APIKeys, c.ID) }

func (c *RevokeKey) apply(w *world) (Reply, error) {
	k := w.apiKey(c.ID)
	if k == nil {
		return Reply{}, refuse(belay.CodeNotFound, "revoke key", "there is no key %s", c.ID)
	}
	if k.RevokedAt != 0 {
		return Reply{Key: k.View(), Replayed: true}, nil
	}
	k.RevokedAt = w.Now
	if !slices.Contains(w.out.APIKeys, k) {
		w.out.APIKeys = append(w.out.APIKeys, k)
	}
	return Reply{Key: k.View()}, nil
}

// apiKey is the key as it stands at this point of the fold.
func (w *world) apiKey(id belay.KeyID) *APIKey {
	for _, all := range [][]*APIKey{w.out.APIKeys, w.APIKeys} {
		for _, k := range all {
			if k.ID == id {
				return k
			}
		}
	}
	return nil
}
