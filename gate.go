package belay

import (
	"strings"
	"time"
)

// GateID names a gate by its kind and its name, as in "limit:crawler". A gate decides whether an
// execution that is due may start a run. There are five kinds of gates:
//
//   - limit: bounds how many of the executions that name the limit are in progress at the same time
//     ([Concurrency])
//   - rate: bounds how often runs of the executions that name the rate start ([Rate])
//   - target: stops runs while the circuit breaker of a system that they call is open, or while an
//     operator has paused the target
//   - queue and workflow: apply the pause, the limit and the rate that an operator has set to all
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

// Gate returns the id of the gate that has this kind and this name.
func Gate(kind, name string) GateID { return GateID(kind + ":" + name) }

// Kind returns the kind of the gate: the part of the id before the first colon.
func (g GateID) Kind() string { kind, _, _ := strings.Cut(string(g), ":"); return kind }

// Name returns the name of the gate: the part of the id after the first colon.
func (g GateID) Name() string { _, name, _ := strings.Cut(string(g), ":"); return name }

// WhenFull says how the Backend treats a submission that names a full limit: a limit under which as
// many executions as it allows have been submitted and have not ended.
type WhenFull string

// The values of WhenFull. The empty string means WaitWhenFull.
const (
	// WaitWhenFull accepts the submission. The execution waits until the limit has room.
	WaitWhenFull WhenFull = "wait"
	// RejectWhenFull refuses the submission with CodeConflict.
	RejectWhenFull WhenFull = "reject"
	// ReplaceWhenFull accepts the submission and cancels the oldest executions under the limit that
	// have not ended, as many as exceed the limit with the new execution. The new execution waits
	// until the cancelled executions have ended.
	ReplaceWhenFull WhenFull = "replace"
)

// MaxConcurrency is the largest value of Concurrency.Max.
const MaxConcurrency = 10_000

// Concurrency is a limit: at most Max executions that name the same limit are in progress at the
// same time. An execution occupies a place of the limit from the start of its first run until its
// end, retries, waits and pauses included. If an operator reopens it, it needs a place again.
type Concurrency struct {
	// Name is the name of the limit, at most MaxName bytes. The limit counts all executions that
	// have this Name.
	Name string `json:"name"`
	// Max is between 1 and MaxConcurrency. While an execution of the same Name has not ended, the
	// Backend refuses a submission with another Max with CodeConflict, unless an operator has set
	// the limit.
	Max      int      `json:"max"`
	WhenFull WhenFull `json:"when_full,omitempty"`
}

// Rate bounds how often runs of the executions that name the same rate start: within any period of
// the length d, at most Max + Max·d/Per of these runs start, by the store's clock.
type Rate struct {
	// Name is the name of the rate, at most MaxName bytes. The rate counts the runs of all executions
	// that have this Name.
	Name string `json:"name"`
	// Max is between 1 and MaxRate, and Per is between MinRatePer and MaxRatePer.
	Max int      `json:"max"`
	Per Duration `json:"per"`
}

// MaxRate is the largest value of Rate.Max.
const MaxRate = 1_000_000

// Gates are the gates that a submission names for its execution. A run of the execution starts only
// if all of these gates are open.
type Gates struct {
	Concurrency *Concurrency `json:"concurrency,omitempty"`
	Rate        *Rate        `json:"rate,omitempty"`
	// Target names the system that the execution calls, as in "payments:charge". While the circuit
	// breaker of that target is open, the execution waits, and its retry budget is not charged.
	Target string `json:"target,omitempty"`
}

// IsZero reports whether the submission names no gate.
func (g Gates) IsZero() bool { return g == Gates{} }

// The smallest and the largest value of Rate.Per.
const (
	MinRatePer = Duration(time.Millisecond)
	MaxRatePer = Duration(24 * time.Hour)
)

// GateAction is an operator's action on a gate.
type GateAction string

// The actions of operators on gates.
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

// GateChange requests an action on a gate.
type GateChange struct {
	Gate   GateID     `json:"gate"`
	Action GateAction `json:"action"`
	// Until is the time at which a pause ends. If it is zero, the pause lasts until an operator ends
	// it.
	Until time.Time `json:"until,omitzero"`
	// Max is the new limit, or, together with Per, the new rate (see Rate).
	Max int      `json:"max,omitempty"`
	Per Duration `json:"per,omitempty"`
	// Actor and Reason are recorded in the audit log. Each has at most MaxName bytes.
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Op identifies the operation: a repeated request with the same Op changes nothing more.
	Op OpID `json:"op,omitzero"`
}

// GateInfo is a gate, read from the store at one moment.
type GateInfo struct {
	ID   GateID `json:"id"`
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Open reports whether the gate would let an execution through now. If it would not, Why is the
	// reason, and Until is the time at which the gate opens by itself, or zero if it will not.
	Open  bool      `json:"open"`
	Why   string    `json:"why,omitempty"`
	Until time.Time `json:"until,omitzero"`
	// Pause, Limit, Rate and Breaker are the conditions of the gate; nil if it has no such condition.
	Pause   *GatePaused  `json:"pause,omitempty"`
	Limit   *GateLimited `json:"limit,omitempty"`
	Rate    *GatePace    `json:"rate,omitempty"`
	Breaker *Breaker     `json:"breaker,omitempty"`
	// Held is the number of executions that occupy a place of the gate. Waiting is the number of
	// executions that wait at the gate, or 101 if more than 100 wait. Lists leave out both.
	Held    int `json:"held,omitempty"`
	Waiting int `json:"waiting,omitempty"`
	// UpdatedAt is the time of the newest change of the gate by an operator or by the engine.
	// UpdatedBy is the operator who changed the gate last.
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

// GateLimited is the limit of a gate. Named is the limit that submissions name, and Set is the limit
// that an operator has set, or 0. Max is the limit in force: Set, or Named if Set is 0.
type GateLimited struct {
	Max   int `json:"max"`
	Named int `json:"named,omitempty"`
	Set   int `json:"set,omitempty"`
}

// GatePace is the rate of a gate: Max and Per of the Rate in force.
type GatePace struct {
	Max int      `json:"max"`
	Per Duration `json:"per"`
	// Set says that an operator has set the rate. Otherwise submissions have named it.
	Set bool `json:"set,omitempty"`
	// Tokens is the number of runs that may start now.
	Tokens int `json:"tokens"`
}

// Breaker is the circuit breaker of a target.
type Breaker struct {
	// State is closed (runs start), open (no run starts) or half_open (a few runs start, as probes).
	// Forced says that an operator has set State.
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
	// Kind selects the gates of one kind. If it is empty, gates of every kind are listed.
	Kind string
	// Cursor is the Next of the page before, or empty for the first page.
	Cursor string
	// Limit is the largest number of gates in the page, at most 1,000; 0 means 100.
	Limit int
}

// GatePage is one page of a list of gates, in the order of their ids.
type GatePage struct {
	Gates []GateInfo `json:"gates"`
	// Next is the cursor of the next page. It is empty at the end of the list.
	Next string `json:"next,omitempty"`
}

// GateDetail is a gate with the executions that occupy its places and the executions that wait at it.
type GateDetail struct {
	GateInfo
	// Holders has at most 100 executions that occupy a place of the gate, in the order of their ids.
	// Line has at most 100 executions that wait at the gate, in the order in which the gate will let
	// them through.
	Holders []ExecutionID `json:"holders"`
	Line    []ExecutionID `json:"line"`
}
