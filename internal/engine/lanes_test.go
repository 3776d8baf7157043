package engine_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/internal/store/sqlite"
	"github.com/google/go-cmp/cmp"
)

// counted is a memory store that counts the reads of lanes (groups of executions), and sends a hint
// (a message about a change) when the test requests it.
type counted struct {
	store.Store
	mu     sync.Mutex
	looks  int
	asked  []machine.LaneID
	onHint func(store.Hint)
}

func (s *counted) Listen(ctx context.Context, onHint func(store.Hint)) error {
	s.onHint = onHint
	<-ctx.Done()
	return ctx.Err()
}

func (s *counted) ReadyLanes(ctx context.Context) ([]store.LaneHint, error) {
	s.mu.Lock()
	s.looks++
	s.mu.Unlock()
	return s.Store.ReadyLanes(ctx)
}

func (s *counted) Lanes(ctx context.Context, ids []machine.LaneID) ([]machine.Lane, error) {
	s.mu.Lock()
	s.asked = append(s.asked, ids...)
	s.mu.Unlock()
	return s.Store.Lanes(ctx, ids)
}

// since returns how often all lanes were read, and which lanes were read by id, since its last
// call.
func (s *counted) since() (looks int, asked []machine.LaneID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	looks, asked = s.looks, s.asked
	s.looks, s.asked = 0, nil
	return looks, asked
}

// When an execution becomes ready in a lane (the executions with equal queue, workflow, version,
// priority and labels) that this engine does not know, the engine reads only that lane from the
// store. It knows no lane that another server has just made, and no lane that it has dropped because
// no execution in the lane became ready for a long time.
func TestOnlyUnknownLanesAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(time.Now)
		s := &counted{Store: m}
		here, there := engine.New(s, engine.Options{SlowPoll: time.Hour, HintPoll: time.Hour}),
			engine.New(m, engine.Options{SlowPoll: time.Hour})
		defer here.Close()
		defer there.Close()
		for i := range 10 {
			must[[]belay.Submitted](t)(there.Submit(t.Context(), belay.Submission{
				Workflow: "w", Queue: fmt.Sprint("other ", i),
			}))
		}
		w := must[belay.Session](t)(here.OpenWorker(t.Context(), belay.WorkerSpec{
			Name: "w", Workflows: noop, Queues: []string{"mine"}, Capacity: 1, TTL: belay.Duration(5 * time.Hour),
		}))
		mine := machine.NewLane("mine", "w", "", 0, nil).ID
		claim := func(number int64) <-chan belay.ClaimReply {
			told := make(chan belay.ClaimReply, 1)
			go func() {
				told <- must[belay.ClaimReply](t)(here.Claim(t.Context(), belay.ClaimRequest{
					Worker: w.ID, Number: number, Slots: 1, Wait: time.Minute,
				}))
			}()
			synctest.Wait()
			return told
		}
		check := func(what string, r belay.ClaimReply, want ...machine.LaneID) belay.Assignment {
			t.Helper()
			if len(r.Assignments) != 1 {
				t.Fatalf("%s: the worker got %+v", what, r)
			}
			looks, asked := s.since()
			if diff := cmp.Diff(want, asked); diff != "" || looks != 0 {
				t.Errorf("%s: all lanes were looked at %d times; lanes read (-want +got):\n%s", what, looks, diff)
			}
			return r.Assignments[0]
		}
		synctest.Wait()
		s.since()

		told := claim(1)
		must[[]belay.Submitted](t)(there.Submit(t.Context(), belay.Submission{Workflow: "w", Queue: "mine"}))
		s.onHint(store.Hint{Lanes: []store.LaneHint{{Lane: mine, At: 1}}})
		a := check("told by another server", <-told, mine)
		told = claim(2)
		must[[]belay.Submitted](t)(there.Submit(t.Context(), belay.Submission{Workflow: "w", Queue: "mine"}))
		s.onHint(store.Hint{Lanes: []store.LaneHint{{Lane: mine, At: 1}}})
		b := check("told again", <-told)

		time.Sleep(3*time.Hour + 30*time.Minute) // the engine reads all lanes during this time
		synctest.Wait()
		s.since()
		told = claim(3)
		for _, x := range []belay.Assignment{a, b} {
			if err := here.Settle(t.Context(), belay.Settlement{Lease: x.Lease, Op: belay.OpID(x.Lease.Secret),
				Outcome: belay.OutcomeReleased}); err != nil {
				t.Fatal(err)
			}
		}
		check("forgotten", <-told, mine)
	})
}

// BenchmarkSubmitBesideLanes measures a submission and the claim that takes it, alone and while
// executions wait in many other lanes.
func BenchmarkSubmitBesideLanes(b *testing.B) {
	for _, lanes := range []int{0, 20_000} {
		b.Run(fmt.Sprint(lanes), func(b *testing.B) {
			s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "belay.db"), sqlite.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			e := engine.New(s, engine.Options{})
			defer e.Close()
			for from := 0; from < lanes; from += 1000 {
				all := make([]belay.Submission, 1000)
				for i := range all {
					all[i] = belay.Submission{Workflow: "w", Queue: fmt.Sprint("other ", from+i)}
				}
				if _, err := e.Submit(b.Context(), all...); err != nil {
					b.Fatal(err)
				}
			}
			number := int64(0)
			for i := 0; b.Loop(); i++ {
				queue := fmt.Sprint("mine ", i) // a queue that the engine does not know
				w, err := e.OpenWorker(b.Context(), belay.WorkerSpec{
					Name: "w", Workflows: noop, Queues: []string{queue}, Capacity: 1,
				})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := e.Submit(b.Context(), belay.Submission{Workflow: "w", Queue: queue}); err != nil {
					b.Fatal(err)
				}
				number++
				r, err := e.Claim(b.Context(), belay.ClaimRequest{
					Worker: w.ID, Number: number, Slots: 1, Wait: time.Minute,
				})
				if err != nil || len(r.Assignments) != 1 {
					b.Fatal(err, r)
				}
			}
		})
	}
}
