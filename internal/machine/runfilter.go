package machine

import "github.com/belaydev/belay"

// CheckRunFilter refuses a filter that contradicts itself.
func CheckRunFilter(op string, f belay.RunFilter) error {
	switch {
	case f.Running && f.Outcome != 0:
		return refuse(belay.CodeInvalid, op, "a run that has not ended has no outcome; give one of the two")
	case f.Outcome > belay.OutcomeCancelled:
		return refuse(belay.CodeInvalid, op, "there is no outcome %d", f.Outcome)
	case !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until):
		return refuse(belay.CodeInvalid, op, "since must be before until")
	}
	return checkName(op, "the workflow", f.Workflow, false)
}
