package engine

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

const (
	keyPrefix = "bly_"
	// keysFor is the age up to which the keys in memory count as fresh, so this server notices
	// after that time at the latest that another server has made or revoked a key. When the keys in
	// memory reach the age keysRenew, the engine reads them again in the background; requests do
	// not wait for that.
	keysFor   = 5 * time.Second
	keysRenew = 4 * time.Second
	// keysWait is how long a request waits for a new reading of the keys before it uses the known
	// keys. keysStale is the maximum age of known keys that it may use, so that a store that
	// answers slowly does not lock out workers at once.
	keysWait  = time.Second
	keysStale = time.Minute
)

// keyring keeps the keys of the API in memory, so that the engine need not read them for every
// request. When this engine commits a key, the keyring has it at once.
type keyring struct {
	want chan struct{} // a value requests a reading of the keys

	mu        sync.Mutex
	version   int // grows with every batch that writes keys here
	at        time.Time
	bySum     map[[32]byte]knownKey // nil if no keys are known
	living    int
	reading   chan struct{} // closed when the requested read of the store has ended; nil if no read is requested
	requested time.Time     // when a read of the store was last requested, or a hint last reported changed keys
	err       error         // error of the last reading
}

// knownKey is a key in memory. signedOut is machine.APIKey.SignedOut.
type knownKey struct {
	belay.Key
	signedOut machine.Time
}

// observe adds the keys that a batch has made or revoked.
func (k *keyring) observe(b *batch) {
	written, err := keysOf(b.changes.Objects)
	if len(written) == 0 && err == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.version++
	if err != nil {
		k.bySum = nil
	}
	if k.bySum == nil {
		return
	}
	k.bySum = maps.Clone(k.bySum) // concurrent requests still read the old map
	for _, row := range written {
		k.bySum[row.Hash] = knownKey{row.View(), row.SignedOut}
	}
	k.living = 0
	for _, key := range k.bySum {
		if key.RevokedAt.IsZero() {
			k.living++
		}
	}
}

// onHint makes requests read the keys again if another server has changed a key or may have changed a
// key.
func (k *keyring) onHint(h store.Hint) {
	if !h.Objects && !h.Lost {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	k.version++
	k.requested = now
	if old := now.Add(-keysFor); k.at.After(old) {
		k.at = old
	}
}

// run reads the keys on request, until ctx ends.
func (k *keyring) run(ctx context.Context, s store.Store) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.want:
			k.read(ctx, s)
		}
	}
}

