package process

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// Result is the outcome of a command.
type Result struct {
	// Code is the exit code, 128+n after signal n as shells count, or -1 if it is not
	// known because the supervisor was lost.
	Code int
	// Signal is the signal that ended the command, or 0.
	Signal syscall.Signal
	// TimedOut and Cancelled tell that the command did not end by itself. A command that ended by
	// itself before the timeout or the cancellation reached it has neither set, even if descendants
	// still ran.
	TimedOut  bool
	Cancelled bool
	// Duration is the time from the command's start to its end, including frozen time.
	Duration time.Duration
	// Usage covers the command and every descendant.
	Usage Usage
	// Stragglers counts the descendants that still ran when the command ended.
	Stragglers int
	// OutputCut tells that Output did not receive everything: it was too slow after the end, or it
	// failed.
	OutputCut bool
	Isolation Isolation
	// Freezer is the means that a freeze would use: "cgroup v2", "cgroup v1" or "signals".
	Freezer string
	// Enforced names the means that enforced the limits.
	Enforced Enforced
	// Sealed tells that the run could write only in Command.Writable and Tmp.
	Sealed bool
	// Walls lists everything that isolated the run.
	Walls Walls
	// Exceeded describes in words the limits that the run reached, if cgroups enforced them; empty
	// for none.
	Exceeded string
}

// describe describes in one line the isolation and the limits of a run of c.
func (r *Result) describe(c *Command) string {
	parts := r.Walls.describe()
	if len(c.Writable) > 0 && !r.Sealed {
		parts += "; not sealed"
	}
	return strings.Join([]string{parts, r.Enforced.describe(c.Limits), r.Walls.landlocked(), "frozen by " + r.Freezer},
		"; ")
}

// Usage is the resource usage of a tree of processes.
type Usage struct {
	User, System time.Duration
	// MaxRSS is the largest resident size of any one process, in bytes.
	MaxRSS int64
}

var (
	// ErrTimedOut is the cause if the timeout ended the command.
	ErrTimedOut = errors.New("the command ran out of time")

	// ErrKilled is the cause of a Kill without a cause of its own.
	ErrKilled = errors.New("the command was killed")

	// ErrLost means that the supervisor ended before its command, so that the command's own end is
	// unknown. All processes of the run that could be found have been killed.
	ErrLost = errors.New("the supervisor was lost")

	// ErrSurvived means that some process of the run could not be killed in time; most likely it
	// waits inside the kernel for a device or a file server.
	ErrSurvived = errors.New("a process of the run could not be killed")
)

// StartError means that the command was never started. Code is the exit code that
// a shell would give: 127 if there is no such command, 126 if it cannot be run.
type StartError struct {
	Command string
	Code    int
	Reason  string
}

func (e *StartError) Error() string {
	return fmt.Sprintf("start %q: %s", e.Command, e.Reason)
}

// unavailable means that one kind of isolation does not work on this machine.
type unavailable struct {
	isolation Isolation
	reason    string
}

func (e *unavailable) Error() string {
	return fmt.Sprintf("no %s here: %s", e.isolation, e.reason)
}
