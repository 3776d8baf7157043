package embedded_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/embedded"
)

var quiet = slog.New(slog.DiscardHandler)

// folder creates an empty directory. The returned function removes it.
func folder() (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "belay-example")
	if err != nil {
		panic(err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }
}

// greet submits an execution of the workflow "greet".
func greet(ctx context.Context, b belay.Client) error {
	out, err := b.Submit(ctx, belay.Submission{Workflow: "greet", Input: []byte(`"ann"`)})
	if err != nil {
		return err
	}
	return out[0].Err
}

// A submitted execution is on the disk, and is still there when the program opens the directory
// again.
func ExampleOpen() {
	ctx := context.Background()
	dir, remove := folder()
	defer remove()
	b, err := embedded.Open(ctx, "sqlite:"+dir, embedded.Logger(quiet))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(greet(ctx, b), b.Close())

	b, err = embedded.Open(ctx, "sqlite:"+dir, embedded.Logger(quiet))
	if err != nil {
		fmt.Println(err)
		return
	}
	page, err := b.Executions(ctx, belay.Filter{})
	fmt.Println(len(page.Executions), err, b.Close())
	// Output:
	// <nil> <nil>
	// 1 <nil> <nil>
}

// A program opens an engine with the option Listen. Another program then uses this engine through
// its socket, as the belay command does.
func ExampleListen() {
	ctx := context.Background()
	dir, remove := folder()
	defer remove()
	b, err := embedded.Open(ctx, "sqlite:"+dir, embedded.Listen(), embedded.Logger(quiet))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()

	other, err := client.Dial(ctx, "unix:"+filepath.Join(dir, "belay.sock"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer other.Close()
	fmt.Println(greet(ctx, other))
	page, err := b.Executions(ctx, belay.Filter{})
	fmt.Println(len(page.Executions), err)
	// Output:
	// <nil>
	// 1 <nil>
}

// The engine logs to the program's logger and keeps ended executions for a week. When a worker's
// process on this machine has ended, the engine first removes the worker's files; then another
// worker continues the worker's executions.
func ExampleBury() {
	ctx := context.Background()
	dir, remove := folder()
	defer remove()
	b, err := embedded.Open(ctx, "sqlite:"+dir, embedded.Logger(quiet), embedded.Retention(7*24*time.Hour),
		embedded.Bury(func(_ context.Context, _ belay.Client, dead belay.Worker) error {
			return os.RemoveAll(filepath.Join(dir, "scratch", dead.ID.String()))
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(b.Close())
	// Output: <nil>
}

// After workers of this machine have died, the engine removes their cached downloads in the
// background. The executions of these workers do not wait for that.
func ExampleCleanUp() {
	ctx := context.Background()
	dir, remove := folder()
	defer remove()
	b, err := embedded.Open(ctx, "sqlite:"+dir, embedded.Logger(quiet), embedded.CleanUp(func(context.Context) {
		if err := os.RemoveAll(filepath.Join(dir, "downloads")); err != nil {
			fmt.Println(err)
		}
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(b.Close())
	// Output: <nil>
}

// The engine logs to the program's logger.
func ExampleLogger() {
	b, err := embedded.Open(context.Background(), "memory:", embedded.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(b.Close())
	// Output: <nil>
}

// The engine keeps ended executions for a week instead of thirty days.
func ExampleRetention() {
	b, err := embedded.Open(context.Background(), "memory:", embedded.Retention(7*24*time.Hour))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(b.Close())
	// Output: <nil>
}

func ExampleDeadLetterRetention() {
	keep := embedded.DeadLetterRetention(90 * 24 * time.Hour)
	b, err := embedded.Open(context.Background(), "memory:", embedded.Retention(7*24*time.Hour), keep)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(b.Close())
	// Output: <nil>
}

// A second program that opens the directory gets an error that describes the first program.
func ExamplePurpose() {
	ctx := context.Background()
	dir, remove := folder()
	defer remove()
	b, err := embedded.Open(ctx, "sqlite:"+dir, embedded.Purpose("the shop"), embedded.Logger(quiet))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	_, err = embedded.Open(ctx, "sqlite:"+dir)
	fmt.Println(belay.CodeOf(err))
	// Output: conflict
}

// Holder describes the process whose engine uses a directory, and returns "" if no process does.
func ExampleHolder() {
	ctx := context.Background()
	dir, remove := folder()
	defer remove()
	b, err := embedded.Open(ctx, "sqlite:"+dir, embedded.Logger(quiet))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(embedded.Holder(dir) != "", b.Close(), embedded.Holder(dir) != "")
	// Output: true <nil> false
}

// A program that has no engine finds out when the directory was last written to.
func ExampleChanged() {
	ctx := context.Background()
	dir, remove := folder()
	defer remove()
	fmt.Println(embedded.Changed(dir).IsZero())
	b, err := embedded.Open(ctx, "sqlite:"+dir, embedded.Logger(quiet))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(greet(ctx, b), b.Close())
	fmt.Println(embedded.Changed(dir).IsZero())
	// Output:
	// true
	// <nil> <nil>
	// false
}

// A program that chooses the id of an execution itself can repeat the submission after a crash. It
// needs to store only the id.
func ExampleNewID() {
	ctx := context.Background()
	b, err := embedded.Open(ctx, "memory:", embedded.Logger(quiet))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	id := belay.ExecutionID(embedded.NewID())
	for range 2 {
		out, err := b.Submit(ctx, belay.Submission{ID: id, Workflow: "greet"})
		fmt.Println(out[0].ID == id, out[0].Err, err)
	}
	// Output:
	// true <nil> <nil>
	// true <nil> <nil>
}

// A program reads a directory while another program's engine uses it.
func ExampleOpenReader() {
	ctx := context.Background()
	dir, remove := folder()
	defer remove()
	b, err := embedded.Open(ctx, "sqlite:"+dir, embedded.Logger(quiet))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	if err := greet(ctx, b); err != nil {
		fmt.Println(err)
	}
	r, err := embedded.OpenReader(ctx, "sqlite:"+dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	page, err := r.Executions(ctx, belay.Filter{})
	fmt.Println(page.Executions[0].Workflow, page.Executions[0].State, err, r.Close())
	// Output: greet pending <nil> <nil>
}
