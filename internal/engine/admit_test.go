package engine_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
)

// While earlier client work has waited too long, new client work is refused, with a RetryAfter.
// Writes of owners and children of their runs are accepted. When the queue is short again, client
// work is accepted.
func TestNewWorkIsRefusedWhileTheQueueIsTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGates()
		e := engine.New(g, engine.Options{})
		defer e.Close()
		s, a := worker(t, e, time.Hour)
		g.set(true, true)
		submitMany(t, e, 1) // this submission is being committed
		submitMany(t, e, 1) // this submission waits in the queue
		time.Sleep(1100 * time.Millisecond)
		out := must[[]belay.Submitted](t)(e.Submit(t.Context(), belay.Submission{Workflow: "w"}))
		var refused *belay.Error
		if !errors.As(out[0].Err, &refused) || refused.Code != belay.CodeRateLimited ||
			refused.RetryAfter < time.Second {
			t.Errorf("a submission got %v", out[0].Err)
		}
		err := e.Signal(t.Context(), belay.SignalRequest{Execution: a.Lease.Execution, Name: "s"})
		refusal(t, err, belay.CodeRateLimited, "")
		answers := make(chan error, 3)
		go func() {
			_, err := e.Heartbeat(t.Context(), belay.Heartbeat{
				Worker: s.ID, ClaimSeen: 1, Holds: []belay.Held{{Execution: a.Lease.Execution, Token: a.Lease.Token}},
			})
			answers <- err
		}()
		go func() {
			child := belay.Submission{
				ID: belay.ChildID(a.Lease.Execution, 1, "c"), Workflow: "w", Parent: &a.Lease, ParentKey: "c",
			}
			out, err := e.Submit(t.Context(), child)
			answers <- errors.Join(err, out[0].Err)
		}()
		go func() {
			_, err := e.Save(t.Context(), belay.Save{Lease: a.Lease, Kind: belay.KindStep, Key: "k"})
			answers <- err
		}()
		synctest.Wait()
		g.all()
		for range 3 {
			if err := <-answers; err != nil {
				t.Errorf("a command of a run got %v", err)
			}
		}
		submit(t, e)
	})
}

// While one call of Submit commits 1,000 executions in many batches, another call with one
// execution gets its answer after a few of these batches.
func TestALargeSubmissionTakesTurnsWithOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGates()
		e := engine.New(g, engine.Options{MaxBatch: 10})
		defer e.Close()
		g.set(true, true)
		long := make(chan []belay.Submitted, 1)
		go func() {
			subs := make([]belay.Submission, 1000)
			for i := range subs {
				subs[i].Workflow = "bulk"
			}
			out, _ := e.Submit(t.Context(), subs...)
			long <- out
		}()
		synctest.Wait()
		short := make(chan error, 1)
		go func() {
			out, err := e.Submit(t.Context(), belay.Submission{Workflow: "w"})
			short <- errors.Join(err, out[0].Err)
		}()
		synctest.Wait()
		for range 6 {
			g.one()
		}
		select {
		case err := <-short:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("six batches later the short call still waits behind the long one")
		}
		select {
		case <-long:
			t.Error("a thousand were submitted in six batches of ten")
		default:
		}
		g.all()
		for _, s := range <-long {
			if s.Err != nil {
				t.Fatal(s.Err)
			}
		}
	})
}
