package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
)

// An explanation recommends the actions that end the wait or the failure. It recommends nothing for an execution that
// goes on by itself, and at most five things of one kind to look at.
func TestRemediesOfAnExplanation(t *testing.T) {
	s := memory.New(time.Now)
	e := engine.New(s, engine.Options{})
	defer e.Close()
	ctx := t.Context()
	submit := func(x belay.Submission) belay.ExecutionID {
		return must[[]belay.Submitted](t)(e.Submit(ctx, x))[0].ID
	}
	control := func(c belay.Control) { must[belay.Execution](t)(e.Control(ctx, c)) }
	gate := func(g belay.GateChange) { must[belay.GateDetail](t)(e.ChangeGate(ctx, g)) }
	cordon := func(c belay.Cordon) {
		if err := e.Cordon(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	check := func(id belay.ExecutionID, want ...string) {
		t.Helper()
		var got []string
		for _, r := range must[belay.Explanation](t)(e.Explain(ctx, id)).Remedies {
			got = append(got, fmt.Sprintf("%s %s %s", r.Do, r.Of, r.ID))
		}
		if !slices.Equal(got, want) {
			t.Errorf("the remedies are %q, want %q", got, want)
		}
	}
	id := submit(belay.Submission{Workflow: "w", Queue: "q"})
	check(id, "look workers q")
	control(belay.Control{Execution: id, Action: belay.ActionPause})
	check(id, "resume execution "+id.String())
	control(belay.Control{Execution: id, Action: belay.ActionQuarantine})
	check(id, "requeue execution "+id.String(), "retry execution "+id.String())
	id = submit(belay.Submission{Workflow: "w", Queue: "q"})
	control(belay.Control{Execution: id, Action: belay.ActionCancel})
	check(id, "retry execution "+id.String())

	gate(belay.GateChange{Gate: "queue:q", Action: belay.GatePause})
	id = submit(belay.Submission{Workflow: "w", Queue: "q"})
	check(id, "resume gate queue:q", "look gate queue:q", "look workers q")

	w := must[belay.Session](t)(e.OpenWorker(ctx, belay.WorkerSpec{
		Name: "w", Capacity: 10, Queues: []string{"f"}, Workflows: []belay.Registration{{Workflow: "w"}},
	}))
	cordon(belay.Cordon{Worker: w.ID})
	id = submit(belay.Submission{Workflow: "w", Queue: "f"})
	check(id, "uncordon worker "+w.ID.String(), "look workers f")
	cordon(belay.Cordon{Worker: w.ID, Off: true})
	check(id)
}
