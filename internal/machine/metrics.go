package machine

import (
	"time"

	"github.com/belaydev/belay"
)

// Measures are sums over the rows of one execution, which a store computes in the snapshot in which it
// reads the execution. Of each kind of row it counts the newest belay.MaxMeasured at most.
type Measures struct {
	// FirstRun is when the first run began; 0 if none has begun.
	FirstRun Time
	// Runs counts the runs that have begun, by outcome; the outcome of a run that goes on is 0. Running is
	// the sum of the durations of those that have ended.
	Runs    map[belay.Outcome]int
	Running time.Duration
	// Steps is the number of the names of steps of the present input that are not pruned.
	Steps int
	// Children counts the children by state. Cost is the sum of their costs. ChildRuns is the number of their
	// runs that have ended, and ChildRunning is the sum of the durations of these runs.
	Children     map[belay.State]int
	ChildCost    belay.Cost
	ChildRuns    int
	ChildRunning time.Duration
	// Truncated says that there are more rows of a kind than were counted.
	Truncated bool
}

// DetailView is the execution with its trigger payload, its newest action and its metrics, as the public
// API shows it.
func DetailView(r *Record) belay.ExecutionDetail {
	v := belay.ExecutionDetail{Execution: View(r)}
	if r.Spec != nil {
		v.TriggerPayload = r.Spec.TriggerPayload
	}
	if r.Act != nil {
		v.ModifiedBy, v.ModifiedAt = r.Act.Actor, r.Act.At.Time()
	}
	if r.Measures != nil {
		v.Metrics = metrics(r.Execution, r.Measures)
	}
	return v
}

func metrics(e *Execution, m *Measures) *belay.Metrics {
	v := &belay.Metrics{
		DurationMS: elapsed(e.CreatedAt, e.FinishedAt), WaitMS: elapsed(e.CreatedAt, m.FirstRun),
		RunningMS: millis(m.Running), Steps: m.Steps, Checkpoints: e.Checkpoints, CostTokens: e.Cost,
		Truncated: m.Truncated,
	}
	if e.State == belay.Running {
		v.RunningSince = e.RunAt.Time()
	}
	for outcome, n := range m.Runs {
		if v.Runs += n; outcome == 0 {
			continue
		}
		if v.Outcomes == nil {
			v.Outcomes = make(map[string]int)
		}
		v.Outcomes[outcome.String()] = n
	}
	if len(m.Children) == 0 {
		return v
	}
	c := &belay.ChildMetrics{
		States: make(map[string]int), Runs: m.ChildRuns, RunningMS: millis(m.ChildRunning), CostTokens: m.ChildCost,
	}
	for state, n := range m.Children {
		c.Total += n
		c.States[state.String()] = n
	}
	v.Children = c
	return v
}

// elapsed is the time from one moment to a later one in milliseconds, at least 1, because 0 means that
// one of the moments has not come. A clock that was set back can make the later moment the earlier one.
func elapsed(from, to Time) int64 {
	if from == 0 || to == 0 {
		return 0
	}
	return max(1, to.Sub(from).Milliseconds())
}

// millis is a sum of durations in milliseconds; a sum above zero is at least 1.
func millis(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return max(1, d.Milliseconds())
}
