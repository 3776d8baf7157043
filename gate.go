package belay

import (
	"strings"
	"time"
)

// GateID names a gate by its kind and its name, as in "limit:crawler". A gate decides
// whether an execution that is due may start a run. There are five kinds:
//
//   - limit: how many executions that name it may be under way ([Concurrency])
//   - rate: how many runs that name it may start in a time ([Rate])
//   - target: the circuit breaker of something that runs call, and its pause
//   - queue and workflow: the pause, limit and rate that an operator has set for all
//     executions of a queue or of a workflow
type GateID string

// The kinds of gates.
const (
	GateLimit    = "limit"
	GateRate     = "rate"
	GateTarget   = "target"
	GateQueue    = "queue"
	GateWorkflow = "workflow"
)

// Gate is the id of the gate of a kind with a name.
func Gate(kind, name string) GateID { return GateID(kind + ":" + name) }

// Kind is the part of the id before the first colon.
func (g GateID) Kind() string { kind, _, _ := strings.Cut(string(g), ":"); return kind }

// Name is the part of the id after the first colon.
func (g GateID) Name() string { _, name, _ := strings.Cut(string(g), ":"); return name }

// WhenFull says how a submission is treated whose limit is full.
type WhenFull string

// The ways of a submission at a full limit.
const (
	// WaitWhenFull keeps the execution until the limit has room. It is the default.
	WaitWhenFull WhenFull = "wait"
	// RejectWhenFull refuses the submission with CodeConflict while as many executions as
	// the limit allows have not ended.
	RejectWhenFull WhenFull = "reject"
	// ReplaceWhenFull cancels the oldest of the executions under the limit that have not
	// ended, as many as there are too many of, and waits for their end.
	ReplaceWhenFull WhenFull = "replace"
)

// MaxConcurrency is the most executions that a limit may allow.
const MaxConcurrency = 10_000

// Concurrency allows at most Max executions of the same Name to be under way. An
// execution takes its place when its first run starts, and keeps it through retries,
// waits and pauses until it has ended. An execution that is run again takes a new place.
type Concurrency struct {
	// Name is shared by all executions that the limit counts. At most MaxName bytes.
	Name string `json:"name"`
	// Max is between 1 and MaxConcurrency. While executions of the name have not ended,
	// another Max is refused with CodeConflict, unless an operator changes the limit.
	Max      int      `json:"max"`
	WhenFull WhenFull `json:"when_full,omitempty"`
}

// Rate allows runs of the same Name to start at an even pace: in any time d at most
// Max + Max·d/Per of them, by the store's clock.
type Rate struct {
	// Name is shared by all executions that the rate counts. At most MaxName bytes.
	Name string `json:"name"`
	// Max is between 1 and MaxRate, and Per between a millisecond and a day.
	Max int      `json:"max"`
	Per Duration `json:"per"`
}

// MaxRate is the most runs that a rate may let start within its time.
const MaxRate = 1_000_000

// Gates are the gates that an execution names itself. Each of its runs starts only while
// all of them are open.
type Gates struct {
	Concurrency *Concurrency `json:"concurrency,omitempty"`
	Rate        *Rate        `json:"rate,omitempty"`
	// Target is what the execution calls, as in "payments:charge". While the circuit
	// breaker of that target is open the execution waits, and nothing is charged to it.
	Target string `json:"target,omitempty"`
}

// IsZero reports whether no gate is named.
func (g Gates) IsZero() bool { return g == Gates{} }

// The least and the longest time of a rate.
const (
	MinRatePer = Duration(time.Millisecond)
	MaxRatePer = Duration(24 * time.Hour)
)

// GateAction is what an operator does to a gate.
type GateAction string

// The actions on gates.
const (
	GatePause       GateAction = "pause"
	GateResume      GateAction = "resume"
	GateSetLimit    GateAction = "limit"
	GateUnsetLimit  GateAction = "unlimit"
	GateSetRate     GateAction = "rate"
	GateUnsetRate   GateAction = "unrate"
	GateForceOpen   GateAction = "open"
	GateForceClosed GateAction = "close"
	GateAutomatic   GateAction = "auto"
)

