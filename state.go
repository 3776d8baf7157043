package belay

import "fmt"

// State is the state of an execution.
//
//	pending → scheduled → running → waiting | paused → succeeded | failed | cancelled
type State uint8

// The states of an execution.
const (
	// Pending: the execution waits in a queue for a worker, from its due time on.
	Pending State = iota + 1
	// Scheduled: the execution is assigned to a named worker that has not accepted it yet.
	Scheduled
	// Running: the execution has an owner, a worker whose session has not expired.
	Running
	// Waiting: the execution waits for a timer, a signal or a child, and uses no worker.
	Waiting
	// Paused: an operator stopped the execution. A resume brings back the state from before the
	// pause.
	Paused
	// Succeeded is final: the workflow returned its result.
	Succeeded
	// Failed is final unless an operator retries the execution.
	Failed
	// Cancelled is final unless an operator retries the execution.
	Cancelled
)

var stateNames = [...]string{
	"", "pending", "scheduled", "running", "waiting", "paused", "succeeded", "failed", "cancelled",
}

// Terminal reports whether the execution has ended: nothing more happens to it unless an operator
// reopens it.
func (s State) Terminal() bool { return s >= Succeeded }

// ActiveStates returns the states of an execution that has not ended.
func ActiveStates() []State { return []State{Pending, Scheduled, Running, Waiting, Paused} }

// String returns the state as one word.
func (s State) String() string { return name(stateNames[:], int(s)) }

// MarshalText writes the state as one word.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the state from its word.
func (s *State) UnmarshalText(b []byte) error {
	i, err := index("state", stateNames[:], string(b))
	*s = State(i)
	return err
}

// Outcome is the way in which a run ended.
type Outcome uint8

// The outcomes of a run. Only OutcomeFailed and OutcomeTimedOut spend the retry budget; OutcomeLost
// has a limit of its own, Policy.MaxLosses.
const (
	// OutcomeSucceeded: the workflow returned its result.
	OutcomeSucceeded Outcome = iota + 1
	// OutcomeFailed: the workflow returned an error or panicked.
	OutcomeFailed
	// OutcomeTimedOut: the run, or its time without progress, was longer than its policy allows.
	OutcomeTimedOut
	// OutcomeLost: the owner's session ended during the run, because the worker crashed or was cut
	// off.
	OutcomeLost
	// OutcomeSuspended: the workflow waits for a timer, a signal or a child, without a worker.
	OutcomeSuspended
	// OutcomePreempted: the owner gave the execution back, because more urgent work needed its
	// slot.
	OutcomePreempted
	// OutcomeReleased: the owner gave the execution back unfinished; the retry budget is not
	// charged.
	OutcomeReleased
	// OutcomeCancelled: the run ended because the execution was cancelled.
	OutcomeCancelled
)

var outcomeNames = [...]string{
	"", "succeeded", "failed", "timed_out", "lost", "suspended", "preempted", "released", "cancelled",
}

// String returns the outcome as one word.
func (o Outcome) String() string { return name(outcomeNames[:], int(o)) }

// MarshalText writes the outcome as one word.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads the outcome from its word.
func (o *Outcome) UnmarshalText(b []byte) error {
	i, err := index("outcome", outcomeNames[:], string(b))
	*o = Outcome(i)
	return err
}

// Class is the kind of a failure. It decides whether the execution is retried.
type Class uint8

// The classes of a failure.
const (
	// ClassTransient: the next attempt may succeed, so the execution is retried.
	ClassTransient Class = iota + 1
	// ClassPermanent: a retry would fail again, so the execution is not retried.
	ClassPermanent
	// ClassTimeout: the run or the execution exceeded a timeout of the policy.
	ClassTimeout
	// ClassCircuitOpen: an open circuit breaker caused the failure.
	ClassCircuitOpen
	// ClassLost: the execution lost its owner more often than the policy allows.
	ClassLost
)

var classNames = [...]string{"", "transient", "permanent", "timeout", "circuit_open", "lost"}

// String returns the class as one word.
func (c Class) String() string { return name(classNames[:], int(c)) }

// MarshalText writes the class as one word.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the class from its word.
func (c *Class) UnmarshalText(b []byte) error {
	i, err := index("error class", classNames[:], string(b))
	*c = Class(i)
	return err
}

// FailedBy is the part of Belay that ended a run or an execution as failed. It is zero if the owner
// of the run reported the failure itself.
type FailedBy uint8

// The parts of Belay that end executions. The words for FailedByMonitor and
// FailedByDeadLetterHandler come from systems that push work to their workers.
const (
	// FailedByMonitor: a time limit of the policy was over.
	FailedByMonitor FailedBy = iota + 1
	// FailedByReaper: the session of the owner was lost.
	FailedByReaper
	// FailedByDispatcher: no worker that could take the execution was connected.
	FailedByDispatcher
	// FailedByDeadLetterHandler: the message about the execution expired in the queue of a worker.
	FailedByDeadLetterHandler
)

var failedByNames = [...]string{"", "execution_timeout_monitor", "reaper", "dispatcher", "dead_letter_handler"}

// String returns the part as one word.
func (f FailedBy) String() string { return name(failedByNames[:], int(f)) }

// MarshalText writes the part as one word.
func (f FailedBy) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads the part from its word.
func (f *FailedBy) UnmarshalText(b []byte) error {
	i, err := index("part of Belay that ends executions", failedByNames[:], string(b))
	*f = FailedBy(i)
	return err
}

func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("unknown(%d)", i)
}

func index(what string, names []string, s string) (int, error) {
	for i, n := range names {
		if n == s {
			return i, nil
		}
	}
	return 0, &Error{Code: CodeMalformed, Message: fmt.Sprintf("%q is no %s", s, what)}
}