func (k *keyring) read(ctx context.Context, s store.Store) {
	k.mu.Lock()
	version := k.version
	k.mu.Unlock()
	at := time.Now()
	rows, err := readKeys(ctx, s)
	keys, living := make(map[[32]byte]knownKey, len(rows)), 0
	for _, row := range rows {
		keys[row.Hash] = knownKey{row.View(), row.SignedOut}
		if row.RevokedAt == 0 {
			living++
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err = err; err == nil && k.version == version { // if the versions differ, a key was written during the reading
		k.at, k.bySum, k.living = at, keys, living
	}
	close(k.reading)
	k.reading = nil
}

// askLocked requests a reading of the keys, and returns a channel that closes when the reading ends.
func (k *keyring) askLocked() <-chan struct{} {
	if k.reading == nil {
		k.reading, k.requested = make(chan struct{}), time.Now()
		k.want <- struct{}{} // does not block, because only one reading is requested at a time
	}
	return k.reading
}

// keys are the known keys at one moment.
type keys struct {
	bySum  map[[32]byte]knownKey
	living int
	stale  bool // the keys are older than keysFor: other servers may have changed them
}

// knownLocked returns the known keys, and whether a request may use them: they are fresh, or a new
// reading has failed or takes too long.
func (k *keyring) knownLocked() (keys, bool) {
	age := time.Since(k.at)
	if k.bySum == nil || age >= keysStale {
		return keys{}, false
	}
	if age >= keysRenew {
		k.askLocked()
	}
	stale := age >= keysFor
	return keys{k.bySum, k.living, stale}, !stale || time.Since(k.requested) >= keysWait || k.err != nil
}

// known returns the API keys that this server has in memory. If they are older than keysFor, it
// first waits until they are read from the store again, for keysWait at most.
func (e *Engine) known(ctx context.Context) (keys, error) {
	k := &e.keyring
	for {
		k.mu.Lock()
		have, ok := k.knownLocked()
		if ok {
			k.mu.Unlock()
			return have, nil
		}
		read, late := k.askLocked(), time.NewTimer(time.Until(k.requested.Add(keysWait)))
		k.mu.Unlock()
		select {
		case <-read:
			late.Stop()
			k.mu.Lock()
			have, ok := k.knownLocked()
			err := k.err
			k.mu.Unlock()
			if err != nil && !ok {
				return keys{}, err
			}
			if ok {
				return have, nil
			}
			continue // a key was written during the reading
		case <-late.C:
			if have.bySum != nil {
				continue
			}
		case <-ctx.Done():
			late.Stop()
		}
		select {
		case <-read:
		case <-ctx.Done():
			return keys{}, &belay.Error{
				Code: belay.CodeUnavailable, Op: "read the keys", Message: "gave up waiting", Err: context.Cause(ctx),
			}
		case <-e.ctx.Done():
			return keys{}, errClosed
		}
	}
}

// CreateKey makes a key. Only the answer contains the secret of the key; the store keeps a hash.
func (e *Engine) CreateKey(ctx context.Context, s belay.KeySpec) (belay.NewKey, error) {
	var raw [2]belay.OpID // the method String of an OpID formats 16 bytes like Belay's ids
	e.opt.Random(raw[0][:])
	e.opt.Random(raw[1][:])
	secret := keyPrefix + raw[0].String() + raw[1].String()
	id := belay.KeyID(e.opt.IDs())
	if !s.Op.IsZero() { // every call with the Op names the same key, which can be made once
		sum := sha256.Sum256(append([]byte("belay key\x00"), s.Op[:]...))
		copy(id[:], sum[:])
	}
	r, err := e.do(ctx, &machine.CreateKey{KeySpec: s, ID: id, Hash: sha256.Sum256([]byte(secret))})
	if err != nil {
		return belay.NewKey{}, err
	}
	k, err := machine.ReadAPIKey(r.Object)
	if err != nil {
		return belay.NewKey{}, err
	}
	return belay.NewKey{Key: k.View(), Secret: secret}, nil
}

// keysOf returns the keys among objects.
func keysOf(objects []*machine.Object) ([]*machine.APIKey, error) {
	var keys []*machine.APIKey
	for _, o := range objects {
		if o.Kind == machine.KeyObject {
			k, err := machine.ReadAPIKey(o)
			if err != nil {
				return nil, err
			}
			keys = append(keys, k)
		}
	}
	return keys, nil
}

// readKeys reads all keys, revoked ones too, oldest first.
func readKeys(ctx context.Context, s store.Store) ([]*machine.APIKey, error) {
	objects, err := store.All(ctx, s, machine.KeyObject)
	if err != nil {
		return nil, err
	}
	keys, err := keysOf(objects)
	slices.SortStableFunc(keys, func(a, b *machine.APIKey) int { return cmp.Compare(a.CreatedAt, b.CreatedAt) })
	return keys, err
}

// Keys lists the keys, revoked ones too, oldest first.
func (r *Reader) Keys(ctx context.Context) ([]belay.Key, error) {
	rows, err := readKeys(ctx, r.store)
	if err != nil {
		return nil, err
	}
	out := make([]belay.Key, len(rows))
	for i, row := range rows {
		out[i] = row.View()
	}
	return out, nil
}

// Seal returns the key with the given id, and the HMAC of a message. The HMAC's secret is the
// stored hash of the key's secret. Every server of the store computes the same HMAC; a program that
// has neither the key's secret nor access to the store cannot compute it. The errors are those of
// KeyOf.
func (e *Engine) Seal(ctx context.Context, id belay.KeyID, message []byte) (belay.Key, [32]byte, error) {
	k, code, err := e.seal(ctx, id, message)
	return k.Key, code, err
}

// Session is Seal for a page session that lasts until a time. It returns CodeUnauthorized if SignOut has ended the
// session.
func (e *Engine) Session(ctx context.Context, id belay.KeyID, until time.Time, message []byte) (belay.Key, [32]byte,
	error) {
	k, code, err := e.seal(ctx, id, message)
	if err == nil && machine.At(until) <= k.signedOut {
		return belay.Key{}, [32]byte{}, errUnknownKey
	}
	return k.Key, code, err
}

// SignOut ends the page sessions of a key that last until a time or end earlier. This server refuses them at once, and
// other servers after five seconds at the latest.
func (e *Engine) SignOut(ctx context.Context, id belay.KeyID, until time.Time) error {
	_, err := e.do(ctx, &machine.SignOut{Key: id, Until: machine.At(until)})
	return err
}

func (e *Engine) seal(ctx context.Context, id belay.KeyID, message []byte) (knownKey, [32]byte, error) {
	known, err := e.known(ctx)
	if err != nil {
		return knownKey{}, [32]byte{}, err
	}
	for sum, k := range known.bySum {
		if k.ID == id && k.RevokedAt.IsZero() {
			mac := hmac.New(sha256.New, sum[:])
			mac.Write(message)
			return k, [32]byte(mac.Sum(nil)), nil
		}
	}
	if known.stale {
		return knownKey{}, [32]byte{}, errStaleKeys
	}
	return knownKey{}, [32]byte{}, errUnknownKey
}

// HasKeys reports whether there is a key that was not revoked.
func (r *Reader) HasKeys(ctx context.Context) (bool, error) {
	keys, err := r.Keys(ctx)
	return slices.ContainsFunc(keys, func(k belay.Key) bool { return k.RevokedAt.IsZero() }), err
}

// RevokeKey ends a key for good.
func (e *Engine) RevokeKey(ctx context.Context, r belay.Revocation) error {
	_, err := e.do(ctx, &machine.RevokeKey{Revocation: r})
	return err
}

var errUnknownKey = &belay.Error{Code: belay.CodeUnauthorized, Message: "the key is not known, or was revoked"}

// errStaleKeys means that a key which is not known here may be in the store.
var errStaleKeys = &belay.Error{
	Code: belay.CodeUnavailable, Message: "the keys cannot be read at this moment", RetryAfter: time.Second,
}

// KeyOf returns the key of a secret, or CodeUnauthorized if the key is unknown or revoked. This
// server notices within five seconds that another server has made or revoked a key. While the store
// cannot be read, known keys are valid for up to a minute.
func (e *Engine) KeyOf(ctx context.Context, secret string) (belay.Key, error) {
	if !strings.HasPrefix(secret, keyPrefix) {
		return belay.Key{}, errUnknownKey
	}
	known, err := e.known(ctx)
	if err != nil {
		return belay.Key{}, err
	}
	k, ok := known.bySum[sha256.Sum256([]byte(secret))]
	switch {
	case !ok && known.stale: // another server may have made the key since the last reading
		return belay.Key{}, errStaleKeys
	case !ok || !k.RevokedAt.IsZero():
		return belay.Key{}, errUnknownKey
	}
	return k.Key, nil
}

// HasKeys reports whether there is a key that was not revoked. It uses the same known keys as
// KeyOf.
func (e *Engine) HasKeys(ctx context.Context) (bool, error) {
	known, err := e.known(ctx)
	return known.living > 0, err
}
