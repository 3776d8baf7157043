package engine_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Rule: the answer to an action is the complete execution in its state after the action's commit,
// the same as a read after the action returns.
func TestAnActionAnswersWithTheWholeExecution(t *testing.T) {
	e, ctx := open(t), t.Context()
	sub := must[[]belay.Submitted](t)(e.Submit(ctx, belay.Submission{
		Workflow: "w", Input: json.RawMessage(`{"n":1}`), Labels: map[string]string{"team": "web"}, Priority: 3,
		IdempotencyKey: "k",
		DueAt:          time.Now().Add(time.Hour), Policy: belay.Policy{Timeout: belay.Duration(time.Hour)},
	}))
	id := sub[0].ID
	for _, c := range []belay.Control{
		{Action: belay.ActionPause}, {Action: belay.ActionResume}, {Action: belay.ActionCancel},
		{Action: belay.ActionRequeue, Input: json.RawMessage(`{"n":2}`)}, {Action: belay.ActionFork, Op: belay.OpID{1}},
		{Action: belay.ActionFork, Op: belay.OpID{1}},
	} {
		c.Execution = id
		got := must[belay.Execution](t)(e.Control(ctx, c))
		if want := must[belay.Execution](t)(e.Execution(ctx, got.ID)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s answers\n%+v\nand reading shows\n%+v", c.Action, got, want)
		}
		if len(got.Input) == 0 || got.Labels["team"] != "web" || (got.ID == id) == (c.Action == belay.ActionFork) {
			t.Errorf("%s answers %+v", c.Action, got)
		}
	}
}
