package belaytest_test

import (
	"context"
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/belaytest"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// say is a step that says so when it is carried out.
func say(ctx context.Context, name string) error {
	return workflow.Do(ctx, name, func(context.Context) error {
		fmt.Println(name)
		return nil
	})
}

func order(ctx context.Context, customer string) (string, error) {
	for _, step := range []string{"reserve", "charge", "ship"} {
		if err := say(ctx, step); err != nil {
			return "", err
		}
	}
	return "shipped to " + customer, nil
}

func registerOrder(w *worker.Worker) { worker.Register(w, "order", order) }

// A test of a workflow: the kit is a Backend in memory with a worker on it.
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

// A worker dies with its second step carried out and not saved: the next one
// carries that step out again, and no other. So the step needs an idempotency
// key wherever it charges a card.
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

// A worker dies right after its second step was saved: the next one goes on with
// the third.
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

// An owner whose execution was taken away can write nothing any more.
func ExampleKit_Steal() {
	ctx := context.Background()
	started := make(chan belay.ExecutionID)
	stolen := make(chan struct{})
	told := make(chan error, 1)
	k := belaytest.Open(func(w *worker.Worker) {
		worker.Register(w, "slow", func(ctx context.Context, _ any) (string, error) {
			if workflow.Token(ctx) > 1 { // the second owner
				return "done by another", nil
			}
			started <- workflow.Execution(ctx)
			<-stolen
			told <- workflow.Checkpoint(ctx, "too late")
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
	fmt.Println(belay.CodeOf(<-told))
	fmt.Println(h.Result(ctx))
	// Output:
	// lease_lost
	// done by another <nil>
}
