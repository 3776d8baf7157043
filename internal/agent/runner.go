package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/workflow"
)

// Runner runs jobs on this host.
type Runner struct {
	// Workspaces makes the checkouts.
	Workspaces *workspace.Manager
	// Observer sees the jobs as they happen; nil for nobody.
	Observer Observer
}

// checkout is what the first step of a job saves: the commit that the job works
// on, wherever and however often it is resumed.
type checkout struct {
	Commit string `json:"commit"`
}

// Run is the workflow function of a job.
func (r *Runner) Run(ctx context.Context, j Job) (Result, error) {
	if err := j.Check(); err != nil {
		return Result{}, belay.Permanent(err)
	}
	b := &bench{job: &j, runner: r, observe: r.Observer}
	if b.observe == nil {
		b.observe = silent{}
	}
	defer b.remove(ctx)
	b.log = workflow.Output(ctx, OutputLog)
	result, err := b.all(ctx)
	if cerr := b.log.Close(); err == nil && cerr != nil {
		err = cerr
	}
	return result, belay.WithOutput(err, result)
}

// all runs the steps that have not finished, in order, until one fails.
func (b *bench) all(ctx context.Context) (Result, error) {
	var result Result
	if b.job.Repo != "" {
		c, err := workflow.Step(ctx, "checkout", b.checkout)
		if err != nil {
			return result, err
		}
		b.commit, result.Commit = c.Commit, c.Commit
	}
	for i, s := range b.job.Steps {
		ran := false
		got, err := workflow.Step(ctx, "run", func(ctx context.Context) (StepResult, error) {
			ran = true
			return b.step(ctx, i, s)
		}, workflow.Key(s.Name))
		if err != nil {
			var stopped *stoppedError
			if errors.As(err, &stopped) { // what it came to until then
				result.add(stopped.result)
			}
			return result, err
		}
		if ran {
			b.observe.Ended(got)
		} else {
			b.observe.Skipped(got)
		}
		b.last = got.Changes
		result.add(got)
		if got.ExitCode != 0 {
			return result, belay.Permanent(got.failure())
		}
	}
	return result, nil
}

func (r *Result) add(s StepResult) {
	r.Steps = append(r.Steps, s)
	r.ExitCode = s.ExitCode
	r.Changes = s.Changes
}

// failure says how a step failed.
func (r StepResult) failure() error {
	if r.TimedOut {
		return fmt.Errorf("step %q ran out of time after %s", r.Name, r.Duration().Round(time.Millisecond))
	}
	return fmt.Errorf("step %q ended with exit code %d", r.Name, r.ExitCode)
}

// stoppedError is a step that was stopped before its end. It is not saved: the
// step runs again if the job goes on.
type stoppedError struct {
	result StepResult
	err    error
}

func (e *stoppedError) Error() string {
	return fmt.Sprintf("step %q was stopped: %v", e.result.Name, e.err)
}

func (e *stoppedError) Unwrap() error { return e.err }
