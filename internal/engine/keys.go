package engine

import (
	"context"
	"crypto/sha256"
	"strings"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

const (
	keyPrefix = "bly_"
	// keysFor is how long keys that another server made or revoked may go
	// unnoticed.
	keysFor = 5 * time.Second
)

// keyring remembers the keys, so that not every request reads them. What this
// engine writes is seen at once.
type keyring struct {
	mu      sync.Mutex
	version int // grows with every key written here
	at      time.Time
	bySum   map[[32]byte]belay.Key // nil if they must be read
	living  int
}

// observe forgets the keys if a batch has changed one.
func (k *keyring) observe(c *machine.Changes) {
	if len(c.APIKeys) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.version++
	k.bySum = nil
}

// heed forgets the keys if another server has changed one, or may have.
func (k *keyring) heed(h store.Hint) {
	if !h.Keys && !h.Lost {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.version++
	k.bySum = nil
}

// known are the keys by the hash of their secret, and how many live.
func (e *Engine) known(ctx context.Context) (map[[32]byte]belay.Key, int, error) {
	k := &e.keyring
	for {
		k.mu.Lock()
		version, keys, living := k.version, k.bySum, k.living
		fresh := keys != nil && time.Since(k.at) < keysFor
		k.mu.Unlock()
		if fresh {
			return keys, living, nil
		}
		at := time.Now()
		rows, err := e.store.APIKeys(ctx)
		if err != nil {
			return nil, 0, err
		}
		keys, living = make(map[[32]byte]belay.Key, len(rows)), 0
		for _, row := range rows {
			keys[row.Hash] = row.View()
			if row.RevokedAt == 0 {
				living++
			}
		}
		k.mu.Lock()
		if k.version == version { // else one was written meanwhile
			k.at, k.bySum, k.living = at, keys, living
		}
		k.mu.Unlock()
	}
}

// CreateKey makes a key. Its secret is shown in the answer and kept nowhere.
func (e *Engine) CreateKey(ctx context.Context, s belay.KeySpec) (belay.NewKey, error) {
	var raw [2]belay.OpID // an operation id writes 16 bytes as Belay writes ids
	e.opt.Random(raw[0][:])
	e.opt.Random(raw[1][:])
	secret := keyPrefix + raw[0].String() + raw[1].String()
	r, err := e.do(ctx, &machine.CreateKey{KeySpec: s, ID: belay.KeyID(e.opt.IDs()), Hash: sha256.Sum256([]byte(secret))})
	if err != nil {
		return belay.NewKey{}, err
	}
	return belay.NewKey{Key: r.Key, Secret: secret}, nil
}

// Keys lists the keys.
func (e *Engine) Keys(ctx context.Context) ([]belay.Key, error) {
	rows, err := e.store.APIKeys(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]belay.Key, len(rows))
	for i, row := range rows {
		out[i] = row.View()
	}
	return out, nil
}

// RevokeKey ends a key for good.
func (e *Engine) RevokeKey(ctx context.Context, id belay.KeyID) error {
	_, err := e.do(ctx, &machine.RevokeKey{ID: id})
	return err
}

// KeyOf is the living key of a secret; CodeUnauthorized if there is none. A key
// that another server has made or revoked is noticed within five seconds.
func (e *Engine) KeyOf(ctx context.Context, secret string) (belay.Key, error) {
	bad := &belay.Error{Code: belay.CodeUnauthorized, Message: "the key is not known, or was revoked"}
	if !strings.HasPrefix(secret, keyPrefix) {
		return belay.Key{}, bad
	}
	keys, _, err := e.known(ctx)
	if err != nil {
		return belay.Key{}, err
	}
	k, ok := keys[sha256.Sum256([]byte(secret))]
	if !ok || !k.RevokedAt.IsZero() {
		return belay.Key{}, bad
	}
	return k, nil
}

// HasKeys reports whether there is a key that was not revoked. It is as new as
// KeyOf.
func (e *Engine) HasKeys(ctx context.Context) (bool, error) {
	_, living, err := e.known(ctx)
	return living > 0, err
}
