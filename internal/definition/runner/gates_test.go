package runner_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
)

// Rule: the children of a task name the resource, the target and the limit of the task.
func TestGates(t *testing.T) {
	const doc = `
name: gates
tasks:
  - id: a
    uses: note
    foreach: [x, y]
    with: ${{ item }}
    requires: {resource: gpu, mode: llama, preemptible: true}
    target: bank
    concurrency: {name: few, max: 1}
`
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		change := func(c belay.GateChange) {
			if _, err := l.kit.Backend.ChangeGate(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		change(belay.GateChange{Gate: "target:bank", Action: belay.GatePause})
		h := l.start(doc)
		l.kit.Advance(time.Minute)
		if l.noted() != "" {
			t.Error("a task has called a target that is paused")
		}
		change(belay.GateChange{Gate: "target:bank", Action: belay.GateResume})
		if _, err := l.result(h); err != nil || len(l.noted()) != len("x y") {
			t.Fatal(err, l.noted())
		}
		if g, err := l.kit.Backend.Gate(t.Context(), "resource:gpu"); err != nil || g.Resource == nil ||
			g.Resource.Mode != "llama" {
			t.Error(g, err)
		}
		if g, err := l.kit.Backend.Gate(t.Context(), "limit:few"); err != nil || g.Limit == nil || g.Limit.Max != 1 {
			t.Error(g, err)
		}
	})
}
