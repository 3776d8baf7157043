package belay

import "time"

// Scope is one right of an API key. A key has only the scopes that it names, except that ScopeAdmin
// includes all scopes.
type Scope string

// The scopes of API keys.
const (
	ScopeRead    Scope = "read"    // read executions, histories and workers
	ScopeSubmit  Scope = "submit"  // submit executions and signals
	ScopeOperate Scope = "operate" // cancel, pause, resume, retry, steal, drain, change gates
	ScopeWorker  Scope = "worker"  // own executions: claim, save checkpoints, settle, lock
	ScopeAdmin   Scope = "admin"   // all rights, and the management of keys
)

// KeyID names an API key, written key_….
type KeyID [16]byte

// String writes the id with its prefix.
func (id KeyID) String() string { return "key_" + encode(id[:]) }

// IsZero reports whether the id is the zero value, which names nothing.
func (id KeyID) IsZero() bool { return id == KeyID{} }

// MarshalText writes the id as String does, and the zero id as an empty text.
func (id KeyID) MarshalText() ([]byte, error) { return text(id.IsZero(), id) }

// UnmarshalText reads what MarshalText wrote.
func (id *KeyID) UnmarshalText(b []byte) error { return parse(string(b), "key_", id[:]) }

// Key is an API key with which a client may use a server. It does not contain the key's secret.
type Key struct {
	ID     KeyID   `json:"id"`
	Name   string  `json:"name"`
	Scopes []Scope `json:"scopes"`

	CreatedAt time.Time `json:"created_at"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
}

// Allows reports whether the key has the scope and is not revoked.
func (k Key) Allows(s Scope) bool {
	for _, have := range k.Scopes {
		if have == s || have == ScopeAdmin {
			return k.RevokedAt.IsZero()
		}
	}
	return false
}

// KeySpec describes a key to create.
type KeySpec struct {
	// Name tells people which program or person uses the key. In actions that are carried out with
	// the key, Name is the actor. Name has at most MaxName bytes.
	Name   string  `json:"name"`
	Scopes []Scope `json:"scopes"`
	// Actor is the person or program that creates the key, for the audit log. Over HTTP, it is the
	// name of the key with which the request was sent, if the request had a key.
	Actor string `json:"actor,omitempty"`
	// Op names the call: a second call with the same Op makes no second key, and returns CodeConflict, because the
	// secret of the first key cannot be shown again. With the zero Op, each call makes a key. Over HTTP it is the
	// header Idempotency-Key.
	Op OpID `json:"-"`
}

// Revocation names the key to revoke.
type Revocation struct {
	Key KeyID `json:"key"`
	// Actor is the person or program that revokes the key, for the audit log. Over HTTP, it is the
	// name of the key with which the request was sent, if the request had a key.
	Actor string `json:"actor,omitempty"`
	// Reason is for the audit log. It has at most MaxName bytes.
	Reason string `json:"reason,omitempty"`
}

// NewKey is the answer to a KeySpec: the key that was created.
type NewKey struct {
	Key
	// Secret is the text that clients send to use the key: bly_…. Belay does not store it and
	// cannot show it again.
	Secret string `json:"secret"`
}
