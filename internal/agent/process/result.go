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
	// Code is the exit code, or 128+n after signal n as in a shell, or -1 if the code is unknown
	// because the supervisor was lost.
	Code int
	// Signal is the signal that ended the command; 0 if no signal did.
	Signal syscall.Signal
	// TimedOut and Cancelled say why the command did not end by itself. Both are false if the
	// command ended by itself before the timeout or the cancel reached it, even if descendants
	// still ran then.
	TimedOut  bool
	Cancelled bool
	// Duration is the time from the command's start to its end, including frozen time.
	Duration time.Duration
	// Usage is the usage of the command and all its descendants.
	Usage Usage
	// Stragglers is the number of descendants that still ran when the command ended.
	Stragglers int
	// OutputCut says that Output did not receive all of the output, because Output failed or was
	// still busy when the drain time was over.
	OutputCut bool
	Isolation Isolation
	// Freezer is the means by which the run could be frozen: "cgroup v2", "cgroup v1" or "signals".
	Freezer string
	// Enforced names the means that enforced each limit.
	Enforced Enforced
	// Sealed says that the run could write only in Command.Writable and Tmp.
	Sealed bool
	// Walls lists the walls (restrictions of the sandbox) that isolated the run.
	Walls Walls
	// Exceeded describes in words the limits that the run reached, if cgroups enforced them; empty
	// if the run reached no limit.
	Exceeded string
}

// describe describes in one line the isolation and the limits of a run of the command c.
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
	// MaxRSS is the largest resident size of any single process, in bytes.
	MaxRSS int64
}

var (
	// ErrTimedOut is the cause in the error of Wait if the timeout ended the command.
	ErrTimedOut = errors.New("the command ran out of time")

	// ErrKilled is the cause in the error of Wait after Kill was called with a nil cause.
	ErrKilled = errors.New("the command was killed")

	// ErrLost means that the supervisor ended before the command, so that the command's end is
	// unknown. Belay has killed all processes of the run that it could find.
	ErrLost = errors.New("the supervisor was lost")

	// ErrSurvived means that a process of the run could not be killed in time; most likely it waits
	// inside the kernel for a device or a file server.
	ErrSurvived = errors.New("a process of the run could not be killed")
)

// StartError means that the command was not started. Code is the exit code that a shell would
// return: 127 if the command does not exist, 126 if it cannot be executed.
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
