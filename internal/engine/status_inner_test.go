package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/memory"
)

// cluster is a store whose other servers are the test.
type cluster struct{ store.Store }

func (cluster) Listen(ctx context.Context, _ func(store.Hint)) error { <-ctx.Done(); return ctx.Err() }
func (cluster) WantStates(bool)                                      {}

func (cluster) List(context.Context, store.List) (store.Listed, error) {
	return store.Listed{Records: []*machine.Record{{Execution: &machine.Execution{ID: someone, Workflow: "w"}}}}, nil
}

// collected is a collection of changes that a test sends as another server, and reads as a follower.
type collected struct {
	*statuses
	t     *testing.T
	began time.Time
	at    statusPosition
}

// someone is the execution that changes.
var someone = belay.ExecutionID{15: 1}

// collect runs a test in a bubble, with a follower that has joined.
func collect(t *testing.T, test func(c *collected)) {
	synctest.Test(t, func(t *testing.T) {
		c := &collected{t: t, statuses: newStatuses(cluster{memory.New(time.Now)}, &Options{
			Log: slog.New(slog.DiscardHandler),
		})}
		c.began = time.Now()
		ctx, end := context.WithCancel(t.Context())
		defer end()
		go c.run(ctx)
		leave, settled, err := c.join()
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		c.sends(1, 0, belay.Pending, 0) // this must not come after the snapshot that a follower then reads
		<-settled
		c.began, c.at = time.Now(), c.window.end()
		c.wants("")
		test(c)
	})
}

// sends reports a change that was committed at a time of the bubble.
func (c *collected) sends(seq int64, from, to belay.State, at time.Duration) {
	c.onHint(store.Hint{States: []store.StateHint{{
		Execution: someone, From: from, State: to, Seq: seq, Generation: 1, At: machine.At(c.began.Add(at)),
	}}})
}

// wants compares what a follower has got until now with a list of seqs and workflows; "lost" stands for a new epoch.
func (c *collected) wants(want string) {
	c.t.Helper()
	synctest.Wait()
	var got []string
	all, next, _, gap := c.window.after(c.at, 100)
	if gap != "" {
		got = append(got, string(gap))
		all, next, _, _ = c.window.after(statusPosition{c.window.end().epoch, 0}, 100)
	}
	c.at = next
	for _, e := range all {
		got = append(got, fmt.Sprintf("%d%s", e.Seq, e.Workflow))
	}
	if text := strings.Join(got, " "); text != want {
		c.t.Errorf("after %s: got %q, want %q", time.Since(c.began), text, want)
	}
}

// A loss causes one new epoch and not another one later.
func TestALossCausesNoOther(t *testing.T) {
	collect(t, func(c *collected) {
		c.sends(1, 0, belay.Pending, 0)
		time.Sleep(2 * statusHold)
		c.wants("1w")
		c.lose() // of seq 2
		time.Sleep(2 * statusHold)
		c.wants("lost")
		c.sends(3, belay.Running, belay.Waiting, 400*time.Millisecond)
		c.sends(4, belay.Waiting, belay.Running, 410*time.Millisecond)
		time.Sleep(3 * statusMost)
		c.wants("3w 4w")
		// seq 2 comes later than the longest wait for a missing change
		c.sends(2, belay.Pending, belay.Running, 300*time.Millisecond)
		time.Sleep(2 * statusHold)
		c.wants("lost")
	})
}

