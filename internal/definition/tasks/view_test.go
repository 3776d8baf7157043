package tasks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/internal/definition/runner"
	"github.com/belaydev/belay/workflow"
)

// counted counts the calls of a Reader.
type counted struct {
	belay.Backend
	calls atomic.Int32
}

func (c *counted) Execution(ctx context.Context, id belay.ExecutionID) (belay.Execution, error) {
	c.calls.Add(1)
	return c.Backend.Execution(ctx, id)
}

func (c *counted) Executions(ctx context.Context, f belay.Filter) (belay.Page, error) {
	c.calls.Add(1)
	return c.Backend.Executions(ctx, f)
}

func (c *counted) Events(ctx context.Context, q belay.EventQuery) ([]belay.Event, error) {
	c.calls.Add(1)
	return c.Backend.Events(ctx, q)
}

// Rule: the view is right in every state of the execution.
func TestStates(t *testing.T) {
	const doc = `
name: states
tasks:
  - {id: a, uses: nap, with: a}
  - {id: b, uses: approval, needs: a, timeout: 10h, with: {message: "ship ${{ tasks.a.output }}?", signal: ship}}
  - {id: c, uses: note, needs: b, with: c}
  - {id: d, uses: note, needs: a, if: "1 > 2", with: d}
  - {id: e, uses: sleep, needs: a, with: {for: 1h}}
`
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		l.kit.Crash() // no run begins
		id := l.start(doc)
		want := func(states string) {
			t.Helper()
			if got := l.states(id); got != states {
				t.Errorf("%s\nwant %s", got, states)
			}
		}
		want("a pending, b pending, c pending, d pending, e pending")
		l.kit.Restart()
		l.kit.Advance(time.Minute)
		want("a waiting, b pending, c pending, d pending, e pending") // the nap needs no worker
		l.kit.Advance(time.Hour)
		want("a succeeded, b waiting, c pending, d skipped, e waiting")
		all := l.page(belay.TaskQuery{Execution: id, Outputs: true}).Tasks
		a, b := all[0], all[1]
		if a.Attempt != 1 || a.StartedAt.IsZero() || a.EndedAt.Sub(a.StartedAt) < time.Hour || string(a.Output) != `"a"` ||
			a.Generation != 1 || a.Execution != belay.ChildID(id, 1, "a") {
			t.Errorf("%+v", a)
		}
		if q := b.Question; q == nil || q.Signal != "ship" || !q.Approval || q.Message != "ship a?" ||
			b.Needs[0] != "a" {
			t.Errorf("%+v", b)
		}
		l.kit.Advance(2 * time.Hour)
		want("a succeeded, b waiting, c pending, d skipped, e succeeded")
		l.act(id, belay.ActionCancel)
		l.ends(id, belay.Cancelled, "")
		want("a succeeded, b cancelled, c pending, d skipped, e succeeded")
		l.kit.Crash()
		l.act(id, belay.ActionRetry)
		want("a succeeded, b pending, c pending, d skipped, e succeeded")
		l.kit.Restart()
		l.kit.Advance(time.Minute)
		want("a succeeded, b waiting, c pending, d skipped, e succeeded")
		q := l.page(belay.TaskQuery{Execution: id}).Tasks[1].Question
		if q == nil || q.Message != "ship a?" { // asked again, in the next generation
			t.Errorf("%+v", q)
		}
		if err := l.kit.Backend.Signal(t.Context(), belay.SignalRequest{
			Execution: id, Name: "ship", Payload: json.RawMessage(`{"approved": true}`),
		}); err != nil {
			t.Fatal(err)
		}
		l.ends(id, belay.Succeeded, "")
		want("a succeeded, b succeeded, c succeeded, d skipped, e succeeded")
	})
}

