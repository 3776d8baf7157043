package engine

import (
	"context"

	"github.com/belaydev/belay"
)

var errNotYet = &belay.Error{Code: belay.CodeUnavailable, Message: "not built yet"}

// Lock makes an outside owner.
func (e *Engine) Lock(context.Context, belay.LockRequest) (belay.Lock, error) {
	return belay.Lock{}, errNotYet
}

// Renew is the heartbeat of one run.
func (e *Engine) Renew(context.Context, belay.Lease) (belay.HeartbeatReply, error) {
	return belay.HeartbeatReply{}, errNotYet
}

// Runs reads the attempts at an execution.
func (r *Reader) Runs(context.Context, belay.ExecutionID) ([]belay.RunRecord, error) {
	return nil, errNotYet
}

// CreateKey makes a key.
func (e *Engine) CreateKey(context.Context, belay.KeySpec) (belay.NewKey, error) {
	return belay.NewKey{}, errNotYet
}

// Keys lists the keys.
func (e *Engine) Keys(context.Context) ([]belay.Key, error) { return nil, errNotYet }

// RevokeKey ends a key.
func (e *Engine) RevokeKey(context.Context, belay.KeyID) error { return errNotYet }

// KeyOf finds the living key of a secret; CodeUnauthorized if there is none.
func (e *Engine) KeyOf(context.Context, string) (belay.Key, error) { return belay.Key{}, errNotYet }

// HasKeys reports whether a key that is not revoked was made.
func (e *Engine) HasKeys(context.Context) (bool, error) { return false, errNotYet }
