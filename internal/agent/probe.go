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

// reach goes to a directory by its whole name, as programs do, and writes there.
const reach = `cd "$1" && : > "$1/probe"`

// Held is what holds a job on this machine.
type Held struct {
	// By says it in one line.
	By string
	// Walled tells that the job can write nowhere but in its workspace.
	Walled bool
	// Walls are all that hold it.
	Walls process.Walls
}

// Probe runs next to nothing, in a workspace as jobs have one, and says what held it: so
// it is known before the first job what this machine gives, and that jobs get to their
// workspaces.
func (r *Runner) Probe(ctx context.Context) (held Held, err error) {
	id := fmt.Sprintf("probe-%d-%d", os.Getpid(), time.Now().UnixNano())
	w, err := r.Workspaces.Prepare(ctx, workspace.Spec{ID: id})
	if err != nil {
		return held, fmt.Errorf("try what holds a job: %w", err)
	}
	defer func() { err = errors.Join(err, w.Remove(context.WithoutCancel(ctx))) }()
	c, _ := r.around(process.Command{
		ID: id, Args: []string{"sh", "-c", reach, "sh", w.Dir}, Dir: w.Dir, Inherit: process.Basics(), User: w.User,
		Limits:   r.Limits,
		Writable: r.writable(w), Tmp: w.Tmp, Grace: -1,
	})
	tree, err := process.Start(ctx, c)
	if err != nil {
		return held, fmt.Errorf("try what holds a job: %w", err)
	}
	end, err := tree.Wait()
	if err == nil && end.Code != 0 {
		err = fmt.Errorf("a job does not get to its workspace %s: the way is closed to its user", w.Dir)
	}
	if err == nil {
		r.Isolation = end.Isolation
	}
	return Held{tree.Describe(), end.Sealed, tree.Walls()}, err
}
