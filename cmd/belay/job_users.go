package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/internal/host"
	"github.com/belaydev/belay/internal/retry"
)

// openSpaces opens the workspaces in a directory. If this process runs as root, the manager of the
// workspaces reserves the system user of a dead run while the manager saves the changes of that
// run. So no other process of this machine gives the user to a new run.
func openSpaces(dir string) (*workspace.Manager, error) {
	m, err := workspace.Open(dir)
	if err == nil && os.Geteuid() == 0 {
		m.Retake = reserveUserOf
	}
	return m, err
}

// userPatience is how long reserveUserOf waits for a user: a process that looks for a free user locks each user for a
// moment.
const userPatience = time.Second

// reserveUserOf reserves the system user of a dead run's workspace until the caller calls the
// returned function. It returns a conflict if another run has the user already.
func reserveUserOf(ctx context.Context, user host.User, id string) (func(context.Context) error, error) {
	pool, err := process.OpenPool(userJournal, process.Range{First: user.UID, Count: 1})
	if err != nil {
		return nil, err
	}
	seat, err := pool.Take(ctx, id)
	for began := time.Now(); errors.Is(err, process.ErrNoUser) && time.Since(began) < userPatience; {
		if !retry.Sleep(ctx, userPatience/20) {
			break
		}
		seat, err = pool.Take(ctx, id)
	}
	if errors.Is(err, process.ErrNoUser) {
		return nil, &belay.Error{
			Code: belay.CodeConflict, Message: fmt.Sprintf("user %d of workspace %s belongs to another run now",
				user.UID, id), Err: err,
		}
	}
	if err != nil {
		return nil, err
	}
	return seat.Free, nil
}

// splitUsers splits a range of system users: the first user owns the base clones, and the others
// are for jobs. No job ever gets the first user.
func splitUsers(users process.Range) (*host.User, process.Range, error) {
	if users.Count < 2 {
		return nil, users, fmt.Errorf("the range %s of users for jobs is too small: it must have at least two users, "+
			"one for the base clones and one for a job", users)
	}
	if _, err := process.OpenPool(userJournal, process.Range{First: users.First, Count: 1}); err != nil {
		return nil, users, err // another process has this user in use
	}
	return &host.User{UID: users.First, GID: users.First}, process.Range{
		First: users.First + 1, Count: users.Count - 1,
	}, nil
}
