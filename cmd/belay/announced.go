package main

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/belaydev/belay"
)

// announced is the backend of belay run's worker. It prints outages, since while no heartbeat gets
// through the command is frozen, and the user would see a standstill without a reason. It also
// records the runs that this process has claimed.
type announced struct {
	belay.Backend
	view *view
	away atomic.Bool

	mu   sync.Mutex
	runs map[belay.RunID]bool
}

// Heartbeat prints a line when heartbeats begin to fail, and another when they get through again.
func (a *announced) Heartbeat(ctx context.Context, h belay.Heartbeat) (belay.HeartbeatReply, error) {
	r, err := a.Backend.Heartbeat(ctx, h)
	// A lost lease is no outage: it ends the run.
	away := err != nil && ctx.Err() == nil && belay.CodeOf(err) != belay.CodeLeaseLost
	if was := a.away.Swap(away); away && !was {
		a.view.say("the heartbeat fails, so the command will be frozen soon: %v", err)
	} else if was && err == nil {
		a.view.say("the heartbeat gets through again")
	}
	return r, err
}

// Claim records the runs that this process has claimed.
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

// won reports whether this process has claimed a run.
func (a *announced) won(run belay.RunID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.runs[run]
}
