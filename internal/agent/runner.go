package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/workflow"
)

// Runner runs jobs on this host.
type Runner struct {
	// Workspaces makes the workspaces.
	Workspaces *workspace.Manager
	// Observer gets reports on the jobs; may be nil.
	Observer Observer
	// Limits are the resource limits of a command. Seal says that the command may write only in its
	// workspace and sees all other files as read-only, if this machine supports that.
	Limits process.Limits
	Seal   bool
	// Walled says that a job can write only in its workspace. Probe determines the value.
	Walled bool
	// PrepareTimeout is the time limit for preparing a workspace, including all retries to reach
	// its repository; 0 means ten minutes.
	PrepareTimeout time.Duration
	// Walls are the parts of the sandbox in addition to Limits and Seal.
	Walls
	// Isolation is the kind of isolation that the last successful call of Probe found to work.
	Isolation process.Isolation
	// Env names the variables of this process that a job may have, in the form of [Setup.Env].
	// Repos are the repositories that a job may use. If Env is nil, the job belongs to the user of
	// this process and may use all variables and repositories.
	Env   []string
	Repos Repositories
}

// check returns an error for a job that cannot run or is not allowed on this worker.
func (r *Runner) check(j *Job) error {
	if err := j.Check(); err != nil || r.Env == nil {
		return err
	}
	for _, name := range j.Env {
		if !slices.Contains(r.Env, name) {
			return &belay.Error{
				Code: belay.CodeForbidden,
				Message: fmt.Sprintf("commands may not have the variable %s of this worker; see its setting agent.env",
					name),
			}
		}
	}
	if j.Repo == "" {
		return nil
	}
	return r.Repos.Check(j.Repo)
}

// writable returns the directories in which a command may write; nil for all directories.
func (r *Runner) writable(w *workspace.Workspace) []string {
	if !r.Seal {
		return nil
	}
	return []string{w.Dir, w.Home, w.Tmp}
}

// checkout is the result of the first step: the commit and the branch of the job. All runs of the
// job use the same commit and branch.
type checkout struct {
	Commit string `json:"commit"`
	Branch string `json:"branch,omitempty"`
}

// Run is the workflow function of a job.
func (r *Runner) Run(ctx context.Context, j Job) (Result, error) {
	if err := r.check(&j); err != nil {
		return Result{}, belay.Permanent(err)
	}
	b := &bench{job: &j, runner: r, observe: r.Observer}
	if r.Env != nil {
		b.allow, b.foreign = r.Repos.Check, j.Repo != r.Repos.Own
		b.secrets = func() (map[string]string, error) { return secrets(j.Env, os.Getenv) }
	}
	if b.observe == nil {
		b.observe = silent{}
	}
	defer b.remove(ctx)
	b.log = workflow.Output(ctx, OutputLog)
	result, err := b.runSteps(ctx)
	result.Notes = b.notes
	if cerr := b.log.Close(); err == nil && cerr != nil {
		err = cerr
	}
	return result, belay.WithOutput(err, result)
}

// runSteps runs the unfinished steps in order, until a step fails.
func (b *bench) runSteps(ctx context.Context) (Result, error) {
	var result Result
	if b.job.Repo != "" {
		c, err := workflow.Step(ctx, "checkout", b.checkout)
		if err != nil {
			return result, err
		}
		b.at, result.Commit = c, c.Commit
	}
	for i, s := range b.job.Steps {
		ran := false
		got, err := workflow.Step(ctx, "run", func(ctx context.Context) (StepResult, error) {
			ran = true
			return b.step(ctx, i, s)
		}, workflow.Key(s.Name))
		var failed *stepError
		if errors.As(err, &failed) {
			b.observe.Ended(failed.result)
			result.add(failed.result)
		}
		if err != nil {
			return result, err
		}
		if ran {
			b.observe.Ended(got)
		} else {
			b.observe.Skipped(got)
		}
		b.last = got.Changes
		result.add(got)
	}
	return result, nil
}

func (r *Result) add(s StepResult) {
	r.Stdout, s.Stdout = s.Stdout, nil
	r.Steps = append(r.Steps, s)
	r.ExitCode = s.ExitCode
	r.Changes = s.Changes
}

// stepError is the error of a step that failed or was stopped. It contains the result of the step,
// which becomes a part of the result of the job. That result is not saved as a durable step: if the
// job is retried or resumed, the step runs again.
type stepError struct {
	result StepResult
	err    error
}

func (e *stepError) Error() string { return e.err.Error() }

func (e *stepError) Unwrap() error { return e.err }

// failed returns the error of a step that ended with a failure. passing says that another attempt may succeed.
func (r StepResult) failed(passing bool) error {
	err := fmt.Errorf("step %q ended with exit code %d", r.Name, r.ExitCode)
	if r.Exceeded != "" {
		err = fmt.Errorf("%w: %s", err, r.Exceeded)
	}
	if r.TimedOut {
		err = fmt.Errorf("step %q ran out of time after %s", r.Name, r.Duration().Round(time.Millisecond))
	}
	if !passing {
		err = belay.Permanent(err)
	}
	return &stepError{r, err}
}

// stopped returns the error of a step that was stopped before its command ended by itself.
func (r StepResult) stopped(cause error) error {
	return &stepError{r, fmt.Errorf("step %q was stopped: %w", r.Name, cause)}
}
