package engine_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
)

// halfBusyWorker submits 2n executions, opens a session with 2n slots, and claims n of the
// executions. It returns the claimed executions. The worker then has free slots, and more work
// waits for it.
func halfBusyWorker(t *testing.T, e *engine.Engine, n int) []belay.Assignment {
	t.Helper()
	subs := make([]belay.Submission, 2*n)
	for i := range subs {
		subs[i].Workflow = "w"
	}
	if _, err := e.Submit(t.Context(), subs...); err != nil {
		t.Fatal(err)
	}
	s := must[belay.Session](t)(e.OpenWorker(t.Context(), belay.WorkerSpec{
		Name: "w", Workflows: []belay.Registration{{Workflow: "w"}}, Capacity: 2 * n, TTL: belay.Duration(time.Hour),
	}))
	r := must[belay.ClaimReply](t)(e.Claim(t.Context(), belay.ClaimRequest{Worker: s.ID, Number: 1, Slots: n}))
	if len(r.Assignments) != n {
		t.Fatalf("%d were won, want %d", len(r.Assignments), n)
	}
	return r.Assignments
}

// wants lets the store do one of the commits that the test has stopped, and fails the test unless
// the commands of this commit are want.
func (g *gates) wants(t *testing.T, want string) {
	t.Helper()
	g.set(true, true)
	g.one()
	if got := fmt.Sprint(g.wrote); got != want {
		t.Errorf("a batch wrote %s, want %s", got, want)
	}
}

// While the claims of a worker with free slots win an execution for each slot, the server accepts
// five submissions for every four runs that end. In addition it spends one eighth of its time on
// submissions beyond this quota. After a second without such a claim, the server accepts as many
// submissions as fit into a batch. A server without this quota ended only a quarter of the runs
// that it could end.
func TestSubmissionsAreRationedWhileTheServerIsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGates()
		e := engine.New(g, engine.Options{MaxBatch: 100})
		defer e.Close()
		won := halfBusyWorker(t, e, 100)
		g.set(true, true)
		submitMany(t, e, 1) // this submission is being committed, and exceeds the quota
		submitMany(t, e, 500)
		for _, a := range won[:8] {
			go func() {
				if err := e.Settle(t.Context(), belay.Settlement{Lease: a.Lease,
					Outcome: belay.OutcomeSucceeded}); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		g.wants(t, "[executions 1 workers 0 checkpoints 0 bytes 0]")
		g.wants(t, "[executions 18 workers 0 checkpoints 0 bytes 0]") // 8 ends of runs and 10 submissions
		time.Sleep(500 * time.Millisecond)
		select {
		case g.next <- struct{}{}:
			t.Error("more was accepted before the extra batch had waited its time")
		default:
		}
		time.Sleep(300 * time.Millisecond)
		g.wants(t, "[executions 12 workers 0 checkpoints 0 bytes 0]")
		time.Sleep(time.Second)
		g.wants(t, "[executions 100 workers 0 checkpoints 0 bytes 0]")
		g.all()
	})
}

// The engine refuses a submission if it computes from the pace of the queue that the submission
// would wait too long, even while no queued submission has waited that long yet. Without this
// computation the server accepted ten times as many submissions as it could write within the
// longest allowed wait.
func TestASubmissionThatWouldWaitTooLongIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGates()
		e := engine.New(g, engine.Options{MaxBatch: 10})
		defer e.Close()
		g.set(true, true)
		submitMany(t, e, 1)
		submitMany(t, e, 200)
		for range 5 {
			time.Sleep(100 * time.Millisecond)
			g.one()
		}
		answer := make(chan error, 1)
		go func() {
			out, err := e.Submit(t.Context(), belay.Submission{Workflow: "w"})
			answer <- errors.Join(err, out[0].Err)
		}()
		synctest.Wait()
		select {
		case err := <-answer:
			if belay.CodeOf(err) != belay.CodeRateLimited {
				t.Errorf("a submission got %v", err)
			}
		default:
			t.Error("a submission waits behind others that take a second and a half")
		}
		g.all()
		submit(t, e)
	})
}
