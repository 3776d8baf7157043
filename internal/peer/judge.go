package peer

import (
	"errors"
	"fmt"
)

// ErrJob means that a process of a job is at the other end.
var ErrJob = errors.New("a process of a job is at the other end")

// Judge tells processes of jobs from others.
type Judge struct {
	// Users reports whether a user is one that jobs are given; nil for none.
	Users func(uid uint32) bool
	// InJob reports whether a process belongs to a job. With an error that could not
	// be found out.
	InJob func(pid int) (bool, error)
	// Shared says that jobs run as the user of this process too, or as root.
	Shared bool

	search search
}

func (j *Judge) user(uid uint32) error {
	if j.Users != nil && j.Users(uid) {
		return fmt.Errorf("%w: user %d", ErrJob, uid)
	}
	return nil
}

// process judges a process by its number.
func (j *Judge) process(pid int) error {
	switch in, err := j.InJob(pid); {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	case in:
		return fmt.Errorf("%w: process %d", ErrJob, pid)
	}
	return nil
}
