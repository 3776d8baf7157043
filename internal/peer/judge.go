package peer

import (
	"errors"
	"fmt"
)

// ErrJob means that a process of a job is at the other end.
var ErrJob = errors.New("a process of a job is at the other end")

// Judge tells processes of jobs from other processes.
type Judge struct {
	// Users reports whether a system user belongs to jobs; nil if jobs have no system users of
	// their own.
	Users func(uid uint32) bool
	// InJob reports whether a process belongs to a job, or returns an error if it cannot find out.
	InJob func(pid int) (bool, error)
	// Shared says that jobs may also run as the user of this process, or as root. A connection
	// whose process cannot be seen is then refused.
	Shared bool

	search search
}

// user refuses a process whose user belongs to jobs.
func (j *Judge) user(uid uint32) error {
	if j.Users != nil && j.Users(uid) {
		return fmt.Errorf("%w: user %d", ErrJob, uid)
	}
	return nil
}

// process refuses a process that belongs to a job, and a process for which InJob returns an error.
func (j *Judge) process(pid int) error {
	switch in, err := j.InJob(pid); {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	case in:
		return fmt.Errorf("%w: process %d", ErrJob, pid)
	}
	return nil
}
