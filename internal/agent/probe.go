package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/agent/workspace"
)

// Probe runs nothing, in a workspace as jobs have one, and says in one line what
// held it: so it is known before the first job what this machine gives.
func (r *Runner) Probe(ctx context.Context) (held string, err error) {
	id := fmt.Sprintf("probe-%d-%d", os.Getpid(), time.Now().UnixNano())
	w, err := r.Workspaces.Prepare(ctx, workspace.Spec{ID: id})
	if err != nil {
		return "", fmt.Errorf("try what holds a job: %w", err)
	}
	defer func() { err = errors.Join(err, w.Remove(context.WithoutCancel(ctx))) }()
	tree, err := process.Start(ctx, process.Command{
		ID: id, Args: []string{"true"}, Dir: w.Dir, Inherit: process.Basics(), User: w.User, Limits: r.Limits,
		Writable: r.writable(w), Tmp: w.Tmp, Grace: -1,
	})
	if err != nil {
		return "", fmt.Errorf("try what holds a job: %w", err)
	}
	_, err = tree.Wait()
	return tree.Describe(), err
}
