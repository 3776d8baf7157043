package machine

import (
	"encoding/hex"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// KeyObject is the kind of the objects that store API keys. The name of such an object is the key's
// id in hexadecimal digits, so that lists are in the order of ids.
const KeyObject ObjectKind = "key"

// APIKey is an API key, which gives its holder access to a server. The store keeps only the hash of
// the key's secret.
type APIKey struct {
	ID        belay.KeyID
	Name      string
	Scopes    []belay.Scope
	Hash      [32]byte // SHA-256 of the secret
	CreatedAt Time
	RevokedAt Time // 0 while the key is valid
	// SignedOut ends the page sessions of the key that last until this time or end earlier. 0 ends none.
	SignedOut Time
}

// keyBody is the body of the object that holds a key.
type keyBody struct {
	Name      string        `json:"name"`
	Scopes    []belay.Scope `json:"scopes"`
	Hash      string        `json:"hash"` // in hexadecimal digits
	CreatedAt Time          `json:"created_at"`
	RevokedAt Time          `json:"revoked_at,omitzero"`
	SignedOut Time          `json:"signed_out,omitzero"`
}

var keyCodec = codec[keyBody]{KeyObject}

// KeyRef is the name of a key's object.
func KeyRef(id belay.KeyID) ObjectRef { return keyCodec.ref(hex.EncodeToString(id[:])) }

// ReadAPIKey decodes the key from its object.
func ReadAPIKey(o *Object) (*APIKey, error) {
	b, err := keyCodec.decode(o)
	if err != nil {
		return nil, err
	}
	k := &APIKey{
		Name: b.Name, Scopes: b.Scopes, CreatedAt: b.CreatedAt, RevokedAt: b.RevokedAt, SignedOut: b.SignedOut,
	}
	for _, x := range []struct {
		into []byte
		text string
	}{{k.ID[:], o.Name}, {k.Hash[:], b.Hash}} {
		if n, err := hex.Decode(x.into, []byte(x.text[:min(len(x.text), 2*len(x.into))])); err != nil ||
			n != len(x.into) || len(x.text) != 2*n {
			return nil, refuse(belay.CodeInternal, "read a key", "%q is not %d bytes in hexadecimal digits", x.text,
				len(x.into))
		}
	}
	return k, nil
}

// body encodes the key as the body of its object.
func (k *APIKey) body() ([]byte, error) {
	return keyCodec.encode(&keyBody{
		k.Name, k.Scopes, hex.EncodeToString(k.Hash[:]), k.CreatedAt, k.RevokedAt, k.SignedOut,
	})
}

// View is the key as the public API shows it.
func (k *APIKey) View() belay.Key {
	return belay.Key{
		ID: k.ID, Name: k.Name, Scopes: slices.Clone(k.Scopes), CreatedAt: k.CreatedAt.Time(),
		RevokedAt: k.RevokedAt.Time(),
	}
}

// scopes lists all scopes that a key can have.
var scopes = []belay.Scope{belay.ScopeRead, belay.ScopeSubmit, belay.ScopeOperate, belay.ScopeWorker, belay.ScopeAdmin}

// CreateKey adds a key.
type CreateKey struct {
	belay.KeySpec
	ID   belay.KeyID
	Hash [32]byte
}

// Need asks the store for the object of the key.
func (c *CreateKey) Need(n *Need) { n.Objects = append(n.Objects, KeyRef(c.ID)) }

func (c *CreateKey) apply(w *world) (Reply, error) {
	const op = "create key"
	if c.ID.IsZero() {
		return Reply{}, refuse(belay.CodeInvalid, op, "the key has no id")
	}
	if err := checkName(op, "the key's name", c.Name, true); err != nil {
		return Reply{}, err
	}
	if err := checkName(op, "the actor", c.Actor, false); err != nil {
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
	if o := w.object(KeyRef(c.ID)); o != nil {
		k, err := ReadAPIKey(o)
		switch {
		case err != nil:
			return Reply{}, err
		case k.Hash == c.Hash: // the store had carried out this command already
			return Reply{Object: o.copy(), Replayed: true}, nil
		}
		return Reply{}, refuse(belay.CodeConflict, op, "this operation has made the key %s already; only the first "+
			"answer had its secret", c.ID)
	}
	k := &APIKey{ID: c.ID, Name: c.Name, Scopes: c.Scopes, Hash: c.Hash, CreatedAt: w.Now}
	return w.putKey(op, k, put{action: "create", actor: c.Actor, op: c.Op})
}

// RevokeKey revokes a key. A revoked key never becomes valid again.
type RevokeKey struct{ belay.Revocation }

// Need asks the store for the object of the key.
func (c *RevokeKey) Need(n *Need) { n.Objects = append(n.Objects, KeyRef(c.Key)) }

func (c *RevokeKey) apply(w *world) (Reply, error) {
	const op = "revoke key"
	for what, text := range map[string]string{"the actor": c.Actor, "the reason": c.Reason} {
		if err := checkName(op, what, text, false); err != nil {
			return Reply{}, err
		}
	}
	o := w.object(KeyRef(c.Key))
	if o == nil {
		return Reply{}, refuse(belay.CodeNotFound, op, "there is no key %s", c.Key)
	}
	k, err := ReadAPIKey(o)
	if err != nil {
		return Reply{}, err
	}
	if k.RevokedAt != 0 {
		return Reply{Object: o.copy(), Replayed: true}, nil
	}
	k.RevokedAt = w.Now
	return w.putKey(op, k, put{expected: o.Version, action: "revoke", actor: c.Actor, reason: c.Reason})
}

// SignOut ends the page sessions of a key that last until a time or end earlier. A session is a sealed token that no
// store contains, so the key remembers which tokens are not valid any more.
type SignOut struct {
	Key   belay.KeyID
	Until Time
}

// maxSession bounds the time that a key remembers: no session lasts longer, so that a sign-out never keeps people from
// signing in again.
const maxSession = Time(24 * time.Hour / time.Microsecond)

// Need asks the store for the object of the key.
func (c *SignOut) Need(n *Need) { n.Objects = append(n.Objects, KeyRef(c.Key)) }

func (c *SignOut) apply(w *world) (Reply, error) {
	const op = "sign out"
	o := w.object(KeyRef(c.Key))
	if o == nil {
		return Reply{}, refuse(belay.CodeNotFound, op, "there is no key %s", c.Key)
	}
	k, err := ReadAPIKey(o)
	switch {
	case err != nil:
		return Reply{}, err
	case c.Until > w.Now+maxSession:
		return Reply{}, refuse(belay.CodeInvalid, op, "no page session lasts that long")
	case c.Until <= k.SignedOut || k.RevokedAt != 0:
		return Reply{Object: o.copy(), Replayed: true}, nil
	}
	k.SignedOut = c.Until
	return w.putKey(op, k, put{expected: o.Version, action: "sign_out", actor: k.Name})
}

// putKey writes the object (see Object) that has the key k, with the audit of p. The change is refused as a conflict if
// the stored version is not the expected one.
func (w *world) putKey(op string, k *APIKey, p put) (Reply, error) {
	body, err := k.body()
	if err != nil {
		return Reply{}, err
	}
	p.ref, p.body = KeyRef(k.ID), body
	return w.put(op, p)
}
