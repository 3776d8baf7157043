package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/testkit/pgtest"
	"github.com/belaydev/belay/internal/testkit/raced"
)

// leaseTTL is the TTL of the workers in these tests. It is so short that a worker loses its session
// if a defect delays its heartbeats, and so long that a busy machine alone does not cause a loss.
const leaseTTL = 3 * time.Second

// owner is a worker that owns executions and does nothing except renewing their leases.
type owner struct {
	t      *testing.T
	b      *embedded.Backend
	id     belay.WorkerID
	leases []belay.Lease
	held   []belay.Held
	claim  int64
}

// own submits n executions and claims them.
func own(t *testing.T, b *embedded.Backend, n int) *owner {
	t.Helper()
	s, err := b.OpenWorker(t.Context(), belay.WorkerSpec{
		Name: "owner", Workflows: []belay.Registration{{Workflow: "owned"}}, Capacity: n, TTL: belay.Duration(leaseTTL),
	})
	if err != nil {
		t.Fatal(err)
	}
	subs := make([]belay.Submission, n)
	for i := range subs {
		subs[i].Workflow = "owned"
	}
	if _, err := b.Submit(t.Context(), subs...); err != nil {
		t.Fatal(err)
	}
	o := &owner{t: t, b: b, id: s.ID}
	for len(o.leases) < n {
		o.claim++
		r, err := b.Claim(t.Context(), belay.ClaimRequest{
			Worker: s.ID, Number: o.claim, Slots: n - len(o.leases), Wait: 10 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range r.Assignments {
			o.leases = append(o.leases, a.Lease)
			o.held = append(o.held, belay.Held{Execution: a.Lease.Execution, Token: a.Lease.Token})
		}
	}
	return o
}

// beats sends a heartbeat every fifth of the TTL until done is closed. After CodeUnavailable it
// sends the next heartbeat at once, as the SDK does. It fails the test if a run is revoked.
func (o *owner) beats(done <-chan struct{}) {
	o.t.Helper()
	for {
		next := time.NewTimer(leaseTTL / 5)
		r, err := o.b.Heartbeat(o.t.Context(), belay.Heartbeat{Worker: o.id, Holds: o.held, ClaimSeen: o.claim})
		if err != nil && belay.CodeOf(err) != belay.CodeUnavailable || len(r.Revoked) > 0 {
			o.t.Errorf("a heartbeat on time: %d runs revoked, %v", len(r.Revoked), err)
			return
		}
		select {
		case <-done:
			return
		case <-next.C:
		}
	}
}

// renews sends heartbeats until done is closed, while other calls end the runs. Unlike beats, it
// accepts revoked runs, because the reply to a heartbeat reports an ended run as revoked.
func (o *owner) renews(done <-chan struct{}) {
	for {
		next := time.NewTimer(leaseTTL / 5)
		if _, err := o.b.Heartbeat(o.t.Context(), belay.Heartbeat{Worker: o.id, Holds: o.held,
			ClaimSeen: o.claim}); err != nil && belay.CodeOf(err) != belay.CodeUnavailable {
			o.t.Errorf("a heartbeat while runs end: %v", err)
			return
		}
		select {
		case <-done:
			return
		case <-next.C:
		}
	}
}

// ends settles all runs. The test fails if a lease was lost.
func (o *owner) ends() {
	o.t.Helper()
	done := make(chan struct{})
	var beats sync.WaitGroup
	defer beats.Wait()
	defer close(done)
	beats.Go(func() { o.renews(done) }) // renews the leases, because the settlements may take longer than the TTL
	for _, l := range o.leases {
		if err := o.b.Settle(o.t.Context(), belay.Settlement{Lease: l, Op: belay.OpID(l.Secret),
			Outcome: belay.OutcomeSucceeded}); err != nil {
			o.t.Errorf("the end of a run: %v", err)
			return
		}
	}
}

// stores runs a test on SQLite and on PostgreSQL, since these stores behave differently under load.
func stores(t *testing.T, do func(t *testing.T, url string)) {
	t.Run("sqlite", func(t *testing.T) { do(t, "sqlite:"+t.TempDir()) })
	t.Run("postgres", func(t *testing.T) { do(t, pgtest.Shared(t).Database(t)) })
}

// A session whose worker sends heartbeats on time is not lost (G6, the promise that a loss is
// detected in time and never too early), even if other clients submit as fast as the store accepts.
// The other clients submit for longer than the TTL.
func TestASessionSurvivesAFloodOfSubmissions(t *testing.T) {
	stores(t, func(t *testing.T, url string) {
		b := openOn(t, url)
		o := own(t, b, 3)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for began := time.Now(); time.Since(began) < 2*leaseTTL; {
				if err := submitMany(b, 5000); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		o.beats(done)
		o.ends()
	})
}

// submitMany submits n executions in one call.
func submitMany(b *embedded.Backend, n int) error {
	subs := make([]belay.Submission, n)
	for i := range subs {
		subs[i].Workflow = "bulk"
	}
	out, err := b.Submit(context.Background(), subs...)
	for i := range out {
		err = errors.Join(err, out[i].Err)
	}
	return err
}

// The store writes many concurrent checkpoints of a megabyte at the first try, and heartbeats
// succeed while it writes them. An earlier version of the PostgreSQL store wrote only 7 of 600 such
// checkpoints in two minutes.
func TestManyLargeCheckpointsAreWritten(t *testing.T) {
	stores(t, func(t *testing.T, url string) {
		b := openOn(t, url)
		n := 200
		if raced.On || testing.Short() {
			n = 40
		}
		o := own(t, b, n)
		data := append(append([]byte(`[0`), bytes.Repeat([]byte(`,1`), (belay.MaxPayload-16)/2)...), ']')
		var all sync.WaitGroup
		for _, l := range o.leases {
			all.Go(func() {
				if _, err := b.Save(t.Context(), belay.Save{Lease: l, Kind: belay.KindStep, Key: "k",
					Data: data}); err != nil {
					t.Error(err)
				}
			})
		}
		done := make(chan struct{})
		go func() { all.Wait(); close(done) }()
		o.beats(done)
		o.ends()
	})
}

// If an open transaction of an application has locked idempotency keys, it delays only submissions
// with the same keys. The store accepts all other submissions at the first try.
func TestKeysInAnOpenTransactionDelayNoOtherSubmissions(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	b, app := openOn(t, url), application(t, url)
	o := own(t, b, 1)
	tx, err := app.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var waiting, others sync.WaitGroup
	for i := range 10 {
		sub := belay.Submission{Workflow: "w", IdempotencyKey: fmt.Sprint("k", i)}
		if _, err := embedded.SubmitTx(t.Context(), tx, sub); err != nil {
			t.Fatal(err)
		}
		waiting.Go(func() {
			for ctx.Err() == nil {
				if out, _ := b.Submit(ctx, sub); out[0].Err == nil {
					t.Errorf("a key was given twice: %+v", out)
					return
				}
			}
		})
	}
	for range 50 {
		others.Go(func() {
			for range 100 {
				out, err := b.Submit(t.Context(), belay.Submission{Workflow: "bg"})
				if err != nil || out[0].Err != nil {
					t.Error(err, out)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { others.Wait(); close(done) }()
	o.beats(done)
	if err := tx.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	stop()
	waiting.Wait()
	o.ends()
}

// While a table of the database is locked, no running worker loses its session: writes that do not
// need the table succeed, and the engine extends all sessions by the time in which it could not write
// heartbeats, even if another server could write during that time.
func TestALockedTableCostsNoWorkerItsSession(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	a, b := openOn(t, url), openOn(t, url)
	o := own(t, a, 2)
	for _, table := range []string{"runs", "checkpoints", "workers"} {
		app := application(t, url)
		tx, err := app.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE"); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { o.beats(ctx.Done()) })
		all.Go(func() { // the writes of owners wait for the locked table
			_, _ = a.Save(ctx, belay.Save{Lease: o.leases[0], Kind: belay.KindStep, Key: table})
		})
		accepted := 0
		pace := time.NewTicker(5 * time.Millisecond) // a faster pace would only slow down other tests
		for end := time.NewTimer(2 * leaseTTL); ; accepted++ {
			<-pace.C
			if out, err := b.Submit(t.Context(), belay.Submission{Workflow: "bg"}); err != nil || out[0].Err != nil {
				t.Errorf("%s is locked, and a submission got %v %v", table, err, out)
			}
			select {
			case <-end.C:
			default:
				continue
			}
			break
		}
		pace.Stop()
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		if accepted < 100 {
			t.Errorf("%s is locked, and %d submissions were accepted", table, accepted)
		}
		settle := time.NewTimer(leaseTTL / 2) // by then, the engines have decided whether the sessions have expired
		<-settle.C
		stop()
		all.Wait()
	}
	o.ends()
}
