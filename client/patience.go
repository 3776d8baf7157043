package client

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/belaydev/belay"
)

// Bounds of the wait between two tries of a call.
const (
	waitBase = 50 * time.Millisecond
	waitCap  = 2 * time.Second
)

// patient makes a call that is safe to repeat until it is answered, refused, or the
// Client's patience is over.
func (c *Client) patient(ctx context.Context, r *request) error {
	return c.repeat(ctx, r.op, func() error { return c.once(ctx, r) })
}

func (c *Client) repeat(ctx context.Context, op string, try func() error) error {
	var failing time.Time
	for n := 0; ; n++ {
		err := try()
		if err == nil || !passing(err) || ctx.Err() != nil {
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

// passing reports whether what err says may be otherwise a moment later.
func passing(err error) bool {
	switch belay.CodeOf(err) {
	case belay.CodeUnavailable, belay.CodeRateLimited:
		return true
	}
	return false
}

// pause is the wait after try n: it doubles, is as long as the server asks for at
// least, and has jitter, so that the many whom a server told the same do not come
// back together.
func (c *Client) pause(n int, err error) time.Duration {
	d := min(waitBase<<min(n, 8), waitCap)
	spread := d / 2
	d -= spread
	var e *belay.Error
	if errors.As(err, &e) {
		d += e.RetryAfter
		spread += e.RetryAfter / 4
	}
	id := c.set.ids() // its last bytes are random
	return d + time.Duration(binary.BigEndian.Uint64(id[8:])%uint64(spread))
}

// sleep waits, and reports whether it was allowed to.
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
