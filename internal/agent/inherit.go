package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/workflow"
)

// inherit takes over what an earlier run of the execution, which died on this
// host, had changed: it was salvaged when its workspace was found. From then on it
// is kept with the execution, and no more on this host.
func (b *bench) inherit(ctx context.Context) error {
	if b.job.Repo == "" {
		return nil
	}
	kept, err := b.runner.Workspaces.Kept()
	if err != nil {
		return fmt.Errorf("look for the work of earlier runs: %w", err)
	}
	var all []workspace.Kept
	var newest belay.Token
	last := -1
	for _, k := range kept {
		var run belay.RunID
		if run.UnmarshalText([]byte(k.ID)) != nil || run.Execution != workflow.Execution(ctx) || run.Token >= workflow.Token(ctx) {
			continue
		}
		all = append(all, k)
		if run.Token > newest && k.Commit == b.at.Commit {
			newest, last = run.Token, len(all)-1
		}
	}
	if last >= 0 {
		if err := b.adopt(ctx, all[last].ID); err != nil {
			return fmt.Errorf("take over the work of an earlier run: %w", err)
		}
	}
	for _, k := range all {
		err = errors.Join(err, b.runner.Workspaces.Forget(k.ID))
	}
	return err
}

// adopt stores the work of a dead run, and that this one goes on with it.
func (b *bench) adopt(ctx context.Context, id string) error {
	k, err := b.runner.Workspaces.Work(id)
	if err != nil {
		return err
	}
	c := &Changes{Commits: k.Commits, Files: k.Files, Insertions: k.Insertions, Deletions: k.Deletions, Lost: k.Lost}
	for _, a := range []struct {
		name string
		data []byte
		to   *string
	}{{"kept.bundle", k.Bundle, &c.Bundle}, {"kept.patch", k.Patch, &c.Patch}} {
		if len(a.data) == 0 {
			continue
		}
		if _, err := workflow.Artifact(ctx, a.name, bytes.NewReader(a.data)); err != nil {
			return err
		}
		*a.to = a.name
	}
	return workflow.Checkpoint(ctx, interrupted{c})
}
