package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// useFront makes the searches for due work begin at the front for an hour: the position in the
// indexes before which no due work is expected.
func useFront(t *testing.T, s *Store) {
	t.Helper()
	due(t, s)
	s.front.mu.Lock()
	defer s.front.mu.Unlock()
	s.front.again = time.Now().Add(time.Hour)
}

func due(t *testing.T, s *Store) store.Due {
	t.Helper()
	d, err := s.Due(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// While a transaction keeps an old snapshot, a search for due work reads the living index entries,
// and not the dead entries of every heartbeat, deadline and claim since the snapshot.
func TestALookBesideAnOldSnapshotReadsLittle(t *testing.T) {
	const versions = 400
	s := testStore(t, Options{Writers: 1, Readers: 1})
	w := newWorker(t, s)
	w.round(1)
	w.owns(20)
	exec(t, s, "UPDATE executions SET check_at = 1::bigint << 50 WHERE worker IS NOT NULL")
	c, err := connect(t.Context(), s.config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if _, err := c.pg.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SET "+
		"idle_in_transaction_session_timeout = 0; SELECT count(*) FROM meta").ReadAll(); err != nil {
		t.Fatal(err)
	}
	exec(t, s, fmt.Sprintf(`DO $$
DECLARE one uuid := (SELECT id FROM executions WHERE worker IS NULL AND ready_at IS NULL ORDER BY id LIMIT 1);
BEGIN
    FOR i IN 1..%d LOOP
        UPDATE workers SET expires_at = (1::bigint << 50) - 5000 + i WHERE ended_at IS NULL;
        UPDATE executions SET worker = '02000000000000000000000000000000', check_at = i WHERE id = one;
        COMMIT;
        UPDATE executions SET worker = NULL, check_at = NULL WHERE id = one;
        COMMIT;
    END LOOP;
END $$`, versions))
	read := func() (n int64) {
		before := touched(t, s)
		due(t, s)
		for name, m := range touched(t, s) {
			if m -= before[name]; m > n {
				n = m
			}
		}
		return n
	}
	due(t, s)
	s.front.onHint(store.Hint{Lost: true}) // the next search is a full one even if the last was slow
	whole := read()
	useFront(t, s)
	front := read()
	t.Logf("a look at everything reads %d of an index, one from the front %d", whole, front)
	if whole < versions || front > versions/10 {
		t.Error("want a look from the front to read less than a tenth of the dead entries")
	}
}

// A search that skips the parts of the indexes in which no due work is expected finds the commits
// of this server and those that other servers report in hints. A full search also finds rows that
// no hint has named.
func TestALookFromTheFrontFindsHints(t *testing.T) {
	s := testStore(t, Options{Writers: 1, Readers: 1})
	w := newWorker(t, s)
	e := w.owns(1)[0]
	row := *e
	row.CheckAt = 5
	commit := func(c *machine.Changes) {
		t.Helper()
		need := machine.Need{Executions: []belay.ExecutionID{e.ID}}
		if err := s.Commit(t.Context(), need, func(*machine.Rows) *machine.Changes { return c }); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a check", func(t *testing.T) {
		useFront(t, s)
		exec(t, s, "UPDATE executions SET check_at = 5") // stands for a commit of another server
		if d := due(t, s); len(d.Checks) != 0 {
			t.Fatal("the test is void: the front hides no check")
		}
		s.front.onHint(store.Hint{Look: 5})
		if d := due(t, s); len(d.Checks) != 1 {
			t.Error("a check in another server's hint is not found")
		}
		exec(t, s, "UPDATE executions SET check_at = NULL")
		due(t, s)
		exec(t, s, "UPDATE executions SET check_at = 4")
		s.front.onHint(store.Hint{Lost: true})
		if d := due(t, s); len(d.Checks) != 1 {
			t.Error("a check is not found after a lost hint")
		}
		exec(t, s, "UPDATE executions SET check_at = NULL")
		useFront(t, s)
		commit(&machine.Changes{Executions: []*machine.Execution{&row}})
		if d := due(t, s); len(d.Checks) != 1 {
			t.Error("a check that this server wrote is not found")
		}
	})
	t.Run("a look under way", func(t *testing.T) {
		row.CheckAt = 0
		commit(&machine.Changes{Executions: []*machine.Execution{&row}})
		useFront(t, s)
		look := s.front.begin(s.Now())
		row.CheckAt = 5
		commit(&machine.Changes{Executions: []*machine.Execution{&row}})
		s.front.seen(look, &store.Due{}, 100, 0)
		if d := due(t, s); len(d.Checks) != 1 {
			t.Error("a check that was written during a look is not found by the next one")
		}
	})
	t.Run("what a session has left", func(t *testing.T) {
		useFront(t, s)
		w.fold(&machine.End{Worker: w.id, Dead: "proven"})
		for range 2 { // the execution is found until its loss is committed
			if d := due(t, s); len(d.Lost) != 1 || d.Lost[0].Execution != e.ID {
				t.Errorf("lost %+v", d.Lost)
			}
		}
	})
	t.Run("children", func(t *testing.T) {
		useFront(t, s)
		parent := &machine.Execution{ID: belay.ExecutionID{8}, Workflow: "w", Queue: "q", Lane: 1, State: belay.Failed,
			Seq: 1, Generation: 1, InputGen: 1, CreatedAt: 1, Open: 1, New: true}
		child := &machine.Execution{ID: belay.ExecutionID{9}, Parent: parent.ID, ParentGen: 1, Workflow: "w",
			Queue: "q", Lane: 1, State: belay.Pending, DueAt: 1, Seq: 1, Generation: 1, InputGen: 1, CreatedAt: 1,
			New: true}
		commit(&machine.Changes{Executions: []*machine.Execution{parent, child}})
		for range 2 {
			if d := due(t, s); len(d.Children) != 1 || len(d.Parted) != 0 {
				t.Errorf("children %v, parted %v", d.Children, d.Parted)
			}
		}
	})
	t.Run("a session whose time is over", func(t *testing.T) {
		other := belay.WorkerID{3}
		w.fold(&machine.Open{WorkerSpec: belay.WorkerSpec{
			ID: other, Name: "w", Workflows: []belay.Registration{{Workflow: "noop"}}, Capacity: 1, TTL: belay.MinTTL,
		}})
		useFront(t, s)
		exec(t, s, "UPDATE workers SET expires_at = 7 WHERE ended_at IS NULL") // an update without a hint
		if d := due(t, s); len(d.Workers) != 0 {
			t.Fatal("the test is void: the front hides no session")
		}
		s.front.onHint(store.Hint{Lost: true})
		for range 2 {
			if d := due(t, s); len(d.Workers) != 1 || d.Workers[0] != other || d.MinTTL != belay.MinTTL.D() {
				t.Errorf("sessions %v, shortest TTL %s", d.Workers, d.MinTTL)
			}
			useFront(t, s)
		}
	})
}

// After a slow full search for due work (a search from the beginning of the indexes), the store
// makes the next full search only after a multiple of the time that the slow search took. After a
// fast full search, the next search may be a full search at once.
func TestSlowLooksAtEverythingAreRare(t *testing.T) {
	for long, want := range map[time.Duration]bool{time.Hour: true, time.Nanosecond: false} {
		var f front
		look := f.begin(1)
		f.seen(look, &store.Due{}, 100, long)
		if next := f.begin(1); !look.whole || next.whole != want {
			t.Errorf("long is %s: at everything first %t, then %t", long, look.whole, next.whole)
		}
	}
	var f front
	f.seen(f.begin(1), &store.Due{Lost: make([]store.Lost, 100)}, 100, time.Nanosecond)
	if !f.begin(1).whole {
		t.Error("more executions were lost than the limit, and the next look is not at everything")
	}
}
