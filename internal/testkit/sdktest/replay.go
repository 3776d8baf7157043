package sdktest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/workflow"
)

// The cases of this file have the names of the tests that the specification of the workflow engine lists
// for executions, idempotency, dead letters and replay.

// order is an input of the workflows of this file.
type order struct {
	ID      int    `json:"id"`
	Cents   int    `json:"cents"`
	Address string `json:"address,omitempty"`
}

// deliver charges an order and sends it. An order without an address fails for good after the charge.
func deliver(charges *atomic.Int64) func(context.Context, order) (string, error) {
	return func(ctx context.Context, in order) (string, error) {
		receipt, err := workflow.Step(ctx, "charge", func(context.Context) (string, error) {
			return fmt.Sprintf("receipt %d", charges.Add(1)), nil
		})
		if err != nil {
			return "", err
		}
		if in.Address == "" {
			return "", belay.Permanent(fmt.Errorf("order %d has no address", in.ID))
		}
		return receipt + " to " + in.Address, nil
	}
}

// change changes the newest dead letter of an execution.
func (e *env) change(id belay.ExecutionID, a belay.DeadLetterAction, note string) (belay.DeadLetter, error) {
	return e.b.ChangeDeadLetter(e.ctx, belay.DeadLetterChange{
		Execution: id, Action: a, Actor: "ann", Note: note, Op: e.op(),
	})
}

// listed checks which executions have a dead letter with a resolution.
func (e *env) listed(resolution string, want ...belay.ExecutionID) {
	e.Helper()
	page, err := e.b.DeadLetters(e.ctx, belay.DeadLetterFilter{Resolution: resolution})
	e.must(err)
	var got []belay.ExecutionID
	for _, d := range page.DeadLetters {
		got = append(got, d.Execution)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		e.Errorf("dead letters that are %s: %v, want %v", resolution, got, want)
	}
}

