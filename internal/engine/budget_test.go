package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/memory"
)

// early is a store whose next claim of a child reads the budget of the root as it was before a raise. A
// claim on PostgreSQL can read it so, because it does not lock the ancestors of the executions that it may win.
type early struct {
	store.Store
	before atomic.Int64 // the budget before the raise; 0 for none
}

func (s *early) Commit(ctx context.Context, need machine.Need, decide func(*machine.Rows) *machine.Changes) error {
	return s.Store.Commit(ctx, need, func(rows *machine.Rows) *machine.Changes {
		ready := 0
		for _, l := range rows.Ready {
			ready += len(l.Due)
		}
		if was := belay.Cost(s.before.Load()); was != 0 && ready > 0 {
			s.before.Store(0)
			for _, e := range rows.Executions {
				if e.Parent.IsZero() {
					e.Budget = was
				}
			}
		}
		return decide(rows)
	})
}

// Rule: a child that a claim pauses because of a budget which was raised at the same moment is resumed at once,
// not with the next slow poll.
func TestAChildPausedDuringARaise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := &early{Store: memory.New(time.Now)}
		e := engine.New(rows, engine.Options{SlowPoll: time.Hour})
		defer e.Close()
		ctx := t.Context()
		s := must[belay.Session](t)(e.OpenWorker(ctx, belay.WorkerSpec{
			Name: "w", Workflows: []belay.Registration{{Workflow: "w"}}, Capacity: 2,
			TTL: belay.Duration(20 * time.Minute),
		}))
		submit := func(x belay.Submission) belay.ExecutionID {
			x.Workflow = "w"
			return must[[]belay.Submitted](t)(e.Submit(ctx, x))[0].ID
		}
		claims := int64(0)
		claim := func() []belay.Assignment {
			claims++
			return must[belay.ClaimReply](t)(e.Claim(ctx, belay.ClaimRequest{
				Worker: s.ID, Number: claims, Slots: 1, Wait: 10 * time.Second,
			})).Assignments
		}
		id := submit(belay.Submission{Budget: &belay.Budget{Cost: 5}})
		root := claim()[0].Lease
		child := submit(belay.Submission{ID: belay.ChildID(id, 1, "c"), Parent: &root, ParentKey: "c"})
		must[int64](t)(e.Save(ctx, belay.Save{Lease: root, Kind: belay.KindStep, Key: "a", CostTokens: 5}))
		if err := e.Settle(ctx, belay.Settlement{Lease: root, Outcome: belay.OutcomeSuspended}); err != nil {
			t.Fatal(err)
		}
		must[belay.Execution](t)(e.Control(ctx, belay.Control{
			Execution: id, Action: belay.ActionBudget, Budget: &belay.Budget{Cost: 10},
		}))
		time.Sleep(time.Second) // the sweep after the raise is over
		rows.before.Store(5)
		began := time.Now()
		won := claim()
		if len(won) == 0 { // the first answer says that a heartbeat is due
			won = claim()
		}
		if len(won) != 1 || won[0].Lease.Execution != child {
			x := must[belay.Execution](t)(e.Execution(ctx, child))
			t.Fatalf("the claim won %+v; the child is %s: %+v", won, x.State, x.Reason)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the child was resumed and claimed after %s", took)
		}
		paused := false
		for _, ev := range must[[]belay.Event](t)(e.Events(ctx, belay.EventQuery{Execution: child})) {
			paused = paused || ev.Kind == string(belay.ActionPause)
		}
		if !paused {
			t.Error("the child was never paused, so the test proves nothing")
		}
	})
}
