package process

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// Result is what is known of a command when it is over.
type Result struct {
	// Code is the exit code, 128+n after signal n as shells count, or -1 if it is not
	// known because the supervisor was lost.
	Code int
	// Signal is the signal that ended the command, or 0.
	Signal syscall.Signal
	// TimedOut and Cancelled tell that it did not end by itself. A command that
	// ended by itself before the timeout or cancellation reached it has neither, even
	// if its descendants were still there.
	TimedOut  bool
	Cancelled bool
	// Duration is the command's time from start to end, frozen time included.
	Duration time.Duration
	// Usage covers the command and every descendant.
	Usage Usage
	// Stragglers counts the descendants that still ran when the command had ended.
	Stragglers int
	// OutputCut tells that Output did not get everything: it was too slow after the
	// end, or it failed.
	OutputCut bool
	Isolation Isolation
	// Freezer is what a freeze would use: "cgroup v2", "cgroup v1" or "signals".
	Freezer string
	// Enforced is what keeps the limits.
	Enforced Enforced
	// Sealed tells that the run could write nowhere but in Command.Writable and Tmp.
	Sealed bool
	// Walls is all that kept the run apart.
	Walls Walls
	// Exceeded says in words which limits the run came up against, as far as cgroups
	// keep them; empty for none.
	Exceeded string
}

// describe says in one line what holds a run of c.
func (r *Result) describe(c *Command) string {
	held := r.Walls.describe()
	if len(c.Writable) > 0 && !r.Sealed {
		held += "; not sealed"
	}
	return strings.Join([]string{held, r.Enforced.describe(c.Limits), r.Walls.landlocked(), "frozen by " + r.Freezer},
		"; ")
}

// Usage is what a tree of processes has used.
type Usage struct {
	User, System time.Duration
	// MaxRSS is the largest resident size of any one process, in bytes.
	MaxRSS int64
}

var (
	// ErrTimedOut is the cause of an end by timeout.
	ErrTimedOut = errors.New("the command ran out of time")

	// ErrKilled is the cause of an end by Kill without a cause of its own.
	ErrKilled = errors.New("the command was killed")

	// ErrLost means that the supervisor ended before its command: how the command
	// ended is not known. What could be found of it has been killed.
	ErrLost = errors.New("the supervisor was lost")

	// ErrSurvived means that some process of the run could not be killed within the
	// bound; it most likely waits inside the kernel for a device or a file server.
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
