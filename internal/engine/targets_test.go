package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/memory"
)

// everyEnd is a target that gets every end.
func everyEnd(name string) belay.NotificationTargetPut {
	var p belay.NotificationTargetPut
	p.Name, p.URL = name, "https://"+name+".example/"
	p.On = []belay.State{belay.Succeeded, belay.Failed, belay.Cancelled}
	return p
}

// cancelNow cancels an execution and returns its id.
func (x server) cancelNow(t testing.TB, id belay.ExecutionID) belay.ExecutionID {
	t.Helper()
	if _, err := x.Control(t.Context(), belay.Control{Execution: id, Action: belay.ActionCancel}); err != nil {
		t.Fatal(err)
	}
	return id
}

// A change of the targets counts at another server after a second, also while no hints of other servers arrive.
func TestATargetCountsAtAnotherServer(t *testing.T) {
	t.Parallel()
	url := database(t)
	a, b := start(t, url, withHints, pollRarely), start(t, url, withoutHints, pollRarely)
	b.cancelNow(t, b.submit(t, "w")) // b reads the list, which is empty
	if _, err := a.PutNotificationTarget(t.Context(), everyEnd("t")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	id := b.cancelNow(t, b.submit(t, "w"))
	if _, err := b.Execution(t.Context(), belay.TargetNotificationID(id, 1, "t")); err != nil {
		t.Errorf("the delivery: %v", err)
	}
	own := a.cancelNow(t, a.submit(t, "w")) // the server of the change knows it at once
	if _, err := b.Execution(t.Context(), belay.TargetNotificationID(own, 1, "t")); err != nil {
		t.Errorf("the delivery: %v", err)
	}
}

// targetReads counts how often the targets are read and how many specs the commits write, and lets the reads fail.
type targetReads struct {
	store.Store
	n, most, all atomic.Int64
	fail         atomic.Bool
}

func (s *targetReads) Query(ctx context.Context, q store.Query) (store.Found, error) {
	if q.Kind == machine.TargetsObject {
		s.n.Add(1)
		if s.fail.Load() {
			return store.Found{}, &belay.Error{Code: belay.CodeUnavailable, Message: "no targets today"}
		}
	}
	return s.Store.Query(ctx, q)
}

func (s *targetReads) Commit(
	ctx context.Context, need machine.Need, decide func(*machine.Rows) *machine.Changes,
) error {
	return s.Store.Commit(ctx, need, func(r *machine.Rows) *machine.Changes {
		c := decide(r)
		s.most.Store(max(s.most.Load(), int64(len(c.Specs))))
		s.all.Add(int64(len(c.Specs)))
		return c
	})
}

// Many targets do not make one commit create very many deliveries: the batch is split.
func TestABatchOfManyDeliveriesIsSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &targetReads{Store: memory.New(time.Now)}
		e := engine.New(s, engine.Options{})
		defer e.Close()
		x := server{e, ""}
		for i := range belay.MaxNotificationTargets {
			if _, err := e.PutNotificationTarget(t.Context(), everyEnd(fmt.Sprint("t", i))); err != nil {
				t.Fatal(err)
			}
		}
		const n = 100
		var ids []belay.ExecutionID
		for range n {
			ids = append(ids, x.submit(t, "w"))
		}
		s.all.Store(0)
		for _, id := range ids {
			x.cancelled(t, id)
		}
		synctest.Wait()
		if all := s.all.Load(); all != n*belay.MaxNotificationTargets {
			t.Errorf("%d deliveries", all)
		}
		if most := s.most.Load(); most > 2000 || most < 500 {
			t.Errorf("a commit has %d deliveries", most)
		}
	})
}

// The targets are read once in a second at most, and not for batches that end nothing. If they cannot be read, no
// execution ends without its deliveries, and sessions live on.
func TestTargetsAreReadRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &targetReads{Store: memory.New(time.Now)}
		e := engine.New(s, engine.Options{})
		defer e.Close()
		x := server{e, ""}
		reads := func(want int64) {
			t.Helper()
			if n := s.n.Swap(0); n != want {
				t.Errorf("the targets were read %d times, want %d", n, want)
			}
		}
		time.Sleep(time.Minute)
		w := x.open(t, "v", "w", 10*time.Second)
		x.submit(t, "w")
		run := x.won(t, w, 1)
		reads(0)
		for range 100 {
			x.cancelNow(t, x.submit(t, "other"))
		}
		reads(1)
		time.Sleep(1100 * time.Millisecond)
		x.cancelNow(t, x.submit(t, "other"))
		reads(1)
		time.Sleep(2 * time.Second)
		s.fail.Store(true)
		err := e.Settle(t.Context(), belay.Settlement{Lease: run.Lease, Outcome: belay.OutcomeSucceeded})
		if belay.CodeOf(err) != belay.CodeUnavailable {
			t.Errorf("a settlement without the targets: %v", err)
		}
		if _, err := e.Heartbeat(t.Context(), belay.Heartbeat{Worker: w}); err != nil {
			t.Errorf("a heartbeat without the targets: %v", err)
		}
		s.fail.Store(false)
		err = e.Settle(t.Context(), belay.Settlement{Lease: run.Lease, Outcome: belay.OutcomeSucceeded})
		if err != nil {
			t.Error(err)
		}
	})
}
