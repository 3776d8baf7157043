// Package storetest is the conformance suite of stores. It has a case for every rule of
// store.Store, and a long random walk: it sends commands of all kinds to the store under test and
// to the memory store, and compares every reply and every row. On a tour, which comes before the
// random steps, every command must be accepted.
package storetest

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Open opens an empty store with a clock. The store is closed when t ends.
type Open func(t testing.TB, clock *Clock) store.Store

// Reopener is a store whose data outlives its process. Reopen closes the store and opens it again.
type Reopener interface {
	Reopen(t testing.TB) store.Store
}

// Run runs the suite on a store.
func Run(t *testing.T, open Open) {
	cases := slices.Concat(commitCases, loadCases, writeCases, dueCases, readCases, listCases, pruneCases, idleCases,
		outsideCases, objectCases, documentCases, gateCases, letterCases, contentCases, runCases, detailCases,
		notifyCases)
	if _, keeps := open(t, NewClock()).(Reopener); keeps {
		cases = append(cases, durableCases...)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			clock := NewClock()
			e := &env{T: t, clock: clock, store: open(t, clock)}
			c.run(e)
		})
	}
	t.Run("every command gives the same rows and the same reply as in the memory store", func(t *testing.T) {
		walk(t, open)
	})
}

// testCase is a rule of store.Store with the function that tests it.
type testCase struct {
	name string
	run  func(*env)
}

// Clock is a clock that moves only when a test moves it.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock makes a clock.
func NewClock() *Clock { return &Clock{now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)} }

// Now is the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forwards, or back if d is negative.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// env is the environment of a case.
type env struct {
	*testing.T
	clock *Clock
	store store.Store
	made  uint64
}

// id makes ids in ascending order.
func (e *env) id() (id [16]byte) {
	e.made++
	binary.BigEndian.PutUint64(id[:], 0x0193_0000_0000_7000+e.made<<16)
	binary.BigEndian.PutUint64(id[8:], 1<<63|e.made)
	return id
}

// now is the time of the store's clock.
func (e *env) now() machine.Time { return e.store.Now() }

// fold sends commands in one batch.
func (e *env) fold(commands ...machine.Command) []machine.Reply {
	e.Helper()
	replies, err := fold(e.Context(), e.store, commands)
	if err != nil {
		e.Fatalf("commit: %v", err)
	}
	return replies
}

func fold(ctx context.Context, s store.Store, commands []machine.Command) ([]machine.Reply, error) {
	var replies []machine.Reply
	err := s.Commit(ctx, machine.NeedOf(commands), func(rows *machine.Rows) *machine.Changes {
		var changes *machine.Changes
		changes, replies = machine.Fold(rows, commands)
		changes.Beat = time.Second
		return changes
	})
	return replies, err
}

// ok sends a command that must not be refused.
func (e *env) ok(c machine.Command) machine.Reply {
	e.Helper()
	r := e.fold(c)[0]
	if r.Err != nil {
		e.Fatalf("%T: %v", c, r.Err)
	}
	return r
}

// write commits changes that the test has made without the rules.
func (e *env) write(c *machine.Changes) error {
	e.Helper()
	return e.store.Commit(e.Context(), needOf(c), func(*machine.Rows) *machine.Changes { return c })
}

// mustWrite commits changes that must be accepted.
func (e *env) mustWrite(c *machine.Changes) {
	e.Helper()
	if err := e.write(c); err != nil {
		e.Fatalf("commit: %v", err)
	}
}

// needOf names the rows that the changes change.
func needOf(c *machine.Changes) machine.Need {
	var need machine.Need
	for _, x := range c.Executions {
		need.Executions = append(need.Executions, x.ID)
	}
	for _, x := range c.Workers {
		need.Workers = append(need.Workers, x.ID)
	}
	return need
}

// rows loads the requested rows and writes nothing.
func (e *env) rows(need machine.Need) *machine.Rows {
	e.Helper()
	var rows *machine.Rows
	err := e.store.Commit(e.Context(), need, func(r *machine.Rows) *machine.Changes {
		rows = r
		return nil
	})
	if err != nil {
		e.Fatalf("load: %v", err)
	}
	return rows
}

// read reads an execution that must exist.
func (e *env) read(q store.Read) *machine.Record {
	e.Helper()
	rec, err := e.store.Read(e.Context(), q)
	if err != nil {
		e.Fatalf("read: %v", err)
	}
	return rec
}

// row reads the row of an execution.
func (e *env) row(id belay.ExecutionID) *machine.Execution {
	e.Helper()
	return e.read(store.Read{Execution: id}).Execution
}

// same fails the test unless got equals want; nil and empty are equal.
func (e *env) same(what string, want, got any) {
	e.Helper()
	if diff := cmp.Diff(want, got, equal...); diff != "" {
		e.Errorf("%s differs (-want +got):\n%s", what, diff)
	}
}

var equal = []cmp.Option{
	cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b belay.Secret) bool { return a == b }),
	cmp.Comparer(func(a, b error) bool {
		return a == nil && b == nil || a != nil && b != nil && a.Error() == b.Error()
	}),
}
