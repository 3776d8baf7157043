package postgres_test

import (
	"context"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/postgres"
	"github.com/jackc/pgx/v5"
)

// join commits a submission in an application's transaction.
func join(s *postgres.Store, tx pgx.Tx, c *machine.Submit) (r machine.Reply, err error) {
	var need machine.Need
	c.Need(&need)
	err = s.Join(context.Background(), tx, need, func(rows *machine.Rows) *machine.Changes {
		changes, replies := machine.Fold(rows, []machine.Command{c})
		r = replies[0]
		return changes
	})
	return r, err
}

// A submission in an application's transaction exists as soon as that transaction is committed, and
// not before (guarantee G4). All servers get a message (a hint) about the commit.
func TestSubmissionsJoinATransaction(t *testing.T) {
	url := database(t)
	s := open(t, url, postgres.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	heard, ended := make(chan store.Hint, 100), make(chan error, 1)
	go func() { ended <- s.Listen(ctx, func(h store.Hint) { heard <- h }) }()
	for h := range heard {
		if h.Lost {
			break
		}
	}
	app, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = app.Close(context.Background()) }()
	if _, err := app.Exec(t.Context(), "CREATE TABLE orders (id int)"); err != nil {
		t.Fatal(err)
	}
	order := func(n byte, end func(pgx.Tx) error) {
		t.Helper()
		tx, err := app.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "INSERT INTO orders VALUES ($1)", n); err != nil {
			t.Fatal(err)
		}
		if r, err := join(s, tx, submit(n)); err != nil || r.Err != nil {
			t.Fatalf("join: %v, %v", err, r.Err)
		}
		if there(t, s, n) {
			t.Error("it is there before the commit")
		}
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
	}
	order(1, func(tx pgx.Tx) error { return tx.Rollback(t.Context()) })
	order(2, func(tx pgx.Tx) error { return tx.Commit(t.Context()) })
	if there(t, s, 1) || !there(t, s, 2) {
		t.Errorf("rolled back: %t, committed: %t", there(t, s, 1), there(t, s, 2))
	}
	for h := range heard {
		if len(h.Lanes) == 1 && h.Changed.Has(belay.ExecutionID{2}) {
			break
		}
	}
	won := (server{s, t}).ok(claim(server{s, t}.openWorker(1), 1, 5)).Claims
	if len(won) != 1 || won[0].Execution.ID != (belay.ExecutionID{2}) {
		t.Errorf("won %+v, want the one that was committed", won)
	}
	cancel()
	<-ended
}

// If another transaction commits the key of a joined submission first, the submission finds the
// execution with that key, and the application's transaction can continue.
func TestAJoinedSubmissionFindsAnotherOneWithItsKey(t *testing.T) {
	url := database(t)
	s := open(t, url, postgres.Options{})
	app, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = app.Close(context.Background()) }()
	tx, err := app.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keyed := func(n byte) *machine.Submit {
		return &machine.Submit{
			Submission: belay.Submission{ID: belay.ExecutionID{n}, Workflow: "w", IdempotencyKey: "k"},
		}
	}
	var need machine.Need
	mine := keyed(1)
	mine.Need(&need)
	var r machine.Reply
	first := true
	err = s.Join(t.Context(), tx, need, func(rows *machine.Rows) *machine.Changes {
		if first {
			first = false
			(server{s, t}).ok(keyed(2))
		}
		changes, replies := machine.Fold(rows, []machine.Command{mine})
		r = replies[0]
		return changes
	})
	if err != nil || r.ID != (belay.ExecutionID{2}) || !r.Replayed {
		t.Errorf("joined: %+v (%v), want the other's execution", r, err)
	}
	if r, err := join(s, tx, submit(3)); err != nil || r.Err != nil {
		t.Errorf("a second one: %v, %v", err, r.Err)
	}
	if err := tx.Commit(t.Context()); err != nil || !there(t, s, 3) {
		t.Errorf("commit: %v", err)
	}
}
