package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/internal/host"
)

// openSpaces opens the workspaces in a directory. As root it takes back, for as long as
// the work of a dead run is salvaged, the user that the run had, so that no other process
// of this machine gives that user to a run of its own.
func openSpaces(dir string) (*workspace.Manager, error) {
	m, err := workspace.Open(dir)
	if err == nil && os.Geteuid() == 0 {
		m.Retake = retake
	}
	return m, err
}

func retake(ctx context.Context, user host.User, id string) (func(context.Context) error, error) {
	pool, err := process.OpenPool(userJournal, process.Range{First: user.UID, Count: 1})
	if err != nil {
		return nil, err
	}
	seat, err := pool.Take(ctx, id)
	if errors.Is(err, process.ErrNoUser) {
		return nil, &belay.Error{
			Code: belay.CodeConflict, Message: fmt.Sprintf("user %d of workspace %s works for another run now",
				user.UID, id), Err: err,
		}
	}
	if err != nil {
		return nil, err
	}
	return seat.Free, nil
}

// reserve takes the first user out of a range, for the base clones: no job is ever given
// it.
func reserve(users process.Range) (*host.User, process.Range, error) {
	if users.Count < 2 {
		return nil, users, fmt.Errorf("the users %s of jobs: one is needed for the base clones, which no job has, "+
			"and one for a job at least", users)
	}
	if _, err := process.OpenPool(userJournal, process.Range{First: users.First, Count: 1}); err != nil {
		return nil, users, err // somebody has it
	}
	return &host.User{UID: users.First, GID: users.First}, process.Range{
		First: users.First + 1, Count: users.Count - 1,
	}, nil
}
