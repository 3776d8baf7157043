// Package retry decides when a call to a Backend is made again, for all code of this module that
// repeats calls: package client, package worker and the runs of a worker.
//
// A call is repeated by one layer only. A run repeats its calls for as long as its lease is valid,
// also with a Backend that does not repeat them. It marks their context with [Once], and package
// client then makes a single try. Otherwise each try of the run would take as long as all tries of
// the client.
package retry

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/belaydev/belay"
)

// The delay after the first try, and the longest delay.
const (
	Base  = 50 * time.Millisecond
	Limit = 2 * time.Second
)

// Transient reports whether a call may succeed a moment after it failed with err: the server was
// not reached, does not serve for the moment, or asked the caller to come back later.
func Transient(err error) bool {
	switch belay.CodeOf(err) {
	case belay.CodeUnavailable, belay.CodeRateLimited:
		return true
	}
	return false
}

// Delays are the delays between the tries of one call.
type Delays struct {
	random func() [16]byte
	tries  int
}

// NewDelays returns the delays of a call. Random returns 16 bytes, of which the last eight are
// unpredictable; ids are such bytes.
func NewDelays(random func() [16]byte) Delays { return Delays{random: random} }

// Reset is called after a try that succeeded: the next delay is the shortest again.
func (d *Delays) Reset() { d.tries = 0 }

// Next is the delay after a try that failed with err. It doubles from [Base] to [Limit]. If the
// error has a RetryAfter, the delay is longer than that. Up to half of the delay, and up to a
// quarter of RetryAfter, is random: many callers with the same RetryAfter do not return at the same
// moment.
func (d *Delays) Next(err error) time.Duration {
	wait := min(Base<<min(d.tries, 8), Limit)
	d.tries++
	spread := wait / 2
	var e *belay.Error
	if errors.As(err, &e) && e.RetryAfter > 0 {
		wait += e.RetryAfter * 5 / 4
		spread += e.RetryAfter / 4
	}
	return Spread(d.random, wait, spread)
}

// Spread returns d less a random duration of up to by.
func Spread(random func() [16]byte, d, by time.Duration) time.Duration {
	id := random()
	return d - time.Duration(binary.BigEndian.Uint64(id[8:])%uint64(by+1))
}

// Wait waits for Next. It reports false if ctx has ended.
func (d *Delays) Wait(ctx context.Context, err error) bool { return Sleep(ctx, d.Next(err)) }

// Sleep waits for d. It reports false if ctx has ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

type onceKey struct{}

// Once returns a context for the calls of a caller that repeats calls itself.
func Once(ctx context.Context) context.Context { return context.WithValue(ctx, onceKey{}, true) }

// IsOnce reports whether the caller of a call repeats it itself: see [Once].
func IsOnce(ctx context.Context) bool { return ctx.Value(onceKey{}) != nil }
