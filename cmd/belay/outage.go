package main

import (
	"context"
	"sync/atomic"

	"github.com/belaydev/belay"
)

// outages wraps the Backend of a worker. It reports when heartbeats begin to fail and when they
// succeed again. While heartbeats fail, the worker freezes its commands; the reports tell the user
// why the commands stand still.
type outages struct {
	belay.Backend
	began func(runs int, err error)
	ended func(runs int)

	failing atomic.Bool
}

// Heartbeat reports the first heartbeat that fails, and the first heartbeat that succeeds after it.
func (o *outages) Heartbeat(ctx context.Context, h belay.Heartbeat) (belay.HeartbeatReply, error) {
	reply, err := o.Backend.Heartbeat(ctx, h)
	// A lost lease is no outage: it ends the run, and package worker logs it.
	failing := err != nil && ctx.Err() == nil && belay.CodeOf(err) != belay.CodeLeaseLost
	if before := o.failing.Swap(failing); failing && !before {
		o.began(len(h.Holds), err)
	} else if before && err == nil {
		o.ended(len(h.Holds))
	}
	return reply, err
}
