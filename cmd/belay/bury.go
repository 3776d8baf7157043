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
	"github.com/belaydev/belay/internal/agent/process"
)

// bury kills the processes of a worker that died on this host. Whatever carries
// the mark of a run in this store is left over if the run has an older token than
// its execution, or the newest and no owner but the dead: a run of another process
// that lives is its execution's newest and owned by that one's worker.
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

// buryBelow is bury, and removes the workspaces of dead processes below a data
// directory. Those of the living are left alone.
func buryBelow(dir string) func(context.Context, belay.Client, belay.Worker) error {
	return func(ctx context.Context, c belay.Client, dead belay.Worker) error {
		if err := bury(ctx, c, dead); err != nil {
			return err
		}
		// if we end now, the next one removes it
		if err := sweepBelow(ctx, filepath.Join(dir, "workspaces")); err != nil && ctx.Err() == nil {
			slog.Warn("remove what a dead worker left", "worker", dead.Name, "error", err)
		}
		return nil
	}
}

func sweepBelow(ctx context.Context, dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil // nothing was ever run in one
	}
	w, err := openSpaces(dir)
	if err != nil {
		return err
	}
	return w.Sweep(ctx, func(string) bool { return true })
}
