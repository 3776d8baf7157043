package sqlite

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// loaded reads one execution as a commit does.
func loaded(t *testing.T, s *Store, id belay.ExecutionID) *machine.Execution {
	t.Helper()
	var e *machine.Execution
	err := s.Commit(t.Context(), machine.Need{Executions: []belay.ExecutionID{id}},
		func(rows *machine.Rows) *machine.Changes {
			if len(rows.Executions) == 1 {
				e = rows.Executions[0]
			}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// The next commit reads a row that another connection has changed, even if an older row is in the
// cache.
func TestTheCacheSeesOtherWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belay.db")
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	id := belay.ExecutionID{1}
	if err := batch(t, s, id); err != nil {
		t.Fatal(err)
	}
	if s.cache.get(id) == nil {
		t.Error("a row that was written is not in memory")
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for want := range int64(3) {
		if _, err := db.ExecContext(t.Context(), "UPDATE executions SET cost = ?", want+10); err != nil {
			t.Fatal(err)
		}
		if e := loaded(t, s, id); e.Cost != belay.CostOf(want+10) {
			t.Errorf("cost %s, want %d", e.Cost, want+10)
		}
	}
	if _, err := db.ExecContext(t.Context(), "DELETE FROM executions"); err != nil {
		t.Fatal(err)
	}
	if e := loaded(t, s, id); e != nil {
		t.Errorf("a row that was deleted is loaded: %+v", e)
	}
}

// A refused commit leaves none of its rows in the cache.
func TestTheCacheDropsRowsOfRefusedCommits(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "belay.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	id := belay.ExecutionID{1}
	if err := batch(t, s, id); err != nil {
		t.Fatal(err)
	}
	e := loaded(t, s, id)
	e.Cost = 99
	twice := machine.Spec{Execution: id, Generation: 1}
	err = s.Commit(t.Context(), machine.Need{Executions: []belay.ExecutionID{id}},
		func(*machine.Rows) *machine.Changes {
			return &machine.Changes{Executions: []*machine.Execution{e}, Specs: []*machine.Spec{&twice}}
		})
	if err == nil {
		t.Fatal("a second spec of one generation was written")
	}
	if e := loaded(t, s, id); e.Cost != 0 {
		t.Errorf("cost %d of a commit that was refused", e.Cost)
	}
}

// The cache has a maximum size: rows that are not read are dropped.
func TestTheCacheHasAMaximumSize(t *testing.T) {
	var c cache
	row := func(n int) *machine.Execution {
		return &machine.Execution{ID: belay.ExecutionID{byte(n >> 16), byte(n >> 8), byte(n)}}
	}
	first := row(0)
	c.put(first)
	for n := 1; n < 5*cacheRows; n++ {
		c.put(row(n))
		if n%1000 == 0 && c.get(first.ID) == nil {
			t.Fatalf("a row that is read often was dropped after %d others", n)
		}
	}
	if n := len(c.young) + len(c.old); n > 2*cacheRows {
		t.Errorf("%d rows in memory, want at most %d", n, 2*cacheRows)
	}
	if c.get(row(1).ID) != nil {
		t.Error("a row that was not read again is still there")
	}
}

// Moving the log into the database changes no rows and does not empty the cache.
func TestMovingTheLogKeepsTheCache(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "belay.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	first := belay.ExecutionID{1}
	if err := batch(t, s, first); err != nil {
		t.Fatal(err)
	}
	for n := range byte(3) {
		s.move(t.Context())
		// after the move this commit writes to the beginning of the log again
		if err := batch(t, s, belay.ExecutionID{2, n}); err != nil {
			t.Fatal(err)
		}
		if s.cache.get(first) == nil {
			t.Errorf("the cache was emptied by checkpoint %d", n)
		}
	}
}
