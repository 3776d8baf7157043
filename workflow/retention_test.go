package workflow_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// Rule: the store keeps the output of a child as long as the root execution, even if the child
// ended long before, because a retry of the parent reads that output. When the retention time of
// the root is over, the store deletes both executions.
func TestARetryFindsTheOutputsOfItsChildren(t *testing.T) {
	for name, size := range map[string]int{"a small output": 10, "a large output": 20 << 10} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const retention = time.Hour
				quiet := slog.New(slog.DiscardHandler)
				b := engine.New(memory.New(time.Now), engine.Options{Log: quiet, Retention: retention})
				defer b.Close()
				w := worker.New(b, worker.Options{Log: quiet})
				worker.Register(w, "child", func(context.Context, any) (string, error) {
					return strings.Repeat("x", size), nil
				})
				repaired := false
				worker.Register(w, "parent", func(ctx context.Context, _ any) (int, error) {
					out, err := workflow.Child[string](ctx, "child", "child", nil)
					if err != nil {
						return 0, err
					}
					if err := workflow.Sleep(ctx, "wait", 2*retention); err != nil {
						return 0, err
					}
					if !repaired {
						return 0, belay.Permanent(errors.New("to be repaired"))
					}
					return len(out), nil
				})
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- w.Run(ctx) }()
				await := func(id belay.ExecutionID, want belay.State) {
					t.Helper()
					if x, err := b.Await(ctx, id, 3*retention); err != nil || x.State != want {
						t.Errorf("%s %s: %+v, %v; want %s", x.State, x.Output, x.Error, err, want)
					}
				}
				out, err := b.Submit(ctx, belay.Submission{Workflow: "parent"})
				if err != nil || out[0].Err != nil {
					t.Fatal(err, out)
				}
				id := out[0].ID
				await(id, belay.Failed)
				time.Sleep(retention / 2)
				repaired = true
				if _, err := b.Control(ctx, belay.Control{Execution: id, Action: belay.ActionRetry}); err != nil {
					t.Fatal(err)
				}
				await(id, belay.Succeeded)
				time.Sleep(2 * retention)
				if page, err := b.Executions(ctx, belay.Filter{Children: true}); err != nil ||
					len(page.Executions) > 0 {
					t.Errorf("left after the retention: %+v, %v", page.Executions, err)
				}
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
