package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/workflow"
)

// inherit takes over the changes of an earlier run of the execution that died on this host. These
// changes were salvaged (saved) from the dead run's workspace; inherit stores them with the
// execution and deletes the salvaged copy on this host. If the execution has since continued on
// another host with newer changes, the older changes stay on this host, so that a person can
// inspect them.
func (b *bench) inherit(ctx context.Context) error {
	if b.job.Repo == "" {
		return nil
	}
	place := cmp.Or(b.name, workflow.Execution(ctx).String())
	left := func(name string) bool { return name == place || earlier(ctx, name) != 0 }
	err := b.runner.Workspaces.Settle(ctx, left)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil { // the salvaged work is kept even after this error
		slog.With(workflow.LogAttr(ctx)).WarnContext(ctx, "the workspace of an earlier run cannot be removed",
			"error", err)
	}
	kept, err := b.runner.Workspaces.Kept()
	if err != nil {
		return fmt.Errorf("look for the work of earlier runs: %w", err)
	}
	// known is the run whose changes the execution stored last. If this host has saved (salvaged)
	// the changes in the workspace of that same run, the salvaged changes are as new as the stored
	// changes, or newer.
	known := b.saver.now.Run
	mine := make(map[belay.Token]workspace.Kept)
	var newest belay.Token
	for _, k := range kept {
		run := earlier(ctx, k.ID)
		if run == 0 {
			continue
		}
		mine[run] = k
		if run >= known && run > newest && k.Commit == b.at.Commit {
			newest = run
		}
	}
	if newest == 0 {
		return nil
	}
	if err := b.adopt(ctx, mine[newest].ID, newest); err != nil {
		return fmt.Errorf("take over the work of an earlier run: %w", err)
	}
	for token, k := range mine {
		if token <= newest {
			err = errors.Join(err, b.runner.Workspaces.Forget(k.ID))
		}
	}
	return err
}

// earlier returns the token of the run to which a workspace belongs, if that run is an earlier run
// of this execution; else 0.
func earlier(ctx context.Context, id string) belay.Token {
	var run belay.RunID
	if run.UnmarshalText([]byte(id)) != nil || run.Execution != workflow.Execution(ctx) ||
		run.Token >= workflow.Token(ctx) {
		return 0
	}
	return run.Token
}

// adopt takes over the changes that an earlier, dead run made in the workspace id: it stores them as
// artifacts of this execution, and lets the current run start with them.
func (b *bench) adopt(ctx context.Context, id string, run belay.Token) error {
	k, err := b.runner.Workspaces.Work(id)
	if err != nil {
		return err
	}
	c, err := b.keep(ctx, b.saver.freeName(), k.Salvage)
	if err != nil {
		return err
	}
	b.saver.now = b.saver.now.next(workflow.Execution(ctx), c, run)
	return workflow.Checkpoint(ctx, b.saver.now)
}
