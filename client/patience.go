package client

import (
	"context"
	"time"

	"github.com/belaydev/belay/internal/retry"
)

// retry makes a call that is safe to repeat. It repeats the call after temporary errors, until the
// Client's Patience is over.
func (c *Client) retry(ctx context.Context, r *request) error {
	return c.repeat(ctx, r.op, func() error { return c.once(ctx, r) })
}

// repeat calls try until try succeeds, try returns an error that is not temporary, or the Client's
// Patience is over. If ctx says that the caller repeats the call itself, repeat calls try only once.
func (c *Client) repeat(ctx context.Context, op string, try func() error) error {
	var failing time.Time
	delays := retry.NewDelays(c.set.ids)
	for {
		err := try()
		if err == nil || !retry.Transient(err) || ctx.Err() != nil || retry.IsOnce(ctx) {
			return err
		}
		if failing.IsZero() {
			failing = time.Now()
		}
		d := delays.Next(err)
		if time.Since(failing)+d > c.set.patience {
			return err
		}
		c.set.log.DebugContext(ctx, "belay: tried again", "call", op, "wait", d, "error", err)
		if !c.sleep(ctx, d) {
			return err
		}
	}
}

// sleep waits for d. It returns false if ctx ends or the Client is closed before d has passed.
func (c *Client) sleep(ctx context.Context, d time.Duration) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	closed := context.AfterFunc(c.open, cancel)
	defer closed()
	return retry.Sleep(ctx, d)
}
