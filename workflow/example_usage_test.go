package workflow_test

import (
	"context"
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// The report sums up the usage of all executions.
func ExampleAddUsage() {
	b, stop := serve(func(w *worker.Worker) {
		worker.Register(w, "ask", func(ctx context.Context, _ any) (string, error) {
			workflow.AddUsage(ctx, belay.ModelUsage{InputTokens: 1200, OutputTokens: 30, Money: belay.USDOf(0.0125)})
			return "asked", workflow.Checkpoint(ctx, "asked")
		})
	})
	defer stop()
	ctx := context.Background()
	h, err := workflow.Start[string](ctx, b, "ask", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(h.Result(ctx))
	report, err := b.Usage(ctx, belay.UsageFilter{By: "workflow"})
	fmt.Println(report.Total.Tokens(), report.Total.Money, err)
	// Output:
	// asked <nil>
	// 1230 0.0125 <nil>
}

// A run reads what it and earlier runs have written to a log.
func ExampleReadLog() {
	build := func(ctx context.Context, _ any) (string, error) {
		log := workflow.Output(ctx, "log")
		fmt.Fprint(log, "compiled")
		if err := log.Close(); err != nil {
			return "", err
		}
		chunks, err := workflow.ReadLog(ctx, "log", 0, 10)
		if err != nil {
			return "", err
		}
		return string(chunks[0].Data), nil
	}
	result("build", nil, func(w *worker.Worker) { worker.Register(w, "build", build) })
	// Output: compiled <nil>
}
