package engine_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
)

func open(t *testing.T) *engine.Engine {
	t.Helper()
	e := engine.New(memory.New(time.Now), engine.Options{})
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// The test follows one execution from its submission to its end, through the calls of its client
// and of its worker.
func TestAnExecutionFromSubmitToItsEnd(t *testing.T) {
	e, ctx := open(t), context.Background()
	s := must[belay.Session](t)(e.OpenWorker(ctx, belay.WorkerSpec{
		Name: "w", Workflows: []belay.Registration{{Workflow: "greet"}}, Capacity: 1,
	}))
	claimed := make(chan belay.ClaimReply, 1)
	go func() {
		r, err := e.Claim(ctx, belay.ClaimRequest{Worker: s.ID, Number: 1, Slots: 1, Wait: time.Minute})
		if err != nil {
			t.Error(err)
		}
		claimed <- r
	}()
	sub := must[[]belay.Submitted](t)(e.Submit(ctx, belay.Submission{
		Workflow: "greet", Input: json.RawMessage(`"world"`),
	}))
	if sub[0].Err != nil {
		t.Fatal(sub[0].Err)
	}
	a := (<-claimed).Assignments[0]
	if string(a.Input) != `"world"` || a.Attempt != 1 {
		t.Fatalf("assignment %+v", a)
	}
	if seq := must[int64](t)(e.Save(ctx, belay.Save{Lease: a.Lease, Kind: belay.KindStep, Key: "one",
		Data: json.RawMessage(`1`)})); seq != 3 {
		t.Errorf("the checkpoint has seq %d, not 3", seq)
	}
	hb := must[belay.HeartbeatReply](t)(e.Heartbeat(ctx, belay.Heartbeat{
		Worker: s.ID, ClaimSeen: 1, Holds: []belay.Held{{Execution: a.Lease.Execution, Token: a.Lease.Token}},
	}))
	if len(hb.Revoked) != 0 || hb.ExpiresIn != 15*time.Second {
		t.Errorf("heartbeat reply %+v", hb)
	}
	if err := e.Settle(ctx, belay.Settlement{Lease: a.Lease, Outcome: belay.OutcomeSucceeded,
		Output: json.RawMessage(`"hello"`)}); err != nil {
		t.Fatal(err)
	}
	x := must[belay.Execution](t)(e.Execution(ctx, sub[0].ID))
	if x.State != belay.Succeeded || string(x.Output) != `"hello"` {
		t.Errorf("execution %+v", x)
	}
	var kinds []string
	for _, ev := range must[[]belay.Event](t)(e.Events(ctx, belay.EventQuery{Execution: sub[0].ID})) {
		kinds = append(kinds, ev.Kind)
	}
	if got, want := must[[]byte](t)(json.Marshal(kinds)),
		`["submitted","started","step","succeeded"]`; string(got) != want {
		t.Errorf("history %s, want %s", got, want)
	}
	if _, err := e.Save(ctx, belay.Save{Lease: a.Lease, Kind: belay.KindStep,
		Key: "late"}); belay.CodeOf(err) != belay.CodeLeaseLost {
		t.Errorf("a late save got %v", err)
	}
}
