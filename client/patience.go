package client

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/belaydev/belay"
)

// Bounds of the delay between two tries of a call.
const (
	waitBase = 50 * time.Millisecond
	waitCap  = 2 * time.Second
)

// retry makes a call that is safe to repeat. It repeats the call after errors that may pass, until
// the Client's Patience is over.
func (c *Client) retry(ctx context.Context, r *request) error {
	return c.repeat(ctx, r.op, func() error { return c.once(ctx, r) })
}

// repeat calls try until it returns no error that may pass, or the Client's Patience is over.
func (c *Client) repeat(ctx context.Context, op string, try func() error) error {
	var failing time.Time
	for n := 0; ; n++ {
		err := try()
		if err == nil || !mayPass(err) || ctx.Err() != nil {
			return err
		}
		if failing.IsZero() {
			failing = time.Now()
		}
		d := c.pause(n, err)
		if time.Since(failing)+d > c.set.patience {
			return err
		}
		c.set.log.DebugContext(ctx, "belay: tried again", "call", op, "wait", d, "error", err)
		if !c.sleep(ctx, d) {
			return err
		}
	}
}

// mayPass reports whether the call may succeed a moment after it failed with err.
func mayPass(err error) bool {
	switch belay.CodeOf(err) {
	case belay.CodeUnavailable, belay.CodeRateLimited:
		return true
	}
	return false
}

// pause is the delay after try n. It doubles with n, is at least the RetryAfter that the server
// asked for, and has jitter, so that many clients that got the same RetryAfter do not all return at
// the same moment.
func (c *Client) pause(n int, err error) time.Duration {
	d := min(waitBase<<min(n, 8), waitCap)
	spread := d / 2
	d -= spread
	var e *belay.Error
	if errors.As(err, &e) {
		d += e.RetryAfter
		spread += e.RetryAfter / 4
	}
	id := c.set.ids() // the last bytes of an id are random
	return d + time.Duration(binary.BigEndian.Uint64(id[8:])%uint64(spread))
}

// sleep waits for d. It reports false if ctx ended or the Client was closed meanwhile.
func (c *Client) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-c.open.Done():
	}
	return false
}
