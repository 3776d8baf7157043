package main

import (
	"context"
	"sync"

	"github.com/belaydev/belay"
)

// announced is the Backend of belay run's worker. It prints outages, and records the runs that this
// process has claimed.
type announced struct {
	outages

	mu   sync.Mutex
	runs map[belay.RunID]bool
}

func newAnnounced(b belay.Backend, v *view) *announced {
	return &announced{outages: outages{
		Backend: b,
		began:   func(_ int, err error) { v.say("the heartbeat fails, so the command will be frozen soon: %v", err) },
		ended:   func(int) { v.say("a heartbeat has reached the server again") },
	}}
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

// claimed reports whether this process has claimed a run.
func (a *announced) claimed(run belay.RunID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.runs[run]
}
