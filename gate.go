package belay

import (
	"strings"
	"time"
)

// GateID is the id of a gate: its kind, a colon and its name, as in "limit:crawler". A gate decides
// whether an execution that is due may start a run. There are six kinds:
//
//   - limit: limits how many of the executions that name it are in progress ([Concurrency])
//   - rate: limits how fast the runs of the executions that name it start ([Rate])
//   - target: stops runs while the circuit breaker of an external service that they call is open, or
//     while an operator has paused that service
//   - queue and workflow: apply the pause, the limit and the rate that an operator has set to all
//     executions of a queue or of a workflow
//   - resource: lets the runs of one mode share a resource, and excludes the runs of its other modes
//     ([Requires])
type GateID string

// The kinds of gates.
const (
	GateLimit    = "limit"
	GateRate     = "rate"
	GateTarget   = "target"
	GateQueue    = "queue"
	GateWorkflow = "workflow"
	GateResource = "resource"
)

// Gate returns the id of the gate with the given kind and name.
func Gate(kind, name string) GateID { return GateID(kind + ":" + name) }

// Kind returns the part of the id before the first colon.
func (g GateID) Kind() string { kind, _, _ := strings.Cut(string(g), ":"); return kind }

// Name returns the part of the id after the first colon.
func (g GateID) Name() string { _, name, _ := strings.Cut(string(g), ":"); return name }

// WhenFull says how the engine treats a submission whose limit is full.
type WhenFull string

// The values of WhenFull.
const (
	// WaitWhenFull accepts the submission; the execution waits until the limit has room. It is the
	// default.
	WaitWhenFull WhenFull = "wait"
	// RejectWhenFull refuses the submission with CodeConflict if the executions of the limit that
	// have not ended are as many as the limit allows; executions that wait at the limit count too.
	RejectWhenFull WhenFull = "reject"
	// ReplaceWhenFull accepts the submission and cancels the oldest executions of the limit: as
	// many as necessary so that, with the new execution, the limit is not exceeded, but at most 100.
	// The new execution waits until the cancelled executions have ended. Over HTTP, the API key of
	// such a request also needs ScopeOperate.
	ReplaceWhenFull WhenFull = "replace"
)

// MaxConcurrency is the largest Max of a [Concurrency].
const MaxConcurrency = 10_000

// Concurrency allows at most Max executions of the same Name to be under way. An execution takes a
// place when its first run starts, and keeps the place through retries, waits and pauses until the
// execution has ended. An execution that is reopened takes a new place.
type Concurrency struct {
	// Name is the name of the limit. The limit counts all executions with this name. The name has
	// at most MaxName bytes.
	Name string `json:"name"`
	// Max is between 1 and MaxConcurrency. The first submission with a Name sets the limit. A later
	// submission with another Max is refused with CodeConflict, unless an operator has set the limit:
	// then the operator's limit applies, whatever the Max of a submission is.
	Max      int      `json:"max"`
	WhenFull WhenFull `json:"when_full,omitempty"`
}

// Rate limits how fast the runs of executions with the same Name start: within any period of the
// length d, at most Max + Max·d/Per runs start, by the store's clock. The first submission with a Name
// sets the rate. A later submission with another Max or Per is refused with CodeConflict, unless an
// operator has set the rate: then the operator's rate applies, whatever a submission names.
type Rate struct {
	// Name is the name of the rate. The rate counts the runs of all executions with this name. The
	// name has at most MaxName bytes.
	Name string `json:"name"`
	// Max is between 1 and MaxRate, and Per is between MinRatePer and MaxRatePer.
	Max int      `json:"max"`
	Per Duration `json:"per"`
}

// MaxRate is the largest Max of a [Rate].
const MaxRate = 1_000_000

// Gates are the gates that the submission of an execution names. Each run of the execution starts
// only when all these gates are open.
type Gates struct {
	Concurrency *Concurrency `json:"concurrency,omitempty"`
	Rate        *Rate        `json:"rate,omitempty"`
	// Target is the name of the external service that the execution calls, such as
	// "payments:charge". While the circuit breaker of the target is open, the execution waits, and
	// no attempt is counted.
	Target string `json:"target,omitempty"`
	// Requires is the resource that the runs of the execution use, and its mode.
	Requires *Requires `json:"requires,omitempty"`
	// Swap is the resource whose mode the execution changes. Only the Backend sets it.
	Swap string `json:"swap,omitempty"`
}

// IsZero reports whether g names no gate.
func (g Gates) IsZero() bool { return g == Gates{} }

// The least and the largest Per of a [Rate].
const (
	MinRatePer = Duration(time.Millisecond)
	MaxRatePer = Duration(24 * time.Hour)
)

// GateAction is an action of an operator on a gate.
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

	GateSetResource   GateAction = "resource"
	GateUnsetResource GateAction = "unresource"
)

// GateChange is an operator's request to change a gate.
type GateChange struct {
	Gate   GateID     `json:"gate"`
	Action GateAction `json:"action"`
	// Until is when the pause ends. If it is zero, the pause lasts until an operator ends it.
	Until time.Time `json:"until,omitzero"`
	// Max is the number of places for [GateSetLimit]. For [GateSetRate], Max and Per have the meaning
	// of the fields of [Rate].
	Max int      `json:"max,omitempty"`
	Per Duration `json:"per,omitempty"`
	// Resource has the terms for [GateSetResource].
	Resource *ResourceTerms `json:"resource,omitempty"`
	// The audit log keeps Actor and Reason. Each has at most MaxName bytes.
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Op identifies the operation: a repeated request with the same Op changes nothing. A gate
	// remembers the Ops of its last eight changes only.
	Op OpID `json:"op,omitzero"`
}

