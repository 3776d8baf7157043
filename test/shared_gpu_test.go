package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// loaded is the state of the example's model server.
type loaded struct{ Loads, Answers, Refused int }

// Rule: executions of several models share one model server over two servers of Belay. The model server
// is never asked for a model that it does not hold, never loads a model while it answers, and loads far
// fewer models than first in, first out would need.
func TestExampleSharedGPU(t *testing.T) {
	t.Parallel()
	const questions = 24
	g := newGroup(t, pgtest.Shared(t).Database(t), 2)
	address := freeAddress(t)
	g.example("shared-gpu", "model", address).shows("the model server listens")
	for _, m := range g.members {
		g.example("shared-gpu", "work", "http://"+m.listen, "http://"+address).shows("the worker works")
	}
	at := func(i int) string { return "http://" + g.members[i%2].listen }
	set := g.belay("resources", "set", "gpu", "--swap-workflow", "load-model", "--min-residency", "500ms", "--max-wait",
		"5s", "--server", at(0))
	if set.code != 0 {
		t.Fatal(set)
	}
	var ids []belay.ExecutionID
	for i := range questions {
		model := []string{"llama", "qwen", "llama", "phi"}[i%4]
		out, err := g.members[i%2].client.Submit(t.Context(), belay.Submission{
			Workflow: "answer", Input: fmt.Appendf(nil, `{"model": %q, "prompt": "question %d"}`, model, i),
			Gates: belay.Gates{Requires: &belay.Requires{Resource: "gpu", Mode: model}},
		})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
		ids = append(ids, out[0].ID)
	}
	for _, id := range ids {
		var x belay.Execution
		if !poll(patience, func() bool {
			var err error
			x, err = g.members[0].client.Execution(t.Context(), id)
			return err == nil && x.State.Terminal()
		}) || x.State != belay.Succeeded || x.Attempt != 1 {
			t.Fatalf("%s is %s in attempt %d: %+v", id, x.State, x.Attempt, x.Error)
		}
	}
	answer, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var all loaded
	if err := json.NewDecoder(answer.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d questions, %d loads", all.Answers, all.Loads)
	if all.Answers != questions || all.Refused != 0 || all.Loads < 3 || 3*all.Loads > questions {
		t.Errorf("the model server has %+v", all)
	}
	if r := g.belay("resources", "ls", "--server", at(1)); r.code != 0 || !strings.Contains(r.out, "idle") {
		t.Errorf("belay resources ls says %s", r)
	}
}
