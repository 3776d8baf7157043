package belay

import (
	"encoding/json"
	"time"
)

// Requires names a resource that each run of an execution uses, and the mode in which it uses it. Runs
// of the same mode share the resource; runs of other modes wait. Examples are a GPU whose modes are
// the models that it can hold, and a database whose modes are "work" and "maintenance".
type Requires struct {
	// Resource and Mode are names of at most MaxName bytes.
	Resource string `json:"resource"`
	Mode     string `json:"mode"`
	// Preemptible says that a run may be asked to yield when executions of another mode have waited
	// for the maximum wait. The run then gives the execution back at its next step or wait; no
	// attempt is counted, and the execution returns to the head of its lane.
	Preemptible bool `json:"preemptible,omitempty"`
}

// ResourceTerms are the terms that an operator sets for a resource.
type ResourceTerms struct {
	// MinResidency is how long the resource keeps a mode at least, so that modes do not change all
	// the time. If it is 0 and a workflow performs the swaps, it is DefaultMinResidency, or MaxWait if
	// that is shorter. It is at most MaxWait.
	MinResidency Duration `json:"min_residency,omitempty"`
	// MaxWait is how long executions of another mode wait while the present mode is in use. After that
	// time, and after the minimum residency, no further run of the present mode starts. If it is 0, it
	// is DefaultMaxWait.
	MaxWait Duration `json:"max_wait,omitempty"`
	// Swap performs the changes of the mode. If it is nil, the mode changes at once.
	Swap *ResourceSwapper `json:"swap,omitempty"`
}

// Text returns the terms as JSON.
func (t ResourceTerms) Text() string {
	b, err := json.Marshal(t)
	if err != nil {
		panic(err) // names and numbers can always be encoded
	}
	return string(b)
}

// The defaults and the limit of ResourceTerms.
const (
	DefaultMinResidency = Duration(10 * time.Second)
	DefaultMaxWait      = Duration(time.Minute)
	DefaultSwapTimeout  = Duration(10 * time.Minute)
	MaxResourceWait     = Duration(24 * time.Hour)
)

// ResourceSwapper names the workflow that changes the mode of a resource. Each change is an execution of this
// workflow with a SwapInput as its input, while no run uses the resource.
type ResourceSwapper struct {
	Workflow string `json:"workflow"`
	Version  string `json:"version,omitempty"`
	Queue    string `json:"queue,omitempty"`
	// Timeout ends a change that takes longer; DefaultSwapTimeout if it is 0.
	Timeout Duration `json:"timeout,omitempty"`
}

// SwapInput is the input of an execution that changes the mode of a resource. From is empty if the
// mode is unknown, because the resource had none or the last change failed.
type SwapInput struct {
	Resource string `json:"resource"`
	From     string `json:"from"`
	To       string `json:"to"`
	// Number is below 2^53 and grows with every change of the resource; it is also larger after a backup
	// was restored. The number and the fencing token of the run say together which of two owners is the
	// newer one: the one with the larger number or, in the same change, with the larger token. A system
	// that refuses older owners is never changed by an owner that has lost its lease.
	Number int64 `json:"number"`
}

// ResourceState is the state of a resource.
type ResourceState string

// The states of a resource.
const (
	// ResourceIdle: no run uses the resource.
	ResourceIdle ResourceState = "idle"
	// ResourceReady: runs of the present mode use the resource.
	ResourceReady ResourceState = "ready"
	// ResourceDraining: another mode is due; no run of the present mode starts any more.
	ResourceDraining ResourceState = "draining"
	// ResourceSwapping: an execution changes the mode.
	ResourceSwapping ResourceState = "swapping"
	// ResourceFailed: the last change of the mode failed; the mode is unknown.
	ResourceFailed ResourceState = "failed"
)

// GateResourceInfo is the present state of a resource.
type GateResourceInfo struct {
	State ResourceState `json:"state"`
	// Mode is the mode of the resource, empty if it has none; Since is when it got it.
	Mode  string    `json:"mode,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Wanted is the mode to which a draining resource will change.
	Wanted string `json:"wanted,omitempty"`
	// Swapping is the change of the mode that is under way.
	Swapping *ResourceSwap `json:"swapping,omitempty"`
	// Failures is the number of changes that failed since the last one that succeeded, and Error is
	// the error of the last of them. RetryAt is when the next change begins at the earliest.
	Failures int       `json:"failures,omitempty"`
	Error    string    `json:"error,omitempty"`
	RetryAt  time.Time `json:"retry_at,omitzero"`
	// Waiting are the modes for which executions wait, the longest waiting first; at most 100.
	Waiting []ModeWaiting `json:"waiting"`
	// ResourceTerms are the terms that apply. Set says whether an operator has set them; By and Reason
	// are the operator and the operator's reason.
	ResourceTerms
	Set    bool   `json:"set,omitempty"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// ResourceSwap is a change of the mode of a resource that is under way.
type ResourceSwap struct {
	Execution ExecutionID `json:"execution"`
	From      string      `json:"from,omitempty"`
	To        string      `json:"to"`
	Since     time.Time   `json:"since"`
}

// ModeWaiting is a mode for which executions wait, and since when: since the first of them waits, or
// since the mode got its last turn or could not be loaded, if that was later.
type ModeWaiting struct {
	Mode  string    `json:"mode"`
	Since time.Time `json:"since"`
	// Executions is their number, counted up to 101. Lists of gates leave it out.
	Executions int `json:"executions,omitempty"`
	// Failures is the number of changes to this mode that failed in a row. RetryAt is when the next of
	// them begins at the earliest, by the clock of the store; zero if the mode need not wait for its
	// next attempt.
	Failures int       `json:"failures,omitempty"`
	RetryAt  time.Time `json:"retry_at,omitzero"`
}
