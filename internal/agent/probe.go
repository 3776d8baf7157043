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

// reach is a script that enters a directory by its full path and writes a file there, as the
// programs of a job do.
const reach = `cd "$1" && : > "$1/probe"`

// Held describes the sandbox that jobs have on this machine.
type Held struct {
	// By describes the sandbox in one line.
	By string
	// Walled says that a job can write only in its workspace.
	Walled bool
	// Walls are the parts of the sandbox.
	Walls process.Walls
}

// Probe runs a small command in a new workspace, in the same sandbox as a job, and describes the
// sandbox. From the description an operator learns, before the first job, how well this machine
// isolates jobs. Probe returns an error if a job could not reach its workspace.
func (r *Runner) Probe(ctx context.Context) (held Held, err error) {
	id := fmt.Sprintf("probe-%d-%d", os.Getpid(), time.Now().UnixNano())
	w, err := r.Workspaces.Prepare(ctx, workspace.Spec{ID: id})
	if err != nil {
		return held, fmt.Errorf("probe the sandbox of jobs: %w", err)
	}
	defer func() { err = errors.Join(err, w.Remove(context.WithoutCancel(ctx))) }()
	c, _ := r.around(ctx, process.Command{
		ID: id, Args: []string{"sh", "-c", reach, "sh", w.Dir}, Dir: w.Dir, Inherit: process.Basics(), User: w.User,
		Limits:   r.Limits,
		Writable: r.writable(w), Tmp: w.Tmp, Grace: -1,
	})
	tree, err := process.Start(ctx, c)
	if err != nil {
		return held, fmt.Errorf("probe the sandbox of jobs: %w", err)
	}
	end, err := tree.Wait()
	if err == nil && end.Code != 0 {
		err = fmt.Errorf("a job cannot reach its workspace %s: its user may not enter a directory above it", w.Dir)
	}
	if err == nil {
		r.Isolation = end.Isolation
	}
	return Held{tree.Describe(), end.Sealed, tree.Walls()}, err
}
