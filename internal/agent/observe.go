package agent

// Observer gets reports on a job in the process that runs the job. For each job its methods are
// called one at a time, and must not block for long.
type Observer interface {
	// Preparing is called before the workspace is made.
	Preparing(j *Job)
	// Prepared is called when the workspace is ready. commit is the commit that was checked out.
	// dirty says that the source has uncommitted changes, which are not part of the workspace.
	Prepared(commit string, dirty bool)
	// Skipped is called for a step that finished in an earlier run and is not run again.
	Skipped(s StepResult)
	// Started is called when a step starts.
	Started(s Step)
	// Wrote is called with output of the step; b is valid only until Wrote returns.
	Wrote(stderr bool, b []byte)
	// Ended is called when the step has ended and its result is saved.
	Ended(s StepResult)
}

// sandboxObserver is an Observer with a further method: Held is called with a description, in one
// line, of the sandbox in which a step runs.
type sandboxObserver interface{ Held(by string) }

// silent is an Observer that ignores all calls.
type silent struct{}

func (silent) Preparing(*Job)        {}
func (silent) Prepared(string, bool) {}
func (silent) Skipped(StepResult)    {}
func (silent) Started(Step)          {}
func (silent) Wrote(bool, []byte)    {}
func (silent) Ended(StepResult)      {}
