package engine_test

import (
	"context"
	"errors"
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

// mortal is the store of a process that crashes right after its next commit, if the test has armed
// it: the store writes that commit and then refuses everything, as if the process had been killed.
type mortal struct {
	store.Store
	armed, dead atomic.Bool
}

var errKilled = errors.New("the process was killed")

func (s *mortal) Commit(ctx context.Context, need machine.Need, decide func(*machine.Rows) *machine.Changes) error {
	if s.dead.Load() {
		return errKilled
	}
	err := s.Store.Commit(ctx, need, decide)
	if err == nil && s.armed.Load() {
		s.dead.Store(true)
	}
	return err
}

// Rule: if a server dies right after it has accepted a submission with when_full "replace", another
// server cancels the executions that the submission replaces.
func TestAReplacedExecutionIsCancelledAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := memory.New(time.Now)
		dying := &mortal{Store: rows}
		first, second := engine.New(dying, engine.Options{}), engine.New(rows, engine.Options{SlowPoll: time.Second})
		defer first.Close()
		defer second.Close()
		put := func(when belay.WhenFull) belay.ExecutionID {
			t.Helper()
			limit := belay.Concurrency{Name: "x", Max: 2, WhenFull: when}
			all := must[[]belay.Submitted](t)(first.Submit(t.Context(), belay.Submission{
				Workflow: "w", Gates: belay.Gates{Concurrency: &limit},
			}))
			if all[0].Err != nil {
				t.Fatal(all[0].Err)
			}
			return all[0].ID
		}
		oldest, old := put(""), put("")
		dying.armed.Store(true)
		newest := put(belay.ReplaceWhenFull)
		time.Sleep(10 * time.Second)
		for id, want := range map[belay.ExecutionID]belay.State{
			oldest: belay.Cancelled, old: belay.Pending, newest: belay.Pending,
		} {
			if x := must[belay.Execution](t)(second.Execution(t.Context(), id)); x.State != want {
				t.Errorf("%s is %s, want %s", id, x.State, want)
			}
		}
		g := must[belay.GateDetail](t)(second.Gate(t.Context(), "limit:x"))
		before := g.UpdatedAt
		time.Sleep(time.Minute)
		if g = must[belay.GateDetail](t)(second.Gate(t.Context(), "limit:x")); !g.UpdatedAt.Equal(before) {
			t.Errorf("the gate still changes, at %s", g.UpdatedAt)
		}
	})
}
