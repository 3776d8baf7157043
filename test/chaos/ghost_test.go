package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/belaydev/belay"
)

// Ghosts (careless workers) have their own queue.
const (
	ghostQueue    = "ghosts"
	ghostWorkflow = "openSessions"
)

// ghost is a client that uses the worker protocol carelessly: it stops its heartbeats, loses its
// lease, and still writes under that lease.
type ghost struct {
	*world
	name string
	r    *rand.Rand
	n    int
}

// openSessions opens one session of the ghost (a careless worker) after the other until ctx ends.
func (g *ghost) openSessions(ctx context.Context) {
	for pause(ctx, between(g.r, 200*time.Millisecond, time.Second)) == nil {
		b := g.patient(g.r, g.name)
		s := belay.Submission{ID: newExecutionID(), Workflow: ghostWorkflow, Queue: ghostQueue}
		if _, err := b.Submit(ctx, s); err != nil {
			continue
		}
		if first, held := g.own(ctx, b); held {
			g.write(ctx, first)
		}
	}
}

// own opens a session and claims one execution.
func (g *ghost) own(ctx context.Context, b *recorder) (belay.Lease, bool) {
	s, err := b.OpenWorker(ctx, belay.WorkerSpec{
		ID: belay.WorkerID(uuid.Must(uuid.NewV7())), Name: g.name, Queues: []string{ghostQueue},
		Workflows: []belay.Registration{{Workflow: ghostWorkflow}}, Capacity: 1, TTL: belay.MinTTL,
		Heartbeat: belay.MinHeartbeat,
		Process:   belay.Process{Host: "elsewhere.test", PID: 1},
	})
	if err != nil {
		return belay.Lease{}, false
	}
	got, err := b.Claim(ctx, belay.ClaimRequest{Worker: s.ID, Number: 1, Slots: 1, Wait: 500 * time.Millisecond})
	if err != nil || len(got.Assignments) == 0 {
		return belay.Lease{}, false
	}
	return got.Assignments[0].Lease, true
}

// write saves a checkpoint and repeats the call. Then it sends no heartbeat until the lease is
// lost, and tries to write under the lost lease. At last it claims the execution again, and tries
// to write under the lost lease once more.
func (g *ghost) write(ctx context.Context, old belay.Lease) {
	b := g.patient(g.r, g.name)
	save := g.save(old)
	if _, err := b.Save(ctx, save); err == nil {
		save.Repeat = true
		_, _ = b.Save(ctx, save)
	}
	if !g.until(ctx, func(x belay.Execution) bool {
		return x.State != belay.Running || x.Token != old.Token
	}, old.Execution) {
		return
	}
	_, _ = b.Save(ctx, g.save(old))
	_ = b.Settle(ctx, g.settlement(old))
	now, held := g.own(ctx, b)
	if !held {
		return
	}
	_ = b.Settle(ctx, g.settlement(old))
	end := g.settlement(now)
	if err := b.Settle(ctx, end); err == nil {
		end.Repeat = true
		_ = b.Settle(ctx, end)
	}
	_, _ = b.Save(ctx, g.save(old))
	_ = b.Settle(ctx, g.settlement(old))
}

func (g *ghost) save(l belay.Lease) belay.Save {
	g.n++
	return belay.Save{Lease: l, Op: newOp(), Kind: belay.KindStep, Key: fmt.Sprintf("%s %d", g.name, g.n),
		Data: fmt.Appendf(nil, "%d", l.Token), CostTokens: 1 + belay.Cost(g.r.IntN(mostCost))}
}

func (g *ghost) settlement(l belay.Lease) belay.Settlement {
	return belay.Settlement{
		Lease: l, Op: newOp(), Outcome: belay.OutcomeSucceeded, Output: fmt.Appendf(nil, "%d", l.Token),
		CostTokens: 1 + belay.Cost(g.r.IntN(mostCost)),
	}
}

// until waits until an execution meets a condition.
func (g *ghost) until(ctx context.Context, happened func(belay.Execution) bool, id belay.ExecutionID) bool {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for pause(ctx, 100*time.Millisecond) == nil {
		x, err := g.patient(g.r, g.name).Execution(ctx, id)
		if err == nil && happened(x) {
			return true
		}
	}
	return false
}

// cancelLeftovers cancels the executions that ghosts have left.
func (g *ghost) cancelLeftovers(ctx context.Context) {
	for pause(ctx, 20*time.Millisecond) == nil {
		b := g.patient(g.r, g.name)
		l, held := g.own(ctx, b)
		if held {
			_ = b.Settle(ctx, g.settlement(l))
			continue
		}
		page, err := b.Executions(ctx, belay.Filter{Queue: ghostQueue, States: unfinished, Limit: 1})
		if err == nil && len(page.Executions) == 0 {
			return
		}
	}
}

// unfinished are the states that are not terminal.
var unfinished = belay.ActiveStates()
