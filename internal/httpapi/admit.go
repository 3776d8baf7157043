package httpapi

import (
	"context"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Admission judges a submission of one workflow before it is stored. It returns an error to refuse
// the submission. Otherwise it returns a function, which is called with the id of the stored
// execution, or with zero if no execution was stored.
type Admission func(ctx context.Context, s *belay.Submission) (stored func(belay.ExecutionID), err error)

// admitting is a Backend that passes each submission to its workflow's Admission, whatever the
// route: a single submission, a submission in a batch, a child, or an action that makes an old
// execution run again.
type admitting struct {
	belay.Backend
	by map[string]Admission
}

// admit judges a submission. If the Admission refuses the submission because the queue is full, but
// the submission is a repeat of a stored submission, admit lets it pass: the Backend answers it
// with the stored execution.
func (a *admitting) admit(ctx context.Context, s *belay.Submission) (func(belay.ExecutionID), error) {
	judge := a.by[s.Workflow]
	if judge == nil {
		return func(belay.ExecutionID) {}, nil
	}
	stored, err := judge(ctx, s)
	if err != nil && belay.CodeOf(err) == belay.CodeQueueFull && a.known(ctx, s) {
		return func(belay.ExecutionID) {}, nil
	}
	return stored, err
}

// known reports whether a submission repeats a stored one.
func (a *admitting) known(ctx context.Context, s *belay.Submission) bool {
	if s.ID != (belay.ExecutionID{}) {
		if _, err := a.Execution(ctx, s.ID); err == nil {
			return true
		}
	}
	if s.IdempotencyKey == "" {
		return false
	}
	page, err := a.Executions(ctx, belay.Filter{Workflow: s.Workflow, Key: s.IdempotencyKey, Children: true, Limit: 1})
	return err == nil && len(page.Executions) > 0
}

// Submit submits those submissions that their Admission lets pass.
func (a *admitting) Submit(ctx context.Context, list ...belay.Submission) ([]belay.Submitted, error) {
	answers := make([]belay.Submitted, len(list))
	stored := make([]func(belay.ExecutionID), len(list))
	var admitted []belay.Submission
	var which []int
	for i := range list {
		if stored[i], answers[i].Err = a.admit(ctx, &list[i]); answers[i].Err == nil {
			admitted, which = append(admitted, list[i]), append(which, i)
		}
	}
	if len(admitted) == 0 {
		return answers, nil
	}
	got, err := a.Backend.Submit(ctx, admitted...)
	for n, i := range which {
		var id belay.ExecutionID
		if err == nil {
			if answers[i] = got[n]; got[n].Err == nil {
				id = got[n].ID
			}
		}
		stored[i](id)
	}
	return answers, err
}

// Control carries out an action. An action that makes an old execution run again is judged like a
// new submission.
func (a *admitting) Control(ctx context.Context, c belay.Control) (belay.Execution, error) {
	switch c.Action {
	case belay.ActionRetry, belay.ActionRequeue, belay.ActionFork:
	default:
		return a.Backend.Control(ctx, c)
	}
	x, err := a.Execution(ctx, c.Execution)
	if err != nil || a.by[x.Workflow] == nil || c.Action != belay.ActionFork && !x.State.Terminal() {
		return a.Backend.Control(ctx, c) // the Backend refuses the action and says why
	}
	s := belay.Submission{
		ID: c.Fork, Workflow: x.Workflow, Input: x.Input, Queue: x.Queue, WorkerLabels: x.WorkerLabels,
	}
	switch {
	case len(c.Input) > 0:
		s.Input = c.Input
	case len(c.InputPatch) > 0:
		if s.Input, err = machine.MergePatch(x.Input, c.InputPatch); err != nil {
			return a.Backend.Control(ctx, c) // the Backend refuses the patch and says why
		}
	}
	stored, err := a.admit(ctx, &s)
	if err != nil {
		return belay.Execution{}, err
	}
	x, err = a.Backend.Control(ctx, c)
	if err != nil {
		x.ID = belay.ExecutionID{}
	}
	stored(x.ID)
	return x, err
}
