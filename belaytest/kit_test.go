package belaytest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/belaytest"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// Rule: in a synctest bubble, Advance moves the clocks of the store, the worker and the workflow
// forward and takes no real time.
func TestAdvanceMovesAllClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := belaytest.Open(func(w *worker.Worker) {
			worker.Register(w, "remind", func(ctx context.Context, _ any) (string, error) {
				if err := workflow.Sleep(ctx, "day", 24*time.Hour); err != nil {
					return "", err
				}
				return "time to pay", nil
			})
		})
		start := time.Now()
		h, err := workflow.Start[string](t.Context(), k.Backend, "remind", nil)
		if err != nil {
			t.Fatal(err)
		}
		k.Advance(24*time.Hour - time.Minute)
		x, err := k.Backend.Execution(t.Context(), h.ID())
		if err != nil || x.State != belay.Waiting {
			t.Fatalf("%s, %v; want waiting", x.State, err)
		}
		if v, err := h.Result(t.Context()); err != nil || v != "time to pay" {
			t.Error(v, err)
		}
		if d := time.Since(start); d < 24*time.Hour || d > 24*time.Hour+time.Minute {
			t.Errorf("it took %s", d)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Rule: the executions of a crashed worker continue at once and do not wait until the TTL of its
// session is over. No later write of that worker reaches the Backend.
func TestACrashedWorkerIsReplacedAtOnceAndWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late error
		k := belaytest.Open(func(w *worker.Worker) {
			worker.Register(w, "w", func(ctx context.Context, _ any) (int, error) {
				if workflow.Token(ctx) > 1 {
					return 2, nil
				}
				<-ctx.Done()
				late = workflow.Checkpoint(ctx, "late")
				return 1, nil
			})
		})
		h, err := workflow.Start[int](t.Context(), k.Backend, "w", nil)
		if err != nil {
			t.Fatal(err)
		}
		k.Advance(10 * time.Second)
		start := time.Now()
		k.Crash()
		k.Restart()
		if v, err := h.Result(t.Context()); err != nil || v != 2 {
			t.Error(v, err)
		}
		if d := time.Since(start); d > 0 {
			t.Errorf("the next worker finished after %s", d)
		}
		if !errors.Is(late, belay.ErrLeaseLost) {
			t.Errorf("a late checkpoint: %v", late)
		}
		x, err := k.Backend.Execution(t.Context(), h.ID())
		if err != nil || x.Checkpoints != 0 {
			t.Errorf("%d checkpoints, %v", x.Checkpoints, err)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Rule: gates limit executions in a Kit in the same way as executions on a server.
func TestAKitHasGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := belaytest.Open(func(w *worker.Worker) {
			worker.Register(w, "hold", func(ctx context.Context, d time.Duration) (string, error) {
				return "held", workflow.Sleep(ctx, "hold", d)
			})
		})
		gates := belay.WithGates(belay.Gates{
			Concurrency: &belay.Concurrency{Name: "door", Max: 1},
			Rate:        &belay.Rate{Name: "steps", Max: 2, Per: belay.Duration(time.Second)}, Target: "lock",
		})
		var all []workflow.Handle[string]
		for range 3 {
			h, err := workflow.Start[string](t.Context(), k.Backend, "hold", time.Hour, gates)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, h)
		}
		start := time.Now()
		k.Advance(30 * time.Minute)
		g, err := k.Backend.Gate(t.Context(), "limit:door")
		if err != nil || g.Held != 1 || len(g.Holders) != 1 || g.Holders[0] != all[0].ID() || g.Waiting != 2 {
			t.Errorf("%+v, %v", g, err)
		}
		for _, h := range all {
			if v, err := h.Result(t.Context()); err != nil || v != "held" {
				t.Error(v, err)
			}
		}
		if d := time.Since(start); d < 3*time.Hour || d > 3*time.Hour+10*time.Second {
			t.Errorf("one after the other they took %s", d)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Rule: if the workflow of a child is not registered, the parent does not wait for ever: it fails
// with an error that says what to do.
func TestAChildOfAnUnregisteredWorkflowFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := belaytest.Open(func(w *worker.Worker) {
			worker.Register(w, "order", func(ctx context.Context, _ any) (string, error) {
				return workflow.Child[string](ctx, "ship", "shipping", nil)
			})
		})
		h, err := workflow.Start[string](t.Context(), k.Backend, "order", nil,
			belay.WithPolicy(belay.Policy{MaxAttempts: 1}))
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.Result(t.Context())
		if err == nil || !strings.Contains(err.Error(), `no worker of this test runs workflow "shipping"`) {
			t.Errorf("%v", err)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A 24-hour approval that was answered with a payload of the wrong type is repaired: after a retry the
// wait has its 24 hours again, and no finished step is repeated.
func TestAPoisonedApprovalIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type consent struct{ By string }
		reserved := 0
		k := belaytest.Open(func(w *worker.Worker) {
			worker.Register(w, "order", func(ctx context.Context, _ any) (string, error) {
				err := workflow.Do(ctx, "reserve", func(context.Context) error { reserved++; return nil })
				if err != nil {
					return "", err
				}
				c, err := workflow.WaitSignal[consent](ctx, "approved", workflow.Timeout(24*time.Hour))
				return c.By, err
			})
		})
		defer func() {
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		}()
		h, err := workflow.Start[string](t.Context(), k.Backend, "order", nil)
		if err != nil {
			t.Fatal(err)
		}
		k.Advance(23 * time.Hour)
		if err := h.Signal(t.Context(), "approved", "yes"); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Result(t.Context()); err == nil || !strings.Contains(err.Error(), "wrong type") {
			t.Fatalf("the order ended with %v", err)
		}
		if _, err := k.Backend.Control(t.Context(), belay.Control{
			Execution: h.ID(), Action: belay.ActionRetry,
		}); err != nil {
			t.Fatal(err)
		}
		k.Advance(23 * time.Hour)
		if err := h.Signal(t.Context(), "approved", consent{"ann"}); err != nil {
			t.Fatal(err)
		}
		if by, err := h.Result(t.Context()); by != "ann" || err != nil || reserved != 1 {
			t.Errorf("approved by %q, %v; reserved %d times", by, err, reserved)
		}
	})
}
