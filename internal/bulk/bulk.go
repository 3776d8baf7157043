// Package bulk has the parts of bulks (belay.Bulk) that servers and the executions of bulks share: the
// check of a request, the selection, and the dry run. Package runner carries a bulk out.
package bulk

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// refuse returns an error with CodeInvalid.
func refuse(format string, args ...any) error {
	return &belay.Error{Code: belay.CodeInvalid, Op: "bulk", Message: fmt.Sprintf(format, args...)}
}

// Letters reports whether the action acts on dead letters; otherwise it acts on executions.
func Letters(a belay.BulkAction) bool { return a == belay.BulkRequeue || a == belay.BulkDiscard }

// Check refuses an invalid bulk, and fills in the defaults of a valid one.
func Check(b *belay.Bulk) error {
	if !slices.Contains(belay.BulkActions, b.Action) {
		return refuse("there is no bulk action %q; there are requeue, discard, cancel and retry", b.Action)
	}
	if err := checkFilter(b); err != nil {
		return err
	}
	if err := checkInput(b); err != nil {
		return err
	}
	if len(b.Notes) > belay.MaxBulkNotes {
		return refuse("the notes have %d bytes; the limit is %d", len(b.Notes), belay.MaxBulkNotes)
	}
	for what, text := range map[string]string{"the notes": b.Notes, "the actor": b.Actor} {
		if err := machine.CheckName("bulk", what, text); err != nil {
			return err
		}
	}
	return checkPace(b)
}

// checkPace checks the rate, the canary and the largest share of failures.
func checkPace(b *belay.Bulk) error {
	if b.Rate == 0 {
		b.Rate = belay.DefaultBulkRate
	}
	if !(b.Rate >= 0.001 && b.Rate <= belay.MaxBulkRate) { // NaN, too
		return refuse("the rate is %v; it must be between 0.001 and %d actions per second", b.Rate,
			belay.MaxBulkRate)
	}
	if b.Canary == nil {
		b.Canary = belay.DefaultCanary()
	}
	if len(b.Canary) > belay.MaxBulkStages {
		return refuse("the canary has %d stages; the limit is %d", len(b.Canary), belay.MaxBulkStages)
	}
	for _, n := range b.Canary {
		if n < 1 || n > belay.MaxBulkStage {
			return refuse("a stage of the canary has %d executions; it must have between 1 and %d", n,
				belay.MaxBulkStage)
		}
	}
	if b.MaxFailures == nil {
		share := belay.DefaultBulkFailures
		b.MaxFailures = &share
	}
	if f := *b.MaxFailures; !(f >= 0 && f <= 1) || math.IsNaN(f) {
		return refuse("max_failures is %v; it must be between 0 and 1", f)
	}
	return nil
}

func checkInput(b *belay.Bulk) error {
	if len(b.Input)+len(b.InputPatch) == 0 {
		return nil
	}
	switch {
	case b.Action != belay.BulkRequeue:
		return refuse("an input or an input_patch is for requeue, not for %s", b.Action)
	case len(b.Input) > 0 && len(b.InputPatch) > 0:
		return refuse("give an input or an input_patch, not both")
	}
	if err := machine.CheckPayload("bulk", "the input", b.Input, belay.MaxPayload); err != nil {
		return err
	}
	return machine.CheckPayload("bulk", "the input_patch", b.InputPatch, belay.MaxPayload)
}

// checkFilter checks the filter, and fills in its states.
func checkFilter(b *belay.Bulk) error {
	f := &b.Filter
	if f.Workflow == belay.BulkWorkflow {
		return refuse("a bulk never acts on bulks; cancel one with: belay cancel ID")
	}
	if !f.Narrow() && !b.All {
		return refuse("the filter selects everything; name a workflow or another property, or set all")
	}
	if err := machine.CheckLetterFilter("bulk", letterFilter(f)); err != nil {
		return err
	}
	if Letters(b.Action) {
		if f.Queue != "" || len(f.Labels) > 0 || len(f.States) > 0 {
			return refuse("%s selects dead letters, which have no queue, labels and states", b.Action)
		}
		return nil
	}
	if f.Reason != "" || f.Class != 0 || f.Fingerprint != "" || f.Text != "" {
		return refuse("%s selects executions, which have no reason, class, fingerprint and text", b.Action)
	}
	if err := machine.CheckName("bulk", "the queue", f.Queue); err != nil {
		return err
	}
	if err := machine.CheckLabels("bulk", f.Labels); err != nil {
		return err
	}
	return checkStates(b)
}

func checkStates(b *belay.Bulk) error {
	states := &b.Filter.States
	allowed := belay.ActiveStates()
	if b.Action == belay.BulkRetry {
		allowed = []belay.State{belay.Failed, belay.Cancelled}
	}
	for _, s := range *states {
		if !slices.Contains(allowed, s) {
			return refuse("%s cannot act on executions in the state %s", b.Action, s)
		}
	}
	switch {
	case len(*states) > len(allowed):
		return refuse("the filter names a state twice")
	case len(*states) > 0:
	case b.Action == belay.BulkRetry:
		*states = []belay.State{belay.Failed}
	default:
		*states = allowed
	}
	return nil
}

// Starter has the calls with which Start starts a bulk.
type Starter interface {
	Source
	Submit(ctx context.Context, s ...belay.Submission) ([]belay.Submitted, error)
	Execution(ctx context.Context, id belay.ExecutionID) (belay.Execution, error)
}

// Start checks a bulk and submits its execution, or carries out its dry run.
func Start(ctx context.Context, to Starter, b belay.Bulk) (belay.BulkReply, error) {
	var reply belay.BulkReply
	if err := Check(&b); err != nil {
		return reply, err
	}
	if b.DryRun {
		preview, err := Preview(ctx, to, b)
		reply.Preview = &preview
		return reply, err
	}
	s, err := submission(b)
	if err != nil {
		return reply, err
	}
	out, err := to.Submit(ctx, s)
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		return reply, err
	}
	reply.Replayed = out[0].Replayed
	if reply.Replayed {
		belay.NoteReplay(ctx)
	}
	x, err := to.Execution(ctx, out[0].ID)
	reply.Execution = &x
	return reply, err
}

// submission returns the submission of a bulk's execution. Its policy sets every field for which the engine could have
// a default that ends the bulk early. A bulk that fails leaves no dead letter, because another bulk could select that
// dead letter.
func submission(b belay.Bulk) (belay.Submission, error) {
	s := belay.Submission{
		Workflow: belay.BulkWorkflow, Queue: belay.BulkWorkflow, Actor: b.Actor,
		Labels: map[string]string{"action": string(b.Action)},
		Policy: belay.Policy{
			MaxAttempts: 10, MaxLosses: 100, OnLost: belay.Requeue, OnNoWorker: belay.WaitForWorker,
			StartTimeout: belay.MaxTTL, NoDeadLetters: true,
		},
	}
	if b.Filter.Workflow != "" {
		s.Labels["workflow"] = b.Filter.Workflow
	}
	if !b.Op.IsZero() {
		s.IdempotencyKey = b.Op.String()
	}
	b.Op = belay.OpID{}
	input, err := json.Marshal(b)
	if err != nil {
		return s, err
	}
	s.Input = input
	return s, machine.CheckPayload("bulk", "the bulk", input, belay.MaxPayload)
}
