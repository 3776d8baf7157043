package workflow_test

import (
	"context"
	"errors"
	"fmt"
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

// Rule: the output of a run is appended to the output of the previous run of the execution. This
// also holds if the store was restored from a backup between the two runs, after which tokens
// continue from a much larger number (a new epoch).
func TestOutputContinuesInANewEpoch(t *testing.T) {
	for kind, write := range map[string]func(context.Context) error{
		"a log": func(ctx context.Context) error {
			log := workflow.Output(ctx, "out")
			fmt.Fprintf(log, "attempt %d ", workflow.Attempt(ctx))
			return log.Close()
		},
		"an artifact": func(ctx context.Context) error {
			_, err := workflow.Artifact(ctx, "out",
				strings.NewReader(fmt.Sprintf("attempt %d ", workflow.Attempt(ctx))))
			return err
		},
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				quiet := slog.New(slog.DiscardHandler)
				s := memory.New(time.Now)
				b := engine.New(s, engine.Options{Log: quiet})
				defer b.Close()
				w := worker.New(b, worker.Options{Log: quiet})
				worker.Register(w, "w", func(ctx context.Context, _ any) (int, error) {
					if err := write(ctx); err != nil {
						return 0, belay.Permanent(err)
					}
					if workflow.Attempt(ctx) == 1 {
						s.SetEpoch(7 << 32)
						return 0, errors.New("again")
					}
					return 0, nil
				})
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- w.Run(ctx) }()
				out, err := b.Submit(ctx, belay.Submission{Workflow: "w"})
				if err != nil || out[0].Err != nil {
					t.Fatal(err, out)
				}
				x, err := b.Await(ctx, out[0].ID, time.Minute)
				if err != nil || x.State != belay.Succeeded || x.Token>>32 != 7 {
					t.Errorf("%s with token %d: %v %v", x.State, x.Token, x.Error, err)
				}
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