var replays = []testCase{
	{"WorkflowExecutionServiceTest: pending, running, paused, resumed, succeeded", func(e *env) {
		id := e.start(nil)
		e.wantState(id, belay.Pending)
		e.act(id, belay.ActionPause)
		e.wantState(id, belay.Paused)
		e.act(id, belay.ActionResume)
		e.hire(register("w", func(ctx context.Context, _ any) (int, error) { return 1, busy(ctx, time.Minute) }))
		e.wantState(id, belay.Running)
		want(e, id, 1)
		for _, a := range []belay.Action{belay.ActionPause, belay.ActionResume, belay.ActionCancel, belay.ActionRetry} {
			_, err := e.b.Control(e.ctx, belay.Control{Execution: id, Action: a})
			e.refused(string(a)+" after the end", err, belay.CodeConflict, "")
		}
		e.wantKinds(id, "submitted", "pause", "resume", "started", "succeeded")
	}},

	{"WorkflowExecutionServiceTest: a running execution is cancelled", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (int, error) { return 1, busy(ctx, time.Hour) }))
		id := e.start(nil)
		e.wantState(id, belay.Running)
		e.act(id, belay.ActionCancel)
		wantEnd(e, id, belay.Cancelled, "")
	}},

	{"WorkflowExecutionIntegrationTest: an execution is retried, succeeds, and lists its runs", func(e *env) {
		var runs atomic.Int64
		e.hire(register("w", func(ctx context.Context, in order) (int, error) {
			workflow.AddCost(ctx, 5)
			if runs.Add(1) == 1 {
				return 0, errors.New("connection refused")
			}
			return in.Cents, nil
		}))
		id := e.start(order{Cents: 1250})
		want(e, id, 1250)
		list, err := e.b.Runs(e.ctx, id)
		e.must(err)
		if len(list) != 2 || list[0].Outcome != belay.OutcomeSucceeded || list[1].Outcome != belay.OutcomeFailed ||
			list[0].Attempt != 2 || string(list[0].Output) != "1250" || list[1].Error.Class != belay.ClassTransient ||
			list[1].EndedAt.Before(list[1].StartedAt) || list[0].InputsHash != "" {
			e.Errorf("runs %+v", list)
		}
		if x := e.get(id); x.CostTokens != belay.CostOf(10) || x.StartedAt.IsZero() || x.FinishedAt.IsZero() {
			e.Errorf("%+v", x)
		}
	}},

	{"IdempotencyTest: duplicate requests of the same content are one run", func(e *env) {
		var runs atomic.Int64
		e.hire(register("w", func(ctx context.Context, in map[string]float64) (float64, error) {
			runs.Add(1)
			return in["cents"], busy(ctx, time.Minute)
		}), leased)
		texts := []string{`{"id":7,"cents":1250}`, `{"cents":1250.0,"id":7}`, `{"id":70e-1,"cents":125e1}`}
		ids := make([]belay.ExecutionID, 21)
		var all sync.WaitGroup
		for i := range ids {
			all.Go(func() {
				ids[i] = e.start(json.RawMessage(texts[i%len(texts)]), belay.ContentIdempotency(),
					belay.Label("request", fmt.Sprint(i)), belay.Priority(i))
			})
		}
		all.Wait()
		e.wantState(ids[0], belay.Running)
		joined := e.start(order{ID: 7, Cents: 1250}, belay.ContentIdempotency())
		want(e, ids[0], 1250.0)
		replayed := e.start(order{ID: 7, Cents: 1250}, belay.ContentIdempotency())
		for _, id := range slices.Concat(ids, []belay.ExecutionID{joined, replayed}) {
			if id != ids[0] {
				e.Errorf("a second execution: %s beside %s", id, ids[0])
			}
		}
		if n := runs.Load(); n != 1 {
			e.Errorf("%d runs\n%s", n, e.history(ids[0]))
		}
		want(e, replayed, 1250.0)
		for what, id := range map[string]belay.ExecutionID{
			"another input": e.start(order{ID: 8, Cents: 1250}, belay.ContentIdempotency()),
			"another policy": e.start(order{ID: 7, Cents: 1250}, belay.ContentIdempotency(),
				belay.WithPolicy(belay.Policy{MaxAttempts: 5})),
			"no idempotency": e.start(order{ID: 7, Cents: 1250}),
		} {
			if want(e, id, 1250.0); id == ids[0] {
				e.Errorf("%s finds the same execution", what)
			}
		}
	}},

	{"IdempotencyTest: an execution and its runs show the hashes of inputs and configuration", func(e *env) {
		e.hire(register("w", func(_ context.Context, in order) (int, error) { return in.Cents, nil }))
		five := belay.WithPolicy(belay.Policy{MaxAttempts: 5})
		id := e.start(order{ID: 7, Cents: 5}, belay.ContentIdempotency(), five)
		want(e, id, 5)
		x := e.get(id)
		inputs := fmt.Sprintf("%x", sha256.Sum256([]byte(`{"cents":5,"id":7}`)))
		config := fmt.Sprintf("%x", sha256.Sum256([]byte(`{"policy":{"max_attempts":5}}`)))
		if x.InputsHash != inputs || x.ConfigHash != config || x.Key != "content:"+inputs+":"+config {
			e.Errorf("%+v, want the hashes %s and %s", x, inputs, config)
		}
		runs, err := e.b.Runs(e.ctx, id)
		e.must(err)
		if len(runs) != 1 || runs[0].InputsHash != inputs || runs[0].ConfigHash != config {
			e.Errorf("runs %+v", runs)
		}
		all, err := e.b.ListRuns(e.ctx, belay.RunFilter{})
		e.must(err)
		if len(all.Runs) != 1 || all.Runs[0].InputsHash != inputs || all.Runs[0].ConfigHash != config {
			e.Errorf("all runs %+v", all.Runs)
		}
		page, err := e.b.Executions(e.ctx, belay.Filter{Key: x.Key})
		e.must(err)
		if len(page.Executions) != 1 || page.Executions[0].ID != id {
			e.Errorf("found by its key: %+v", page)
		}
		_, err = workflow.Start[int](e.ctx, e.b, "w", 5, belay.IdempotencyKey(x.Key))
		e.refused("a key that imitates a content", err, belay.CodeInvalid, "")
		_, err = workflow.Start[int](e.ctx, e.b, "w", 5, belay.IdempotencyKey("k"), belay.ContentIdempotency())
		e.refused("a key and a content", err, belay.CodeInvalid, "")
	}},

	{"IdempotencyTest: a failure is not replayed", func(e *env) {
		var runs atomic.Int64
		e.hire(register("w", func(_ context.Context, in int) (int, error) {
			if runs.Add(1) == 1 {
				return 0, belay.Permanent(errors.New("the service is down"))
			}
			return in, nil
		}))
		failed := e.start(7, belay.ContentIdempotency())
		wantEnd(e, failed, belay.Failed, "down")
		ids := make([]belay.ExecutionID, 20)
		var all sync.WaitGroup
		for i := range ids {
			all.Go(func() { ids[i] = e.start(7, belay.ContentIdempotency()) })
		}
		all.Wait()
		want(e, ids[0], 7)
		for _, id := range ids {
			if id != ids[0] || id == failed {
				e.Errorf("%s beside %s, after %s failed", id, ids[0], failed)
			}
		}
		if n := runs.Load(); n != 2 {
			e.Errorf("%d runs", n)
		}
		e.listed("open", failed)
	}},

	{"DLQServiceTest: list by resolution", func(e *env) {
		var charges atomic.Int64
		e.hire(register("w", deliver(&charges)))
		var ids []belay.ExecutionID
		for n := range 4 {
			ids = append(ids, e.start(order{ID: n}))
			wantEnd(e, ids[n], belay.Failed, "no address")
			e.sleep(time.Second)
		}
		_, err := e.change(ids[1], belay.DeadLetterFix, "delivered by hand")
		e.must(err)
		_, err = e.change(ids[2], belay.DeadLetterDiscard, "a test order")
		e.must(err)
		e.act(ids[3], belay.ActionRetry)
		wantEnd(e, ids[3], belay.Failed, "no address")
		e.listed("open", ids[3], ids[0])
		e.listed(belay.ResolvedFixed, ids[1])
		e.listed(belay.ResolvedDiscarded, ids[2])
		e.listed(belay.ResolvedRetried, ids[3])
		e.listed(belay.ResolvedRequeued)
		e.listed("all", ids[3], ids[3], ids[2], ids[1], ids[0])
	}},

	{"DLQServiceTest: requeue with input overrides", func(e *env) {
		var charges atomic.Int64
		e.hire(register("w", deliver(&charges)))
		id := e.start(order{ID: 17, Cents: 5})
		wantEnd(e, id, belay.Failed, "no address")
		_, err := e.b.Control(e.ctx, belay.Control{
			Execution: id, Action: belay.ActionRequeue, Actor: "ann", Reason: "asked the customer",
			InputPatch: json.RawMessage(`{"address": "1 Main St", "cents": null}`), Op: e.op(),
		})
		e.must(err)
		want(e, id, "receipt 2 to 1 Main St") // another input runs all steps again
		d := e.letter(id)
		if string(d.Input) != `{"id":17,"cents":5}` && string(d.Input) != `{"cents":5,"id":17}` {
			e.Errorf("the dead letter has the input %s, want the original one", d.Input)
		}
		if d.Resolution != belay.ResolvedRequeued || d.ResolvedBy != "ann" || d.ResolvedAt.IsZero() ||
			len(d.Notes) != 1 || d.Notes[0].Text != "asked the customer" {
			e.Errorf("%+v", d)
		}
		var now order
		if err := json.Unmarshal(e.get(id).Input, &now); err != nil || now != (order{ID: 17, Address: "1 Main St"}) {
			e.Errorf("the input is %+v (%v)", now, err)
		}
	}},

	{"DLQServiceTest: discard for good", func(e *env) {
		var charges atomic.Int64
		e.hire(register("w", deliver(&charges)))
		id := e.start(order{ID: 17})
		wantEnd(e, id, belay.Failed, "no address")
		d, err := e.change(id, belay.DeadLetterDiscard, "the customer is gone")
		e.must(err)
		if d.Resolution != belay.ResolvedDiscarded || d.ResolvedBy != "ann" || len(d.Notes) != 1 {
			e.Errorf("%+v", d)
		}
		e.listed("open")
		_, err = e.change(id, belay.DeadLetterFix, "")
		e.refused("a second resolution", err, belay.CodeConflict, "")
		if !strings.Contains(err.Error(), "discarded by ann") {
			e.Errorf("the refusal does not name the first resolution: %v", err)
		}
		_, err = e.b.Control(e.ctx, belay.Control{
			Execution: id, Action: belay.ActionRequeue, Generation: 1, InputPatch: json.RawMessage(`{"address": "x"}`),
		})
		e.refused("a requeue of what was discarded", err, belay.CodeConflict, "")
		e.wantState(id, belay.Failed)
		if n := charges.Load(); n != 1 {
			e.Errorf("%d charges", n)
		}
	}},

	{"DLQReplayTest: quarantine, requeue, success", func(e *env) {
		id := e.start(order{ID: 17}, belay.ContentIdempotency())
		e.act(id, belay.ActionQuarantine)
		d := e.letter(id)
		if d.Reason != "manual" || d.Resolution != "" || d.At.IsZero() {
			e.Errorf("quarantined as %+v", d)
		}
		var charges atomic.Int64
		e.hire(register("w", deliver(&charges)))
		e.sleep(time.Hour)
		e.wantState(id, belay.Failed) // no worker runs the execution again until an operator requeues it
		_, err := e.b.Control(e.ctx, belay.Control{
			Execution: id, Action: belay.ActionRequeue, Actor: "ann", Input: json.RawMessage(`{"id": 17, "address": "x"}`),
		})
		e.must(err)
		want(e, id, "receipt 1 to x")
		e.listed("open")
		x := e.get(id)
		if x.Generation != 2 || x.InputsHash != "" {
			e.Errorf("%+v", x)
		}
		if again := e.start(order{ID: 17}, belay.ContentIdempotency()); again == id {
			e.Error("a success with another input was replayed")
		}
	}},

	{"DLQReplayTest: a retry repeats no finished step and gives the same output", func(e *env) {
		var charges atomic.Int64
		var repaired atomic.Bool
		e.hire(register("w", func(ctx context.Context, in order) (string, error) {
			if repaired.Load() {
				in.Address = "1 Main St"
			}
			return deliver(&charges)(ctx, in)
		}))
		id := e.start(order{ID: 17}, belay.ContentIdempotency())
		wantEnd(e, id, belay.Failed, "no address")
		repaired.Store(true)
		e.act(id, belay.ActionRetry)
		want(e, id, "receipt 1 to 1 Main St")
		if d := e.letter(id); d.Resolution != belay.ResolvedRetried || d.State != belay.Succeeded {
			e.Errorf("%+v", d)
		}
		again := e.start(order{ID: 17}, belay.ContentIdempotency()) // the same inputs, the same output
		if want(e, again, "receipt 1 to 1 Main St"); again != id || charges.Load() != 1 {
			e.Errorf("%s after %s, with %d charges", again, id, charges.Load())
		}
	}},
}
