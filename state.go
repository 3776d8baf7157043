package belay

import "fmt"

// State is where an execution stands.
//
//	pending → scheduled → running → waiting | paused → succeeded | failed | cancelled
type State uint8

// The states of an execution.
const (
	// Pending wants a worker, now or at its due time.
	Pending State = iota + 1
	// Scheduled is assigned to a named worker that has not accepted it yet.
	Scheduled
	// Running has a live owner: a worker whose session has not expired.
	Running
	// Waiting holds no worker; it waits for a timer, a signal or a child.
	Waiting
	// Paused was stopped by an operator and remembers the state it came from.
	Paused
	// Succeeded is final: the workflow returned.
	Succeeded
	// Failed is final until somebody retries it.
	Failed
	// Cancelled is final until somebody retries it.
	Cancelled
)

var stateNames = [...]string{
	"", "pending", "scheduled", "running", "waiting", "paused", "succeeded", "failed", "cancelled",
}

// Terminal reports whether nothing more happens to the execution by itself.
func (s State) Terminal() bool { return s >= Succeeded }

// ActiveStates are the states of an execution that has not ended.
func ActiveStates() []State { return []State{Pending, Scheduled, Running, Waiting, Paused} }

// String is the state's one word.
func (s State) String() string { return name(stateNames[:], int(s)) }

// MarshalText writes the state's one word.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the state's one word.
func (s *State) UnmarshalText(b []byte) error {
	i, err := index("state", stateNames[:], string(b))
	*s = State(i)
	return err
}

// Outcome is how a run ended.
type Outcome uint8

// The outcomes of a run. Only OutcomeFailed and OutcomeTimedOut spend the retry
// budget; OutcomeLost has a cap of its own.
const (
	// OutcomeSucceeded: the workflow returned its result.
	OutcomeSucceeded Outcome = iota + 1
	// OutcomeFailed: the workflow returned an error or panicked.
	OutcomeFailed
	// OutcomeTimedOut: the run or its silence lasted longer than its policy allows.
	OutcomeTimedOut
	// OutcomeLost: the owner's session ended under it.
	OutcomeLost
	// OutcomeSuspended: the workflow waits and gave its worker back.
	OutcomeSuspended
	// OutcomePreempted: the owner yielded to something more urgent.
	OutcomePreempted
	// OutcomeReleased: given back unfinished, nothing charged.
	OutcomeReleased
	// OutcomeCancelled: ended because the execution was cancelled.
	OutcomeCancelled
)

var outcomeNames = [...]string{
	"", "succeeded", "failed", "timed_out", "lost", "suspended", "preempted", "released", "cancelled",
}

// String is the outcome's one word.
func (o Outcome) String() string { return name(outcomeNames[:], int(o)) }

// MarshalText writes the outcome's one word.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads the outcome's one word.
func (o *Outcome) UnmarshalText(b []byte) error {
	i, err := index("outcome", outcomeNames[:], string(b))
	*o = Outcome(i)
	return err
}

// Class is the kind of an execution's error; it decides whether it is retried.
type Class uint8

// The classes of an error.
const (
	// ClassTransient may go away by itself and is retried.
	ClassTransient Class = iota + 1
	// ClassPermanent will not go away and is not retried.
	ClassPermanent
	// ClassTimeout lasted too long.
	ClassTimeout
	// ClassCircuitOpen was refused by an open circuit breaker.
	ClassCircuitOpen
	// ClassLost lost its owner too often, or may not lose it at all.
	ClassLost
)

var classNames = [...]string{"", "transient", "permanent", "timeout", "circuit_open", "lost"}

// String is the class's one word.
func (c Class) String() string { return name(classNames[:], int(c)) }

// MarshalText writes the class's one word.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the class's one word.
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
