package belaytest_test

import (
	"context"
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/belaytest"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// printStep executes a step that prints its own name.
func printStep(ctx context.Context, name string) error {
	return workflow.Do(ctx, name, func(context.Context) error {
		fmt.Println(name)
		return nil
	})
}

func order(ctx context.Context, customer string) (string, error) {
	for _, step := range []string{"reserve", "charge", "ship"} {
		if err := printStep(ctx, step); err != nil {
			return "", err
		}
	}
	return "shipped to " + customer, nil
}

func registerOrder(w *worker.Worker) { worker.Register(w, "order", order) }

// A kit is a Backend in memory with a worker, on which a test runs workflows.
func ExampleOpen() {
	ctx := context.Background()
	k := belaytest.Open(registerOrder)
	defer k.Close()
	h, err := workflow.Start[string](ctx, k.Backend, "order", "ann")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(h.Result(ctx))
	// Output:
	// reserve
	// charge
	// ship
	// shipped to ann <nil>
}

// A worker crashes after its second step was executed and before that step is saved. The next
// worker executes that step again, and no earlier step. A step that charges a card therefore needs
// an idempotency key.
func ExampleKit_CrashBefore() {
	ctx := context.Background()
	k := belaytest.Open(registerOrder)
	defer k.Close()

	k.CrashBefore(2)
	h, err := workflow.Start[string](ctx, k.Backend, "order", "ann")
	if err != nil {
		fmt.Println(err)
		return
	}
	k.Restart()
	fmt.Println(h.Result(ctx))
	// Output:
	// reserve
	// charge
	// charge
	// ship
	// shipped to ann <nil>
}

// A worker crashes right after its second step was saved. The next worker continues with the third
// step.
func ExampleKit_CrashAfter() {
	ctx := context.Background()
	k := belaytest.Open(registerOrder)
	defer k.Close()

	k.CrashAfter(2)
	h, err := workflow.Start[string](ctx, k.Backend, "order", "ann")
	if err != nil {
		fmt.Println(err)
		return
	}
	k.Restart()
	fmt.Println(h.Result(ctx))
	// Output:
	// reserve
	// charge
	// ship
	// shipped to ann <nil>
}

// After a test has taken an execution away from its owner, as the steal action does, the old owner
// cannot write any more.
func ExampleKit_Steal() {
	ctx := context.Background()
	started := make(chan belay.ExecutionID)
	stolen := make(chan struct{})
	refusal := make(chan error, 1)
	k := belaytest.Open(func(w *worker.Worker) {
		worker.Register(w, "slow", func(ctx context.Context, _ any) (string, error) {
			if workflow.Token(ctx) > 1 { // the second owner
				return "done by another", nil
			}
			started <- workflow.Execution(ctx)
			<-stolen
			refusal <- workflow.Checkpoint(ctx, "too late")
			return "done", nil
		})
	})
	defer k.Close()

	h, err := workflow.Start[string](ctx, k.Backend, "slow", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := k.Steal(ctx, <-started); err != nil {
		fmt.Println(err)
	}
	close(stolen)
	fmt.Println(belay.CodeOf(<-refusal))
	fmt.Println(h.Result(ctx))
	// Output:
	// lease_lost
	// done by another <nil>
}
