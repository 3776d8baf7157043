package belay

import "time"

// Limits of the steps that a worker reports. The Backend cuts longer texts and lists, and drops control
// characters, because a report about a step is no reason to refuse a heartbeat or a result.
const (
	// MaxReports is the largest number of steps in a Save or a Settlement; the last ones count.
	MaxReports = 8
	// MaxReported is the largest number of bytes of the error in a StepReport.
	MaxReported = 200
	// MaxCurrent is the largest number of current steps of one run, and MaxCurrentName is the largest
	// number of bytes of their names; a longer name ends with "…". All current steps of a worker
	// together have at most MaxCurrentBytes as JSON; the steps after them are not kept.
	MaxCurrent      = 8
	MaxCurrentName  = 64
	MaxCurrentBytes = 16 << 10
)

// StepReport is what a worker reports about a step or a wait: one that is under way, a try that has failed, or
// one that has ended and has no checkpoint of its own, such as a sleep. The worker measures each time with its own
// clock, so that the clocks of worker and store need not agree.
type StepReport struct {
	Kind CheckpointKind
	// Name is the name of the step with its branch and key, as in "branch/step[key]".
	Name string
	// Attempt is the number of the try within its run, from 1; 0 if the step has no tries.
	Attempt int
	// Ago is how long ago the try began.
	Ago time.Duration
	// Over says that the try has ended, and Took is how long it took.
	Over bool
	Took time.Duration
	// Error is the error with which the try has ended.
	Error string
}

// StepRecord is a step or a wait of a run with its times by the store's clock.
type StepRecord struct {
	Kind CheckpointKind `json:"kind"`
	Name string         `json:"name"`
	// Attempt is the number of the try within its run, from 1. It is 0 if the worker did not report it.
	Attempt int       `json:"attempt,omitempty"`
	BeganAt time.Time `json:"began_at"`
	// Over says that the try has ended, and DurationMS is how long it took, in milliseconds, rounded up. If
	// Over is false, the try was under way when the worker reported it.
	Over       bool   `json:"over,omitempty"`
	DurationMS int64  `json:"duration_ms,omitempty"`
	Error      string `json:"error,omitempty"`
}
