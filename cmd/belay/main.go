// Command belay runs long work durably: when a worker crashes, another worker continues from the
// last checkpoint.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/agent/workspace"
)

func main() {
	// in a process that was started as a job's supervisor or as a helper, Main does not return
	process.Main(workspace.Helper())
	guard() // nor does guard in a process that was started to run the command of a swap
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}
