package postgres_test

import (
	"encoding/hex"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/postgres"
)

// otherTransaction begins a transaction that does not belong to the store. The test ends it.
func otherTransaction(t *testing.T, url string, statements ...string) pgx.Tx {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statements {
		if _, err := tx.Exec(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	return tx
}

// If another transaction has locked rows or tables that a batch needs, Held reports them: existing
// rows, rows that the other transaction is about to add, and tables. Held waits for no lock and
// changes nothing.
func TestLocksOfOtherTransactionsAreReported(t *testing.T) {
	url := database(t)
	s := server{open(t, url, postgres.Options{}), t}
	w, v := s.openWorker(1), s.openWorker(2)
	parent := s.run(w, 1)
	child := belay.ChildID(parent.Execution, 1, "c")
	s.ok(&machine.Submit{Submission: belay.Submission{ID: child, Workflow: "x", Parent: &parent, ParentKey: "c"}})
	// The signal makes the store remember the child's parent.
	s.ok(&machine.Deliver{SignalRequest: belay.SignalRequest{Execution: child, Name: "s"}})
	free := s.submit(2)
	fresh := belay.ExecutionID{3}
	one, two := machine.Key{Workflow: "w", Key: "one"}, machine.Key{Workflow: "w", Key: "two"}
	s.ok(&machine.Submit{
		Submission: belay.Submission{ID: belay.ExecutionID{4}, Workflow: "w", IdempotencyKey: "three"},
	})
	need := machine.Need{
		Workers: []belay.WorkerID{w, v, {9}}, Executions: []belay.ExecutionID{parent.Execution, child, free, fresh},
		Keys: []machine.Key{one, two, {Workflow: "w", Key: "three"}},
	}
	row := func(kind store.RowKind, id [16]byte) store.Row { return store.Row{Kind: kind, ID: id} }
	for _, c := range []struct {
		name string
		by   []string
		join *machine.Submit
		want store.Held
	}{
		{name: "nothing"},
		{name: "a session that is written", by: []string{
			"UPDATE workers SET claim_floor = claim_floor WHERE id = '" + hex.EncodeToString(w[:]) + "'",
		},
			want: held(row(store.RowRenewal, w))},
		{name: "a session that is locked exclusively", by: []string{
			"SELECT FROM workers WHERE id = '" + hex.EncodeToString(v[:]) + "' FOR UPDATE",
		},
			want: held(row(store.RowRenewal, v), row(store.RowSession, v))},
		{name: "a parent, and so its child", by: []string{
			"SELECT FROM executions WHERE id = '" + hex.EncodeToString(parent.Execution[:]) + "' FOR UPDATE",
		},
			want: held(row(store.RowExecution, parent.Execution), row(store.RowExecution, child))},
		{name: "a key that is about to be there", join: &machine.Submit{
			Submission: belay.Submission{ID: belay.ExecutionID{7}, Workflow: "w", IdempotencyKey: "two"},
		},
			want: held(store.Row{Kind: store.RowKey, Key: two})},
		{name: "an execution that is about to be there", join: &machine.Submit{
			Submission: belay.Submission{ID: fresh, Workflow: "w"},
		},
			want: held(row(store.RowExecution, fresh))},
		{name: "a table that is not written", by: []string{"LOCK TABLE runs IN SHARE MODE"},
			want: store.Held{Tables: store.TableRuns}},
		{name: "a table that is not read", by: []string{"LOCK TABLE checkpoints IN ACCESS EXCLUSIVE MODE"},
			want: store.Held{Tables: store.TableCheckpoints, Shut: store.TableCheckpoints}},
		{name: "tables of rows that are asked for", by: []string{
			"LOCK TABLE workers, executions, idempotency IN ACCESS EXCLUSIVE MODE",
		},
			want: store.Held{
				Tables: store.TableWorkers | store.TableExecutions | store.TableKeys, Shut: store.TableWorkers |
					store.TableExecutions | store.TableKeys,
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, err := s.Counts(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			tx := otherTransaction(t, url, c.by...)
			if c.join != nil {
				if _, err := join(s.Store, tx, c.join); err != nil {
					t.Fatal(err)
				}
			}
			got, err := s.Held(t.Context(), need)
			if err != nil {
				t.Fatal(err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c.want.Rows == nil {
				c.want.Rows = map[store.Row]struct{}{}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("held differs (-want +got):\n%s", diff)
			}
			after, err := s.Counts(t.Context())
			if diff := cmp.Diff(before, after); diff != "" || err != nil {
				t.Errorf("the look changed rows (%v):\n%s", err, diff)
			}
			if free, err := s.Held(t.Context(), need); err != nil || !free.None() {
				t.Errorf("when all is free: %v %v", slices.Collect(maps.Keys(free.Rows)), err)
			}
		})
	}
}

func held(rows ...store.Row) store.Held {
	h := store.Held{Rows: make(map[store.Row]struct{})}
	for _, r := range rows {
		h.Rows[r] = struct{}{}
	}
	return h
}
