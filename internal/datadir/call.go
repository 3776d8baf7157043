package datadir

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belaydev/belay"
)

var errClosed = &belay.Error{Code: belay.CodeUnavailable, Message: "the data directory was closed"}

// newsDelay is how long this process waits, after a call to the engine in another process has
// failed, for the message that the other process has stopped or ended.
const newsDelay = 250 * time.Millisecond

// call makes one call on the engine, in whichever process the engine runs. If the engine ends
// before it has answered, call calls f again with the next engine and with repeat set.
func call[T any](ctx context.Context, b *Backend, f func(ctx context.Context, to belay.Backend, repeat bool) (T,
	error)) (T, error) {
	for repeat := false; ; repeat = true {
		r, err := b.role(ctx)
		if err != nil {
			var none T
			return none, err
		}
		out, err := f(ctx, r.Backend, repeat)
		if err == nil || belay.CodeOf(err) != belay.CodeUnavailable || ctx.Err() != nil || !r.gone(ctx) {
			return out, err
		}
	}
}

// do is like call, for functions that return only an error.
func do(ctx context.Context, b *Backend, f func(ctx context.Context, to belay.Backend, repeat bool) error) error {
	_, err := call(ctx, b, func(ctx context.Context, to belay.Backend, repeat bool) (struct{}, error) {
		return struct{}{}, f(ctx, to, repeat)
	})
	return err
}

// pass is like call, for a request that does not change when it is repeated.
func pass[Q, A any](ctx context.Context, b *Backend, f func(belay.Backend, context.Context, Q) (A, error), q Q) (A,
	error) {
	return call(ctx, b, func(ctx context.Context, to belay.Backend, _ bool) (A, error) { return f(to, ctx, q) })
}

// tell is like pass, for a request that returns only an error.
func tell[Q any](ctx context.Context, b *Backend, f func(belay.Backend, context.Context, Q) error, q Q) error {
	return do(ctx, b, func(ctx context.Context, to belay.Backend, _ bool) error { return f(to, ctx, q) })
}

// role returns the current role, which is this process's way to the engine. If this process has no
// role, role waits until it has one, for the time Options.Patience at most.
func (b *Backend) role(ctx context.Context) (*role, error) {
	if r, _, _ := b.current(); r != nil {
		return r, nil
	}
	timer := time.NewTimer(b.opt.Patience)
	defer timer.Stop()
	for {
		r, changed, why := b.current()
		if r != nil {
			return r, nil
		}
		select {
		case <-changed:
		case <-b.done:
			return nil, errClosed
		case <-ctx.Done():
			return nil, unreached(errors.Join(context.Cause(ctx), why))
		case <-timer.C:
			return nil, unreached(fmt.Errorf("waited %s: %w", b.opt.Patience, why))
		}
	}
}

// current returns the current role. If this process has none, r is nil, why is the reason, and
// changed is closed when the process has a role again.
func (b *Backend) current() (r *role, changed <-chan struct{}, why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now, b.changed, b.why
}

func unreached(why error) error {
	return &belay.Error{Code: belay.CodeUnavailable, Message: "no process runs the engine of the data directory",
		RetryAfter: time.Second, Err: why}
}

// gone reports whether the role is lost. If the engine is in another process, a call may fail
// before the message arrives that the other process has ended; so gone waits for this message, for
// the time newsDelay at most.
func (r *role) gone(ctx context.Context) bool {
	select {
	case <-r.lost:
		return true
	default:
	}
	if r.host != nil {
		return false
	}
	timer := time.NewTimer(newsDelay)
	defer timer.Stop()
	select {
	case <-r.lost:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// left returns the rest of the duration wait, which began at the time began. A repeated call waits
// only for this rest.
func left(began time.Time, wait time.Duration) time.Duration {
	return max(0, wait-time.Since(began))
}
