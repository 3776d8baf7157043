package main

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/belaydev/belay"
)

// announced is the backend of a worker whose outages are told to the person at
// the keyboard: while no heartbeat gets through the command is held, which
// looks like nothing at all. It also knows what this process has run.
type announced struct {
	belay.Backend
	view *view
	away atomic.Bool

	mu   sync.Mutex
	runs map[belay.RunID]bool
}

// Heartbeat says when the store is away, and when it is back.
func (a *announced) Heartbeat(ctx context.Context, h belay.Heartbeat) (belay.HeartbeatReply, error) {
	r, err := a.Backend.Heartbeat(ctx, h)
	away := err != nil && ctx.Err() == nil && belay.CodeOf(err) != belay.CodeLeaseLost // which ends the run
	if was := a.away.Swap(away); away && !was {
		a.view.say("the heartbeat fails, so the command is held soon: %v", err)
	} else if was && err == nil {
		a.view.say("the heartbeat gets through again")
	}
	return r, err
}

// Claim notes what is won.
func (a *announced) Claim(ctx context.Context, r belay.ClaimRequest) (belay.ClaimReply, error) {
	reply, err := a.Backend.Claim(ctx, r)
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range reply.Assignments {
		if a.runs == nil {
			a.runs = make(map[belay.RunID]bool)
		}
		a.runs[reply.Assignments[i].Lease.Run()] = true
	}
	return reply, err
}

// won reports whether a run is one of this process.
func (a *announced) won(run belay.RunID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.runs[run]
}
