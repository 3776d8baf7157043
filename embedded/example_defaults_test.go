package embedded_test

import (
	"context"
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
)

// A submission that says nothing about its attempts gets the default of the engine.
func ExampleDefaults() {
	ctx := context.Background()
	b, err := embedded.Open(ctx, "memory:", embedded.Defaults(belay.Policy{MaxAttempts: 5}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	out, err := b.Submit(ctx, belay.Submission{Workflow: "greet"})
	if err != nil {
		fmt.Println(err)
		return
	}
	x, err := b.Execution(ctx, out[0].ID)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(x.Policy.MaxAttempts)
	// Output: 5
}

func ExampleCheckInterval() {
	b, err := embedded.Open(context.Background(), "memory:", embedded.CheckInterval(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(b.Close())
	// Output: <nil>
}