// Rule: a view of many tasks and items comes in pages, and each page needs few reads.
func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		var doc strings.Builder
		doc.WriteString("name: many\ntasks:\n  - {id: each, uses: note, foreach: 1..500, parallel: 100, with: " +
			"\"${{ item }}\"}\n")
		for i := range 499 {
			fmt.Fprintf(&doc, "  - {id: t%d, uses: note, with: %d}\n", i, i)
		}
		id := l.start(doc.String())
		l.ends(id, belay.Succeeded, "")
		c := &counted{Backend: l.kit.Backend}
		for _, task := range []string{"", "each"} {
			q := belay.TaskQuery{Execution: id, Task: task, Limit: 200, Outputs: true}
			var names []string
			for pages := 1; ; pages++ {
				c.calls.Store(0)
				page, err := l.Viewer.List(t.Context(), c, q)
				if err != nil {
					t.Fatal(err)
				}
				if n := c.calls.Load(); n > 4 {
					t.Errorf("a page took %d reads", n)
				}
				for _, x := range page.Tasks {
					names = append(names, x.ID)
					if x.State != belay.TaskSucceeded || x.ID != "each" && len(x.Output) == 0 {
						t.Errorf("%+v", x)
					}
				}
				if page.Total != 500 {
					t.Errorf("the total is %d", page.Total)
				}
				if q.Cursor = page.Next; q.Cursor == "" {
					if pages != 3 {
						t.Errorf("%d pages", pages)
					}
					break
				}
			}
			if len(names) != 500 {
				t.Errorf("%d tasks", len(names))
			}
		}
		if each := l.page(belay.TaskQuery{Execution: id, Limit: 1}).Tasks[0]; *each.Items != (belay.TaskItems{
			Total: 500, Succeeded: 500,
		}) {
			t.Errorf("%+v", each.Items)
		}
		for _, q := range []belay.TaskQuery{
			{Cursor: "x"}, {Cursor: "-1"}, {Cursor: "99999999999999999999"}, {State: "<script>"}, {Task: "nothing"},
			{Task: "each[0]"},
		} {
			q.Execution = id
			if _, err := l.Tasks(t.Context(), q); belay.CodeOf(err) != belay.CodeInvalid {
				t.Errorf("%+v: %v", q, err)
			}
		}
		if page := l.page(belay.TaskQuery{Execution: id, Cursor: "100000",
			State: belay.TaskFailed}); len(page.Tasks) != 0 {
			t.Errorf("%+v", page)
		}
	})
}

// Rule: a large output is not part of a page, and all outputs of a page together are bounded.
func TestLargeOutputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		var doc strings.Builder
		fmt.Fprintf(&doc, "name: large\ntasks:\n  - {id: big, uses: note, with: %q}\n", strings.Repeat("x", 5000))
		for i := range 200 {
			fmt.Fprintf(&doc, "  - {id: t%d, uses: note, with: \"${{ join(map(1..4000, 'x'), '') }}\"}\n", i)
		}
		id := l.start(doc.String())
		l.ends(id, belay.Succeeded, "")
		page := l.page(belay.TaskQuery{Execution: id, Outputs: true, Limit: 1000})
		size := 0
		for _, x := range page.Tasks {
			size += len(x.Output)
		}
		if page.Tasks[0].Output != nil || size < 256<<10 || size > 512<<10 {
			t.Errorf("big has %d bytes, all together %d", len(page.Tasks[0].Output), size)
		}
	})
}

// Rule: an execution that runs no document, or one that cannot be read, has no tasks; the error says why.
func TestNoDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		h, err := workflow.Start[any](t.Context(), l.kit.Backend, "note", "x")
		if err != nil {
			t.Fatal(err)
		}
		bad := []belay.ExecutionID{h.ID()}
		for _, input := range []any{
			7, map[string]any{"document": 7}, runner.Input{Document: "name: x",
				Hash: definition.Hash([]byte("name: x"))},
			runner.Input{Document: diamond, Hash: "0"},
		} {
			h, err := workflow.Start[any](t.Context(), l.kit.Backend, runner.Workflow, input)
			if err != nil {
				t.Fatal(err)
			}
			bad = append(bad, h.ID())
		}
		for _, id := range bad {
			for range 2 { // before and after its end
				_, err := l.Tasks(t.Context(), belay.TaskQuery{Execution: id})
				if belay.CodeOf(err) != belay.CodeInvalid || len(err.Error()) > 600 {
					t.Error(err)
				}
				l.kit.Advance(time.Minute)
			}
		}
		if _, err := l.Tasks(t.Context(), belay.TaskQuery{Execution: belay.ChildID(bad[0], 1,
			"x")}); belay.CodeOf(err) !=
			belay.CodeNotFound {
			t.Error(err)
		}
	})
}