// Changes that arrived before a new epoch, or soon after the loss, are never in the new epoch, because a
// snapshot may be newer than they are.
func TestALossDropsTheChangesBeforeIt(t *testing.T) {
	collect(t, func(c *collected) {
		c.sends(1, 0, belay.Pending, 0)
		time.Sleep(statusHold / 2)
		c.lose()
		c.wants("")
		time.Sleep(statusHold / 2)
		c.sends(2, belay.Pending, belay.Running, 0)
		c.wants("")
		time.Sleep(3 * statusHold)
		c.wants("lost")
		for range 20 { // losses that go on
			c.lose()
			time.Sleep(statusHold / 2)
		}
		c.wants("lost")
		time.Sleep(statusHold)
		c.wants("lost")
		c.sends(4, belay.Waiting, belay.Running, 3*time.Second)
		time.Sleep(2 * statusHold)
		c.wants("4w")
		c.sends(6, belay.Waiting, belay.Succeeded, 3*time.Second)
		c.lose()
		time.Sleep(2 * statusHold)
		c.wants("lost")
		c.sends(5, belay.Running, belay.Waiting, 3*time.Second) // the snapshot has its effect
		time.Sleep(2 * statusHold)
		c.wants("")
	})
}

// A snapshot has the effect of a change that was dropped before it, and the execution may be missing there because it
// has ended. So an earlier change that arrives later must not bring the execution back.
func TestADroppedChangeHidesEarlierOnes(t *testing.T) {
	collect(t, func(c *collected) {
		c.sends(3, belay.Running, belay.Succeeded, 20*time.Millisecond)
		c.lose()
		time.Sleep(3 * statusHold)
		c.wants("lost")
		c.sends(1, 0, belay.Pending, 0)
		c.sends(2, belay.Pending, belay.Running, 10*time.Millisecond)
		time.Sleep(2 * statusHold)
		c.wants("")
		c.sends(4, belay.Succeeded, belay.Pending, 400*time.Millisecond)
		time.Sleep(2 * statusHold)
		c.wants("4w")
	})
}

// An execution that is deleted and submitted again under the same id has a new life, with other facts.
func TestAnExecutionIsSubmittedAgain(t *testing.T) {
	collect(t, func(c *collected) {
		c.sends(1, 0, belay.Pending, 0)
		c.sends(2, belay.Pending, belay.Cancelled, 10*time.Millisecond)
		c.sends(2, belay.Pending, belay.Cancelled, 10*time.Millisecond)
		time.Sleep(2 * statusHold)
		c.wants("1w 2w")
		c.arrived([]arrival{{
			Status: belay.Status{Execution: someone, Seq: 1, State: belay.Pending, At: time.Now()}, local: true,
			facts: &statusFacts{workflow: "again"},
		}})
		time.Sleep(2 * statusHold)
		c.wants("1again")
		c.sends(2, belay.Pending, belay.Running, 500*time.Millisecond)
		time.Sleep(3 * statusMost)
		c.wants("2again")
	})
}

// The clocks of servers differ: the changes of an execution nevertheless come in the order of their seqs.
func TestChangesAreInOrderDespiteTheClocks(t *testing.T) {
	collect(t, func(c *collected) {
		c.sends(1, 0, belay.Pending, 300*time.Millisecond) // this clock is fast
		time.Sleep(statusHold / 4)
		c.sends(2, belay.Pending, belay.Running, 0)
		time.Sleep(2 * statusHold)
		c.wants("1w 2w")
		c.sends(4, belay.Waiting, belay.Running, 310*time.Millisecond)
		time.Sleep(statusHold / 2)
		c.sends(3, belay.Running, belay.Waiting, 900*time.Millisecond) // and is not old enough by itself
		time.Sleep(3 * statusHold / 4)
		c.wants("3w 4w")
		c.sends(6, belay.Pending, belay.Running, time.Second)
		time.Sleep(3 * statusHold)
		c.wants("")
		c.sends(7, belay.Running, belay.Pending, 1100*time.Millisecond) // 7 begins where 4 ended
		time.Sleep(3 * statusHold)
		c.wants("")
		c.sends(5, belay.Running, belay.Pending, 950*time.Millisecond)
		time.Sleep(3 * statusHold)
		c.wants("5w 6w 7w")
	})
}

