// Package retry decides when a failed call to a Backend is repeated. All code of this module that
// repeats calls uses it: package client, package worker and the runs of a worker.
//
// Only one layer repeats a call. A run repeats its calls for as long as its lease is valid, because
// its Backend may not repeat calls. The run marks the context of its calls with [Once], and package
// client then makes a single try. Without that mark, each try of the run would take as long as all
// tries of the client.
package retry

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/belaydev/belay"
)

// Base is the delay after the first try (up to half of it is random), and Limit is the longest
// delay.
const (
	Base  = 50 * time.Millisecond
	Limit = 2 * time.Second
)

// Transient reports whether a call that failed with err may succeed a moment later: the caller did
// not reach the server, or the server cannot serve at the moment or limits the rate of calls.
func Transient(err error) bool {
	switch belay.CodeOf(err) {
	case belay.CodeUnavailable, belay.CodeRateLimited:
		return true
	}
	return false
}

// Delays computes the delays between the tries of one call.
type Delays struct {
	random func() [16]byte
	tries  int
}

// NewDelays returns the delays of a call. random returns 16 bytes, of which the last eight are
// unpredictable, for example a new id.
func NewDelays(random func() [16]byte) Delays { return Delays{random: random} }

// Reset makes the next delay the shortest again. Callers call it after a try that succeeded.
func (d *Delays) Reset() { d.tries = 0 }

// Next returns the delay after a try that failed with err. The delay doubles from [Base] to
// [Limit]. If the error has a RetryAfter, the delay is longer than RetryAfter. Up to half of the
// delay, and up to a quarter of RetryAfter, is random, so that many callers with the same
// RetryAfter do not call again at the same moment.
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

// Spread returns d minus a random duration between 0 and by.
func Spread(random func() [16]byte, d, by time.Duration) time.Duration {
	id := random()
	return d - time.Duration(binary.BigEndian.Uint64(id[8:])%uint64(by+1))
}

// Wait waits for the delay that [Delays.Next] returns. It reports false if ctx has ended.
func (d *Delays) Wait(ctx context.Context, err error) bool { return Sleep(ctx, d.Next(err)) }

// Sleep waits for the duration d. It reports false if ctx has ended.
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

// Once returns a context that makes package client try each call only once. It is for a caller that
// repeats failed calls itself.
func Once(ctx context.Context) context.Context { return context.WithValue(ctx, onceKey{}, true) }

// IsOnce reports whether ctx comes from [Once].
func IsOnce(ctx context.Context) bool { return ctx.Value(onceKey{}) != nil }
