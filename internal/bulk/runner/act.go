package runner

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/workflow"
)

// act sends the action for the executions of the plan on which the bulk has not acted yet. It keeps to the rate of the
// bulk. When a second has passed and it has acted at least once, it returns even if some executions are left. acted
// says whether it has acted on any execution.
func (t *turn) act(ctx context.Context) (acted bool, err error) {
	until := time.Now().Add(saveEvery)
	for i := 0; i < len(t.state.Plan); {
		p := &t.state.Plan[i]
		if p.Reopened {
			i++
			continue
		}
		if time.Now().After(until) && acted {
			return true, nil
		}
		if err := t.pace(ctx); err != nil {
			return acted, err
		}
		if err := workflow.Guard(ctx); err != nil {
			return acted, err
		}
		acted = true
		if err := t.one(ctx, p); err != nil {
			return acted, t.unavailable(ctx, err)
		}
		if t.dirty = true; p.Reopened {
			i++
			continue
		}
		t.state.Plan = slices.Delete(t.state.Plan, i, i+1)
	}
	return acted, nil
}

// pace waits until the rate allows the next action.
func (t *turn) pace(ctx context.Context) error {
	now := time.Now()
	if d := t.next.Sub(now); d > 0 {
		if err := sleep(ctx, d); err != nil {
			return err
		}
		now = t.next
	}
	t.next = now.Add(time.Duration(float64(time.Second) / t.bulk.Rate))
	return asked(ctx)
}

// one acts on one execution. It counts the result, or notes that the bulk waits for the execution's
// end. An error says that the result is not known.
func (t *turn) one(ctx context.Context, p *planned) error {
	err := t.send(ctx, p)
	switch code := belay.CodeOf(err); {
	case err == nil && (t.bulk.Action == belay.BulkDiscard || t.bulk.Action == belay.BulkCancel):
		t.state.Succeeded++
	case err == nil:
		p.Reopened = true
	case code == belay.CodeConflict, code == belay.CodeNotFound, code == belay.CodeLeaseHeld:
		t.state.Conflicts++
	case code == belay.CodeInvalid, code == belay.CodeMalformed, code == belay.CodePayloadTooLarge,
		code == belay.CodeForbidden, code == belay.CodeIdempotencyMismatch:
		t.failed(p.Execution, err.Error())
	default:
		return err
	}
	return nil
}

// send sends the action. Its operation id depends only on the bulk, the execution and its generation.
func (t *turn) send(ctx context.Context, p *planned) error {
	op := belay.OpID(belay.ChildID(t.id, p.Generation, "bulk "+p.Execution.String()))
	notes := "bulk " + t.id.String()
	if t.bulk.Notes != "" {
		notes = t.bulk.Notes + " (" + notes + ")"
	}
	if t.bulk.Action == belay.BulkDiscard {
		_, err := t.ChangeDeadLetter(ctx, belay.DeadLetterChange{
			Execution: p.Execution, Generation: p.Generation, Action: belay.DeadLetterDiscard, Actor: t.bulk.Actor,
			Note: notes, Op: op,
		})
		return err
	}
	c := belay.Control{
		Execution: p.Execution, Action: belay.ActionRetry, Actor: t.bulk.Actor, Reason: notes, Op: op,
		Generation: p.Generation, Input: t.bulk.Input, InputPatch: t.bulk.InputPatch,
	}
	switch {
	case t.bulk.Action == belay.BulkCancel:
		c.Action, c.Generation = belay.ActionCancel, 0
	case len(c.Input)+len(c.InputPatch) > 0:
		c.Action = belay.ActionRequeue
	}
	_, err := t.Control(ctx, c)
	return err
}

// observe reads reopened executions, and counts those that have ended.
func (t *turn) observe(ctx context.Context) error {
	for range min(observed, len(t.state.Plan)) {
		if t.seen >= len(t.state.Plan) {
			t.seen = 0
		}
		if t.seen >= len(t.state.Plan) {
			return nil
		}
		p := t.state.Plan[t.seen]
		if !p.Reopened {
			t.seen++
			continue
		}
		x, err := t.Execution(ctx, p.Execution)
		if err != nil && belay.CodeOf(err) != belay.CodeNotFound {
			return t.unavailable(ctx, err)
		}
		if !t.over(p, &x, err != nil) {
			t.seen++
			continue
		}
		t.state.Plan = slices.Delete(t.state.Plan, t.seen, t.seen+1)
		t.dirty = true
	}
	return nil
}

// over reports whether a reopened execution has ended. If it has, over counts it as succeeded, failed or a conflict.
func (t *turn) over(p planned, x *belay.Execution, gone bool) bool {
	switch {
	case gone:
		t.state.Conflicts++ // the execution has ended and was then deleted
	case x.Generation > p.Generation+1:
		t.failed(p.Execution, fmt.Sprintf("generation %d did not succeed; it was reopened since", p.Generation+1))
	case !x.State.Terminal():
		return false
	case x.State == belay.Succeeded:
		t.state.Succeeded++
	case x.Error != nil:
		t.failed(p.Execution, x.Error.Message)
	default:
		t.failed(p.Execution, "it was "+x.State.String())
	}
	return true
}

// failed counts a failure.
func (t *turn) failed(id belay.ExecutionID, why string) {
	t.state.Failed++
	if len(t.state.Failures) >= failures {
		return
	}
	if len(why) > message {
		cut := message
		for !utf8.RuneStart(why[cut]) {
			cut--
		}
		why = why[:cut] + "…"
	}
	t.state.Failures = append(t.state.Failures, belay.BulkFailure{Execution: id, Message: why})
}

// await waits until the first reopened execution of the plan has ended, for a second at most.
func (t *turn) await(ctx context.Context) error {
	if t.dirty {
		if err := t.save(ctx); err != nil {
			return err
		}
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-workflow.Preempted(ctx):
			stop()
		case <-waiting.Done():
		}
	}()
	began := time.Now()
	_, err := t.Await(waiting, t.state.Plan[0].Execution, time.Second)
	switch {
	case asked(ctx) != nil:
		return asked(ctx)
	case err != nil && belay.CodeOf(err) != belay.CodeNotFound:
		return t.unavailable(ctx, err)
	case time.Since(began) < saveEvery/20 && len(t.state.Plan) > observed:
		// The execution has ended, but observe may read other executions next, and await would then
		// be called for the same execution again and again.
		return sleep(ctx, saveEvery/20)
	}
	return nil
}
