package agent

// Observer sees a job as it happens, in the process that runs it. Its methods
// are called one at a time for one job and must not block for long.
type Observer interface {
	// Preparing: the workspace is being made.
	Preparing(j *Job)
	// Prepared: the workspace is ready at a commit. Dirty says that the source
	// has changes that are not committed, which are not part of it.
	Prepared(commit string, dirty bool)
	// Skipped: the step had finished before and is not run again.
	Skipped(s StepResult)
	// Started: the step runs now.
	Started(s Step)
	// Wrote: the step wrote b, which is valid until the call returns.
	Wrote(stderr bool, b []byte)
	// Ended: the step has ended and its result is saved.
	Ended(s StepResult)
}

// holder is an Observer that wants to know what holds the step's processes, in one
// line.
type holder interface{ Held(by string) }

// silent sees nothing.
type silent struct{}

func (silent) Preparing(*Job)        {}
func (silent) Prepared(string, bool) {}
func (silent) Skipped(StepResult)    {}
func (silent) Started(Step)          {}
func (silent) Wrote(bool, []byte)    {}
func (silent) Ended(StepResult)      {}
