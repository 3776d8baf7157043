package belay

import "time"

// Scope is one right of a key. A key has those it names and no other;
// ScopeAdmin has all.
type Scope string

// The scopes.
const (
	ScopeRead    Scope = "read"    // see executions, histories, workers
	ScopeSubmit  Scope = "submit"  // submit executions and signals
	ScopeOperate Scope = "operate" // cancel, pause, resume, retry, steal, drain
	ScopeWorker  Scope = "worker"  // own executions: claim, checkpoint, settle, lock
	ScopeAdmin   Scope = "admin"   // everything, and keys themselves
)

// KeyID names a key: written key_….
type KeyID [16]byte

// String writes the id with its prefix.
func (id KeyID) String() string { return "key_" + encode(id[:]) }

// IsZero reports whether the id names nothing.
func (id KeyID) IsZero() bool { return id == KeyID{} }

// MarshalText writes the id as String does; the zero id is empty.
func (id KeyID) MarshalText() ([]byte, error) { return text(id.IsZero(), id) }

// UnmarshalText reads what MarshalText wrote.
func (id *KeyID) UnmarshalText(b []byte) error { return parse(string(b), "key_", id[:]) }

// Key is a right to use a server, without its secret.
type Key struct {
	ID     KeyID   `json:"id"`
	Name   string  `json:"name"`
	Scopes []Scope `json:"scopes"`

	CreatedAt time.Time `json:"created_at"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
}

// Allows reports whether the key has a right.
func (k Key) Allows(s Scope) bool {
	for _, have := range k.Scopes {
		if have == s || have == ScopeAdmin {
			return k.RevokedAt.IsZero()
		}
	}
	return false
}

// KeySpec asks for a key.
type KeySpec struct {
	// Name says to people who uses it; it is the actor of what is done with
	// it. At most MaxName bytes.
	Name   string  `json:"name"`
	Scopes []Scope `json:"scopes"`
	// Actor is who makes it, for the audit; over HTTP it is the name of the key that
	// the request carries, if it carries one.
	Actor string `json:"actor,omitempty"`
}

// Revocation ends a key for good.
type Revocation struct {
	Key KeyID `json:"key"`
	// Actor is who ends it, as in KeySpec.
	Actor string `json:"actor,omitempty"`
}

// NewKey answers a KeySpec.
type NewKey struct {
	Key
	// Secret is what its user sends: bly_…. It is not kept and cannot be
	// shown again.
	Secret string `json:"secret"`
}
