package client

import (
	"context"
	"testing"

	"github.com/belaydev/belay"
)

// If a waiter gets its answer and leaves at the same moment, the count of the request's waiters goes
// down by one and not by two, so that the request continues for the other waiters.
func TestAWaiterIsCountedOnce(t *testing.T) {
	first, second := belay.ExecutionID{1}, belay.ExecutionID{2}
	g := &group{waiters: make(map[belay.ExecutionID][]*waiter)}
	g.ctx, g.end = context.WithCancel(t.Context())
	a := &awaiter{}
	for _, id := range []belay.ExecutionID{first, second} {
		g.waiters[id] = []*waiter{{id: id, reply: make(chan awaited, 1), group: g}}
		g.left++
	}
	answered := g.waiters[first][0]
	a.deliver(g, first, awaited{x: &belay.Execution{ID: first}})
	a.leave(answered)
	if g.left != 1 || g.ctx.Err() != nil {
		t.Errorf("%d wait; the request has ended: %v", g.left, g.ctx.Err())
	}
	a.leave(g.waiters[second][0])
	if g.ctx.Err() == nil {
		t.Error("the request goes on without waiters")
	}
}
