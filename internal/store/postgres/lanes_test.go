package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// The row of a lane goes when nothing that has not ended is in it, and comes back with
// the next submission. It is there for servers that know no newer schema.
func TestRowsOfUnusedLanesAreDeleted(t *testing.T) {
	s := testStore(t, Options{Writers: 1, Readers: 1})
	w := newWorker(t, s)
	row := func(n byte, lane machine.LaneID, state belay.State) *machine.Execution {
		e := &machine.Execution{ID: belay.ExecutionID{n}, Workflow: "w", Queue: "q", Lane: lane, State: state, Seq: 1, Generation: 1, InputGen: 1, CreatedAt: 1, New: true}
		switch state {
		case belay.Pending:
			e.DueAt = 1
		case belay.Running:
			e.Worker, e.Token = belay.WorkerID{7}, 1
		}
		return e
	}
	var all []*machine.Execution
	var lanes []machine.Lane
	for i, state := range []belay.State{belay.Pending, belay.Running, belay.Waiting, belay.Paused, belay.Succeeded, belay.Failed} {
		lane := machine.LaneID(1 + i)
		all, lanes = append(all, row(byte(1+i), lane, state)), append(lanes, machine.Lane{ID: lane, Queue: "q", Workflow: "w"})
	}
	write := func(c *machine.Changes) {
		t.Helper()
		if err := s.Commit(t.Context(), machine.Need{}, func(*machine.Rows) *machine.Changes { return c }); err != nil {
			t.Fatal(err)
		}
	}
	left := func() string {
		t.Helper()
		text := ""
		if err := s.query(t.Context(), func(p *pipe) {
			p.add("SELECT string_agg(id::text, ' ' ORDER BY id) FROM lanes WHERE id < 100", func(r columns) error {
				text = r.text(0)
				return nil
			})
		}); err != nil {
			t.Fatal(err)
		}
		return text
	}
	write(&machine.Changes{Executions: all, Lanes: lanes})
	for range 2 {
		if _, err := s.Prune(t.Context(), 1, 10); err != nil {
			t.Fatal(err)
		}
		if got := left(); got != "1 2 3 4" {
			t.Errorf("rows of lanes %s are left, want those of 1 to 4", got)
		}
	}
	w.round(1) // others are not in the way
	s.lanes.begun = time.Time{}
	write(&machine.Changes{Executions: []*machine.Execution{row(9, 5, belay.Pending)}, Lanes: lanes[4:5]})
	s.sweep.again = time.Time{}
	if _, err := s.Prune(t.Context(), 1, 10); err != nil {
		t.Fatal(err)
	}
	if got := left(); got != "1 2 3 4 5" {
		t.Errorf("rows of lanes %s are left, want those of 1 to 5", got)
	}
}

// A look for the ready lanes that failed says nothing of them: the next one looks anew.
func TestALookThatFailedIsNotRemembered(t *testing.T) {
	s := testStore(t, Options{Writers: 1, Readers: 1, LongLook: time.Nanosecond})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.ReadyLanes(ctx); err == nil {
		t.Fatal("a look in a context that has ended did not fail")
	}
	if !s.leaps.again.IsZero() {
		t.Errorf("its answer is given again for %s", time.Until(s.leaps.again))
	}
	if _, err := s.ReadyLanes(t.Context()); err != nil || s.leaps.again.IsZero() {
		t.Errorf("a long look is not remembered (%v)", err)
	}
}
