package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/agent/process"
)

// bury kills the processes that a dead worker of this host has left behind. Each process of a job
// has the id of its run in its environment, and bury kills a process only if its run is over. A run
// is over if its token is older than the execution's token. A run with the newest token is over if
// the execution is not running or the dead worker still owns it. A process of a living worker is
// safe, because the living worker owns the execution and the run of the process has the newest
// token.
func bury(ctx context.Context, c belay.Client, dead belay.Worker) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := process.SweepOrphans(ctx, func(mark string) bool {
		var run belay.RunID
		if run.UnmarshalText([]byte(mark)) != nil || run.IsZero() {
			return false
		}
		x, err := c.Execution(ctx, run.Execution)
		return err == nil && (run.Token < x.Token || run.Token == x.Token && (x.State != belay.Running ||
			x.Worker == dead.ID))
	})
	return err
}

// burial returns the options with which an engine deals with the workers of this host that have died: it kills their
// processes, and in the background it removes the workspaces of dead processes below the data directory dir. It does
// not touch the workspaces of living processes. Saving and removing a workspace may take minutes. Only a new run of the
// same execution waits until that is done ([workspace.Manager.Settle]).
func burial(dir string) []embedded.Option {
	return []embedded.Option{embedded.Bury(bury), embedded.CleanUp(func(ctx context.Context) {
		// If this process ends here, the next engine or worker removes the workspaces.
		if err := sweepBelow(ctx, filepath.Join(dir, "workspaces")); err != nil && ctx.Err() == nil {
			slog.Warn("remove the workspaces of dead workers", "error", err)
		}
	})}
}

func sweepBelow(ctx context.Context, dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil // no job has ever made a workspace here
	}
	w, err := openSpaces(dir)
	if err != nil {
		return err
	}
	return w.Sweep(ctx, func(string) bool { return true })
}