// GateChange asks to change a gate.
type GateChange struct {
	Gate   GateID     `json:"gate"`
	Action GateAction `json:"action"`
	// Until ends a pause; zero means that an operator ends it.
	Until time.Time `json:"until,omitzero"`
	// Max is the limit, or how many runs may start within Per.
	Max int      `json:"max,omitempty"`
	Per Duration `json:"per,omitempty"`
	// Actor and Reason are kept in the audit. At most MaxName bytes.
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Op is the operation's id.
	Op OpID `json:"op,omitzero"`
}

// GateInfo is a gate as it stands.
type GateInfo struct {
	ID   GateID `json:"id"`
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Open says that the gate would let an execution through at this moment; Why says
	// why not, and Until when time alone opens it.
	Open  bool      `json:"open"`
	Why   string    `json:"why,omitempty"`
	Until time.Time `json:"until,omitzero"`
	// Pause, Limit, Rate and Breaker are its parts.
	Pause   *GatePaused  `json:"pause,omitempty"`
	Limit   *GateLimited `json:"limit,omitempty"`
	Rate    *GatePace    `json:"rate,omitempty"`
	Breaker *Breaker     `json:"breaker,omitempty"`
	// Held is how many of its places are taken, and Waiting how many executions are parked
	// at it, counted up to a hundred and one. Both are left out of lists.
	Held    int `json:"held,omitempty"`
	Waiting int `json:"waiting,omitempty"`
	// UpdatedAt and UpdatedBy are of the newest change by an operator or by the rules.
	UpdatedAt time.Time `json:"updated_at,omitzero"`
	UpdatedBy string    `json:"updated_by,omitempty"`
}

// GatePaused is a pause by an operator.
type GatePaused struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// GateLimited is a limit. Set, by an operator, counts before Named, by the executions.
type GateLimited struct {
	Max   int `json:"max"`
	Named int `json:"named,omitempty"`
	Set   int `json:"set,omitempty"`
}

// GatePace is a rate.
type GatePace struct {
	Max int      `json:"max"`
	Per Duration `json:"per"`
	// Set says that an operator has set it.
	Set bool `json:"set,omitempty"`
	// Tokens is how many runs may start at this moment.
	Tokens int `json:"tokens"`
}

// Breaker is the circuit breaker of a target.
type Breaker struct {
	// State is closed, open or half_open. Forced says that an operator has set it.
	State        string    `json:"state"`
	Forced       bool      `json:"forced,omitempty"`
	FailureCount int       `json:"failure_count"`
	SuccessCount int       `json:"success_count"`
	WindowStart  time.Time `json:"window_start,omitzero"`
	LastFailedAt time.Time `json:"last_failure_at,omitzero"`
	OpenedAt     time.Time `json:"opened_at,omitzero"`
	NextRetryAt  time.Time `json:"next_retry_at,omitzero"`
}

// GateFilter selects gates.
type GateFilter struct {
	// Kind is one of the kinds; empty for all.
	Kind string
	// Cursor is the Next of the part before, empty for the first part.
	Cursor string
	// Limit is how many there are at most: 100 if it is 0, and never more than 1,000.
	Limit int
}

// GatePage is a part of a list of gates, in the order of their ids.
type GatePage struct {
	Gates []GateInfo `json:"gates"`
	// Next is the cursor at which the list goes on, empty if this was all of it.
	Next string `json:"next,omitempty"`
}

// GateDetail is a gate with those that have its places and those that wait for one.
type GateDetail struct {
	GateInfo
	// Holders are executions that have a place, by id, and Line those that are parked at
	// the gate, the next to be let through first: a hundred of each at most.
	Holders []ExecutionID `json:"holders"`
	Line    []ExecutionID `json:"line"`
}