// GateInfo is the present state of a gate.
type GateInfo struct {
	ID   GateID `json:"id"`
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Open says whether the gate would let an execution through at this moment. If it would not,
	// Why is the reason, and Until is the time at which the gate opens by itself. Until is zero if
	// the gate does not open by itself.
	Open  bool      `json:"open"`
	Why   string    `json:"why,omitempty"`
	Until time.Time `json:"until,omitzero"`
	// Pause, Limit, Rate, Breaker and Resource are the parts of the gate; each is nil if it is not set.
	Pause   *GatePaused  `json:"pause,omitempty"`
	Limit   *GateLimited `json:"limit,omitempty"`
	Rate    *GatePace    `json:"rate,omitempty"`
	Breaker *Breaker     `json:"breaker,omitempty"`
	// Resource is the state of a resource, nil in gates of other kinds.
	Resource *GateResourceInfo `json:"resource,omitempty"`
	// Held is the number of the gate's places that are taken, and Waiting the number of executions
	// that wait at the gate, counted up to 101. Lists of gates leave out Held and Waiting.
	Held    int `json:"held,omitempty"`
	Waiting int `json:"waiting,omitempty"`
	// UpdatedAt is the time of the newest change, by an operator or by the engine. UpdatedBy names
	// the operator of the newest change that an operator made; it is empty if that change named no
	// operator.
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

// GateLimited is a limit. Named is the limit that the executions name, Set is the limit that an
// operator has set, and Max is the limit that applies: Set if an operator has set a limit,
// otherwise Named. Since, By and Reason say since when the limit has been Set, by which operator and
// why; Since is a time of the store's clock.
type GateLimited struct {
	Max    int       `json:"max"`
	Named  int       `json:"named,omitempty"`
	Set    int       `json:"set,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// GatePace is the rate of a gate. Max and Per have the meaning of the fields of [Rate].
type GatePace struct {
	Max int      `json:"max"`
	Per Duration `json:"per"`
	// Set says whether an operator has set the rate. Since, By and Reason say since when it has been
	// set, by which operator and why; Since is a time of the store's clock.
	Set    bool      `json:"set,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	// Tokens is the number of further runs that may start at this moment. It does not count the runs of
	// executions that the rate has already let through.
	Tokens int `json:"tokens"`
}

// Breaker is the circuit breaker of a target.
type Breaker struct {
	// State is closed, open or half_open. Forced says whether an operator has set State; By and
	// Reason are the operator and the operator's reason.
	State        string    `json:"state"`
	Forced       bool      `json:"forced,omitempty"`
	By           string    `json:"by,omitempty"`
	Reason       string    `json:"reason,omitempty"`
	FailureCount int       `json:"failure_count"`
	SuccessCount int       `json:"success_count"`
	WindowStart  time.Time `json:"window_start,omitzero"`
	LastFailedAt time.Time `json:"last_failure_at,omitzero"`
	OpenedAt     time.Time `json:"opened_at,omitzero"`
	NextRetryAt  time.Time `json:"next_retry_at,omitzero"`
	// Probes is the number of running calls that the breaker has let through as probes, to find out
	// whether the target works again.
	Probes int `json:"probes,omitempty"`
}

// TargetCall is the beginning or the end of a call that a step makes to a target, an external
// service that has a circuit breaker.
type TargetCall struct {
	// Lease is the lease of the run.
	Lease  Lease
	Target string
	// Step distinguishes calls that the run makes at the same time.
	Step string
	// Outcome is 0 at the beginning of the call. At its end it is OutcomeSucceeded, OutcomeFailed if
	// the target is to blame, or OutcomeReleased if the call failed and the target is not to blame.
	// The end of a probe must be reported, and the end of another call only if it is OutcomeFailed.
	Outcome Outcome
}

// TargetAnswer says whether a step may call a target.
type TargetAnswer struct {
	// Open says that the step may call the target now. Probe says that the breaker lets this call
	// through to find out whether the target works again; if the end of the call is not reported within
	// 30 seconds, the call counts as failed.
	Open  bool
	Probe bool
	// If the target must not be called now, Why is the reason, and RetryAfter is the time until the
	// circuit breaker lets calls through again without an operator. RetryAfter is 0 if this time is not
	// known.
	Why        string
	RetryAfter time.Duration
}

// GateFilter selects gates.
type GateFilter struct {
	// Kind is one of the kinds of gates; empty for all kinds.
	Kind string
	// Cursor is the Next of the previous page, empty for the first page.
	Cursor string
	// Limit is the largest number of gates on the page: 100 if it is 0, and never more than 1,000.
	Limit int
}

// GatePage is one page of a list of gates, in the order of their ids.
type GatePage struct {
	Gates []GateInfo `json:"gates"`
	// Next is the Cursor for the next page, empty on the last page.
	Next string `json:"next,omitempty"`
}

// GateDetail is a gate with the executions that have a place in it and those that wait at it.
type GateDetail struct {
	GateInfo
	// Holders are executions that have a place in the gate, ordered by id. Line are executions that
	// wait at the gate, in the order in which the gate lets them through. Each list has at most
	// 100.
	Holders []ExecutionID `json:"holders"`
	Line    []ExecutionID `json:"line"`
}
