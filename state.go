package belay

import "fmt"

// State is the state of an execution.
//
//	pending → scheduled → running → waiting | paused → succeeded | failed | cancelled
type State uint8

// The states of an execution.
const (
	// Pending waits in a queue for a worker, from its due time on.
	Pending State = iota + 1
	// Scheduled is assigned to a named worker that has not accepted the execution yet.
	Scheduled
	// Running has an owner: a worker whose session has not expired.
	Running
	// Waiting uses no worker; it waits for a timer, a signal or a child.
	Waiting
	// Paused was stopped by an operator. A resume brings back the state from before the pause.
	Paused
	// Succeeded is final: the workflow returned.
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

// ActiveStates are the states of an execution that has not ended.
func ActiveStates() []State { return []State{Pending, Scheduled, Running, Waiting, Paused} }

// String is the state as one word.
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
	// OutcomePreempted: the owner gave the execution back for more urgent work.
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

// String is the outcome as one word.
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
	// ClassTransient may succeed at the next attempt and is retried.
	ClassTransient Class = iota + 1
	// ClassPermanent cannot be mended by a retry and is not retried.
	ClassPermanent
	// ClassTimeout exceeded a timeout of the policy.
	ClassTimeout
	// ClassCircuitOpen was caused by an open circuit breaker.
	ClassCircuitOpen
	// ClassLost lost its owner more often than the policy allows.
	ClassLost
)

var classNames = [...]string{"", "transient", "permanent", "timeout", "circuit_open", "lost"}

// String is the class as one word.
func (c Class) String() string { return name(classNames[:], int(c)) }

// MarshalText writes the class as one word.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the class from its word.
func (c *Class) UnmarshalText(b []byte) error {
	i, err := index("error class", classNames[:], string(b))
	*c = Class(i)
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