// A submission in a transaction of an application is not late, however long the transaction was open, and
// neither is a change of this server, however long its commit took.
func TestLongTransactionsAreNoLoss(t *testing.T) {
	collect(t, func(c *collected) {
		time.Sleep(time.Minute)
		c.sends(1, 0, belay.Pending, 0)
		time.Sleep(2 * statusHold)
		c.wants("1w")
		c.arrived([]arrival{{Status: belay.Status{
			Execution: someone, Seq: 2, Previous: belay.Pending, State: belay.Running, At: c.began.Add(time.Second),
		}, local: true}})
		time.Sleep(2 * statusHold)
		c.wants("2w")
		c.sends(3, belay.Running, belay.Waiting, 2*time.Second)
		time.Sleep(2 * statusHold)
		c.wants("lost")
	})
}

// snapshotted runs a test in a bubble with a Reader of a store that has n executions.
func snapshotted(t *testing.T, n int, test func(ctx context.Context, r *Reader)) {
	synctest.Test(t, func(t *testing.T) {
		e := New(memory.New(time.Now), Options{})
		defer e.Close()
		subs := make([]belay.Submission, n)
		for i := range subs {
			subs[i] = belay.Submission{Workflow: "w", DueAt: time.Now().Add(24 * time.Hour)}
		}
		if _, err := e.Submit(t.Context(), subs...); err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		defer end()
		test(ctx, &e.Reader)
	})
}

// A follower whose snapshot must wait for memory shows signs of life, and gets the snapshot when other followers
// give memory back, or an error after some time.
func TestAFollowerWaitsForMemory(t *testing.T) {
	for _, b := range []func(*statuses) *supply{
		func(x *statuses) *supply { return x.pages }, func(x *statuses) *supply { return x.seen },
	} {
		snapshotted(t, 1, func(ctx context.Context, r *Reader) {
			full := b(r.statuses)
			full.take(2 * snapshotMemory)
			pings := 0
			began := time.Now()
			err := r.Follow(ctx, belay.StatusQuery{Idle: 15 * time.Second}, func(n belay.StatusNews) error {
				if pings++; n.Snapshot != nil || n.Position != "" || pings == 1 && time.Since(began) != signOfLife {
					t.Errorf("after %s: %+v", time.Since(began), n)
				}
				return nil
			})
			if belay.CodeOf(err) != belay.CodeUnavailable || pings != 2 || time.Since(began) != snapshotPatience {
				t.Errorf("after %s and %d signs of life: %v", time.Since(began), pings, err)
			}
			time.AfterFunc(20*time.Second, func() { full.give(2 * snapshotMemory) })
			enough := errors.New("enough")
			err = r.Follow(ctx, belay.StatusQuery{}, func(n belay.StatusNews) error {
				if n.Snapshot == nil || len(n.Snapshot.Executions) != 1 {
					t.Errorf("%+v", n)
				}
				return enough
			})
			if !errors.Is(err, enough) || full.left != snapshotMemory/2 {
				t.Errorf("%v; %d bytes are left", err, full.left)
			}
		})
	}
}

// A follower gives the memory of each part of a snapshot back when it has reported the part. After six
// seconds without a change its position is settled, and it has no memory any more.
func TestAFollowerGivesMemoryBack(t *testing.T) {
	const n = 500
	snapshotted(t, n, func(ctx context.Context, r *Reader) {
		var left []int64
		var positions []bool
		enough := errors.New("enough")
		pages, seen := r.statuses.pages, r.statuses.seen
		err := r.Follow(ctx, belay.StatusQuery{Idle: 10 * time.Second}, func(n belay.StatusNews) error {
			if n.Snapshot != nil {
				left = append(left, pages.left)
				return nil
			}
			if positions = append(positions, n.Position != unsettled); len(positions) == 2 {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) || !slices.Equal(positions, []bool{true, true}) || len(left) < 2 ||
			left[len(left)-1] <= left[0] {
			t.Errorf("%v; settled %v; left %v", err, positions, left)
		}
		if pages.left != snapshotMemory/2 || seen.left != snapshotMemory/2 {
			t.Errorf("%d and %d bytes are left", pages.left, seen.left)
		}
	})
}
