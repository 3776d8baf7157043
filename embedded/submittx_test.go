package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// application is an application's own connection to the database that Belay uses.
func application(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

var errRollback = errors.New("no")

// submitTx submits in a transaction, which is rolled back if end is an error.
func submitTx(t *testing.T, c *pgx.Conn, end error, s ...belay.Submission) []belay.Submitted {
	t.Helper()
	var out []belay.Submitted
	err := pgx.BeginFunc(t.Context(), c, func(tx pgx.Tx) error {
		var err error
		if out, err = embedded.SubmitTx(t.Context(), tx, s...); err != nil {
			t.Fatal(err)
		}
		return end
	})
	if !errors.Is(err, end) {
		t.Fatal(err)
	}
	return out
}

// A worker that waits for work on another connection claims an execution submitted in a transaction
// as soon as the transaction is committed, long before any poll. After a rollback the execution does
// not exist: transitions are atomic (G4).
func TestASubmissionInATransactionBeginsWithItsCommit(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	b, app := openOn(t, url), application(t, url)
	s, err := b.OpenWorker(t.Context(), belay.WorkerSpec{
		Name: "w", Workflows: []belay.Registration{{Workflow: "ship"}}, Capacity: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	back := submitTx(t, app, errRollback, belay.Submission{Workflow: "ship"})
	if _, err := b.Execution(t.Context(), back[0].ID); belay.CodeOf(err) != belay.CodeNotFound {
		t.Errorf("after the rollback the execution exists: %v", err)
	}
	for n := range int64(3) {
		told := make(chan belay.ClaimReply, 1)
		go func() {
			var r belay.ClaimReply
			for err := error(nil); err == nil && len(r.Assignments) == 0; {
				r, err = b.Claim(context.Background(), belay.ClaimRequest{
					Worker: s.ID, Number: n + 1, Slots: 1, Wait: 20 * time.Second,
				})
			}
			told <- r
		}()
		at := time.Now()
		out := submitTx(t, app, nil, belay.Submission{Workflow: "ship", Input: []byte(`{"order":1}`)})
		r := <-told
		if took := time.Since(at); len(r.Assignments) != 1 || r.Assignments[0].Lease.Execution != out[0].ID ||
			took > 5*time.Second {
			t.Fatalf("after %s the worker has %+v", took, r)
		}
		a := r.Assignments[0]
		if string(a.Input) != `{"order":1}` {
			t.Errorf("its input is %s", a.Input)
		}
		if err := b.Settle(t.Context(), belay.Settlement{Lease: a.Lease, Op: belay.OpID(a.Lease.Secret),
			Outcome: belay.OutcomeSucceeded}); err != nil {
			t.Fatal(err)
		}
	}
}

// A submission in a transaction follows the same rules as any other submission: an idempotency key
// belongs to one execution (G9), so a repeated submission finds that execution. Belay refuses a
// submission with the same key and another body, and an invalid submission. A refusal affects
// neither the other submissions of the call nor the transaction.
func TestASubmissionInATransactionFollowsTheRules(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	b, app := openOn(t, url), application(t, url)
	first, err := b.Submit(t.Context(), belay.Submission{Workflow: "ship", IdempotencyKey: "k", Input: []byte(`1`)})
	if err != nil || first[0].Err != nil {
		t.Fatal(err, first)
	}
	type told struct {
		Same, Replayed bool
		Code           string
	}
	var got []told
	for _, o := range submitTx(t, app, nil,
		belay.Submission{Workflow: "ship", IdempotencyKey: "k", Input: []byte(`1`)},
		belay.Submission{Workflow: "ship", IdempotencyKey: "k", Input: []byte(`2`)},
		belay.Submission{},
		belay.Submission{Workflow: "ship", IdempotencyKey: "new"},
	) {
		code := ""
		if o.Err != nil {
			code = string(belay.CodeOf(o.Err))
		}
		got = append(got, told{o.ID == first[0].ID, o.Replayed, code})
	}
	want := []told{
		{true, true, ""}, {false, false, string(belay.CodeIdempotencyMismatch)},
		{false, false, string(belay.CodeInvalid)}, {false, false, ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	again, err := b.Submit(t.Context(), belay.Submission{Workflow: "ship", IdempotencyKey: "new"})
	if err != nil || !again[0].Replayed {
		t.Errorf("submitted again: %+v, %v", again, err)
	}
	if _, err := embedded.SubmitTx(t.Context(), nil, belay.Submission{Workflow: "ship",
		Parent: &belay.Lease{}}); belay.CodeOf(err) != belay.CodeInvalid {
		t.Errorf("a child got %v", err)
	}
}

// The text of a document that is submitted in a transaction adds its notifications, and a wrong one is refused alone.
func TestASubmissionInATransactionHasTheNotificationsOfItsDocument(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	b, app := openOn(t, url), application(t, url)
	text := func(hook string) belay.Submission {
		return belay.Submission{
			Workflow: "document", Input: []byte(`{"document": "name: d\nnotify: [{url: 'https://` + hook + `/'}]"}`),
		}
	}
	out := submitTx(t, app, nil, belay.Submission{Workflow: "ship"}, text("me:secret@a"), text("a"))
	if out[0].Err != nil || belay.CodeOf(out[1].Err) != belay.CodeInvalid || out[2].Err != nil {
		t.Fatalf("%+v", out)
	}
	x, err := b.Execution(t.Context(), out[2].ID)
	if err != nil || len(x.Notify) != 1 || x.Notify[0].URL != "https://a/" {
		t.Errorf("%+v, %v", x.Notify, err)
	}
	if _, err := b.Execution(t.Context(), out[1].ID); belay.CodeOf(err) != belay.CodeNotFound {
		t.Errorf("a refused submission exists: %v", err)
	}
}

// A submission by content in a transaction joins the execution of its content. If the execution that has the content
// failed, the commit of the transaction gives the content to the new execution; a rollback leaves it with the failed
// execution (G9).
func TestASubmissionByContentInATransaction(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	b, app := openOn(t, url), application(t, url)
	price := belay.Submission{Workflow: "price", Input: []byte(`{"a":1}`), Idempotency: belay.IdempotencyByContent}
	submit := func() belay.Submitted {
		t.Helper()
		out, err := b.Submit(t.Context(), price)
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
		return out[0]
	}
	first := submit()
	if joined := submitTx(t, app, nil, price, price); joined[0].ID != first.ID || joined[1].ID != first.ID {
		t.Errorf("joined %+v, want %s", joined, first.ID)
	}
	cancel := belay.Control{Execution: first.ID, Action: belay.ActionCancel}
	if _, err := b.Control(t.Context(), cancel); err != nil {
		t.Fatal(err)
	}
	lost := submitTx(t, app, errRollback, price)
	taken := submitTx(t, app, nil, price, price)
	if taken[0].Replayed || !taken[1].Replayed || taken[0].ID != taken[1].ID || taken[0].ID == lost[0].ID ||
		taken[0].ID == first.ID {
		t.Errorf("after the cancel of %s: %+v, then %+v", first.ID, lost, taken)
	}
	if again := submit(); again.ID != taken[0].ID || !again.Replayed {
		t.Errorf("afterwards %+v, want %s", again, taken[0].ID)
	}
}

// A transaction that stays open does not delay submissions with other keys, even if this
// transaction is the first to use a queue.
func TestAnOpenTransactionDelaysNoOtherSubmissionsToItsQueue(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	b, app := openOn(t, url), application(t, url)
	tx, err := app.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.SubmitTx(t.Context(), tx, belay.Submission{Workflow: "ship", Queue: "new",
		IdempotencyKey: "held"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for range 5 {
		out, err := b.Submit(ctx, belay.Submission{Workflow: "ship", Queue: "new", IdempotencyKey: "other"})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A submission that uses the same key as an open transaction gets CodeUnavailable. The other
// submissions of the same call do not wait.
func TestAnOpenTransactionDelaysOnlyItsOwnKey(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	b, app := openOn(t, url), application(t, url)
	tx, err := app.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first, err := embedded.SubmitTx(t.Context(), tx, belay.Submission{Workflow: "ship", IdempotencyKey: "held"})
	if err != nil {
		t.Fatal(err)
	}
	s := make([]belay.Submission, 100)
	for i := range s {
		s[i] = belay.Submission{Workflow: "ship", IdempotencyKey: fmt.Sprint("other ", i)}
	}
	s[50].IdempotencyKey = "held"
	out, err := b.Submit(t.Context(), s...)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range out {
		if i == 50 && belay.CodeOf(o.Err) != belay.CodeUnavailable || i != 50 && o.Err != nil {
			t.Errorf("submission %d: %v", i, o.Err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := b.Submit(t.Context(), s[50])
	if err != nil || again[0].ID != first[0].ID || !again[0].Replayed {
		t.Errorf("tried again: %+v, %v", again, err)
	}
}

// A submission in a transaction does not lock the limit that it names: while the transaction is open,
// other submissions can name the same limit. The limit counts the submission after the commit.
func TestAnOpenTransactionLocksNoGate(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	b, app := openOn(t, url), application(t, url)
	limited := func(when belay.WhenFull) belay.Submission {
		return belay.Submission{Workflow: "ship", Gates: belay.Gates{
			Concurrency: &belay.Concurrency{Name: "dock", Max: 2, WhenFull: when},
		}}
	}
	submit := func() error {
		out, err := b.Submit(t.Context(), limited(belay.RejectWhenFull))
		if err != nil {
			return err
		}
		return out[0].Err
	}
	if err := submit(); err != nil {
		t.Fatal(err)
	}
	tx, err := app.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.SubmitTx(t.Context(), tx, limited("")); err != nil {
		t.Fatal(err)
	}
	out, err := embedded.SubmitTx(t.Context(), tx, limited(belay.RejectWhenFull))
	if err != nil || belay.CodeOf(out[0].Err) != belay.CodeInvalid {
		t.Errorf("reject within a transaction: %+v, %v", out, err)
	}
	if err := submit(); err != nil {
		t.Errorf("while the transaction is open: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := submit(); belay.CodeOf(err) != belay.CodeConflict {
		t.Errorf("above the limit: %v", err)
	}
}
