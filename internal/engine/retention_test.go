package engine_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/memory"
)

// Ended executions are deleted soon after their retention is over and not before, as fast as
// executions end. Their idempotency keys are deleted a day later.
func TestEndedExecutionsAreDeletedContinuously(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const retention = 20 * time.Minute
		m := memory.New(time.Now)
		e := engine.New(m, engine.Options{Retention: retention})
		defer e.Close()
		keys := func(from, to int) (n int) {
			t.Helper()
			var need machine.Need
			for i := from; i < to; i++ {
				need.Keys = append(need.Keys, machine.Key{Workflow: "w", Key: fmt.Sprint(i)})
			}
			if err := m.Commit(t.Context(), need, func(rows *machine.Rows) *machine.Changes {
				n = len(rows.Keys)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return n
		}
		const each, minutes = 20, 60
		for minute := range minutes {
			all := make([]belay.Submission, each)
			for i := range all {
				all[i] = belay.Submission{Workflow: "w", IdempotencyKey: fmt.Sprint(minute*each + i)}
			}
			for _, x := range must[[]belay.Submitted](t)(e.Submit(t.Context(), all...)) {
				must[belay.Execution](t)(e.Control(t.Context(), belay.Control{
					Execution: x.ID, Action: belay.ActionCancel,
				}))
			}
			time.Sleep(time.Minute)
			counts := must[store.Counts](t)(m.Counts(t.Context()))
			least := min(minute+1, int(retention.Minutes())) * each
			if n := int(counts.Executions[belay.Cancelled]); n < least || n > least+2*each {
				t.Fatalf("after %d minutes with %d ends each there are %d, want those of the last %s", minute+1, each,
					n, retention)
			}
		}
		if n := keys(0, each*minutes); n != each*minutes {
			t.Errorf("%d keys are left of %d, less than a day after their executions were deleted", n, each*minutes)
		}
		time.Sleep(store.KeyLife + retention)
		if n := keys(0, each*minutes); n != 0 {
			t.Errorf("%d keys are left a day later", n)
		}
	})
}

// A tree that is too large for one commit is deleted in parts.
func TestALargeTreeIsDeletedInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(time.Now)
		e := engine.New(m, engine.Options{Retention: time.Hour})
		defer e.Close()
		s, a := worker(t, e, 5*time.Hour)
		const children = 1000
		for i := range children {
			key := fmt.Sprint("child ", i)
			id := belay.ChildID(a.Lease.Execution, 1, key)
			x := must[[]belay.Submitted](t)(e.Submit(t.Context(), belay.Submission{
				ID: id, Workflow: "other", Parent: &a.Lease, ParentKey: key,
			}))
			if x[0].Err != nil {
				t.Fatal(x[0].Err)
			}
			must[belay.Execution](t)(e.Control(t.Context(), belay.Control{Execution: id, Action: belay.ActionCancel}))
		}
		if err := e.Settle(t.Context(), belay.Settlement{Lease: a.Lease, Op: belay.OpID{1},
			Outcome: belay.OutcomeSucceeded}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Minute)
		if n := must[store.Counts](t)(m.Counts(t.Context())).Executions[belay.Cancelled]; n != children {
			t.Errorf("%d children are left before their root's retention is over", n)
		}
		time.Sleep(20 * time.Minute)
		if counts := must[store.Counts](t)(m.Counts(t.Context())); len(counts.Executions) != 0 {
			t.Errorf("left: %v", counts.Executions)
		}
		if err := e.CloseWorker(t.Context(), s.ID); err != nil {
			t.Fatal(err)
		}
	})
}
