package runner_test

import (
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
)

const saga = `
name: saga
defaults: {on_failure: {compensate: [undo_b, undo_a]}}
tasks:
  - {id: a, uses: note, with: a}
  - {id: b, uses: note, needs: a, with: b}
  - {id: c, uses: note, needs: b, with: c}
  - {id: undo_a, uses: note, needs: a, with: "undo ${{ tasks.a.output }}"}
  - {id: undo_b, uses: note, needs: b, with: "undo ${{ tasks.b.output }}"}
`

// Rule: compensation undoes what has succeeded, in reverse order, also if the worker crashes.
func TestCompensation(t *testing.T) {
	for crash := range 8 {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t)
			defer l.close()
			l.breaks("c")
			if crash > 0 {
				l.kit.CrashBefore(crash)
			}
			h := l.start(saga)
			if crash > 0 {
				synctest.Wait()
				time.Sleep(3 * time.Second)
				l.kit.Crash() // in case there were fewer checkpoints
				l.kit.Restart()
			}
			_, err := l.result(h)
			if err == nil || !strings.Contains(err.Error(), "task c failed: c is broken") {
				t.Error(err)
			}
			// The crash also loses the runs of tasks, so the last run before it may be repeated.
			again := regexp.MustCompile(`^(?:(a )+(b )+(c )+(undo b ?)+(undo a ?)+)$`)
			if got := l.noted(); !again.MatchString(got) {
				t.Errorf("crash %d: %s", crash, got)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		l.breaks("b")
		if _, err := l.run(saga); err == nil || l.noted() != "a b undo a" {
			t.Error(l.noted(), err)
		}
	})
}

// Rule: compensation waits for the items of a failed foreach that are under way, also if the execution suspends
// meanwhile, and then undoes what has succeeded.
func TestCompensationWaitsForItems(t *testing.T) {
	for _, crash := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t)
			defer l.close()
			l.breaks("bad")
			h := l.start(`
name: items
tasks:
  - {id: a, uses: note, with: a}
  - id: e
    uses: slow
    needs: a
    foreach: [one, two, bad]
    with: "${{ item }}"
    on_failure: {compensate: undo_a}
  - {id: undo_a, uses: note, needs: a, with: undo}
`)
			l.kit.Advance(10 * time.Minute)
			if x, err := l.kit.Backend.Execution(t.Context(), h.ID()); err != nil || x.State != belay.Waiting {
				t.Error(x.State, err)
			}
			if got := l.noted(); got != "a bad" {
				t.Error("before the items have ended:", got)
			}
			if crash {
				l.kit.Crash()
				l.kit.Restart()
			}
			_, err := l.result(h)
			if err == nil || !strings.Contains(err.Error(), "task e failed: item 2: bad is broken") {
				t.Error(err)
			}
			if got := strings.Fields(l.noted()); len(got) != 5 || got[4] != "undo" {
				t.Error(got)
			}
		})
	}
}

// Rule: compensation undoes also the work of a child that a lost run has started and did not save.
func TestCompensationOfAnUnsavedChild(t *testing.T) {
	for _, foreach := range []string{"", "foreach: [1, 2], "} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t)
			defer l.close()
			l.kit.CrashBefore(2) // the checkpoint after the start of y
			h := l.start(`
name: unsaved
defaults: {on_failure: {compensate: undo_y}}
tasks:
  - {id: f, uses: slow, with: hold}
  - {id: x, uses: note, with: x}
  - {id: s, uses: note, needs: x, if: tasks.x.output == "", with: s}
  - {id: y, uses: slow, needs: s, ` + foreach + `with: y}
  - {id: undo_y, uses: note, needs: y, with: undo}
`)
			l.kit.Advance(time.Second)
			if _, err := l.kit.Backend.Control(t.Context(), belay.Control{
				Execution: belay.ChildID(h.ID(), 1, "f"), Action: belay.ActionCancel,
			}); err != nil {
				t.Fatal(err)
			}
			l.kit.Restart()
			if _, err := l.result(h); err == nil || !strings.Contains(err.Error(), "task f failed") {
				t.Error(err)
			}
			if got := l.noted(); !strings.HasSuffix(got, "y undo") {
				t.Error(got)
			}
		})
	}
}

// Rule: compensation waits also for the items of the failed foreach that a lost run has started and did not save.
func TestCompensationOfAnUnsavedItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		l.kit.CrashBefore(3) // the checkpoint after the start of the last item, or the one of this item
		h := l.start(`
name: unsaved
tasks:
  - {id: a, uses: workflow, with: {name: echo, input: a}}
  - id: e
    uses: slow
    needs: a
    foreach: [quick, hold, last]
    parallel: 2
    with: "${{ item }}"
    on_failure: {compensate: undo_a}
  - {id: undo_a, uses: note, needs: a, with: undo}
`)
		l.kit.Advance(time.Second)
		if _, err := l.kit.Backend.Control(t.Context(), belay.Control{
			Execution: belay.ChildID(h.ID(), 1, "e[1]"), Action: belay.ActionCancel,
		}); err != nil {
			t.Fatal(err)
		}
		l.kit.Restart()
		if _, err := l.result(h); err == nil || !strings.Contains(err.Error(), "task e failed") {
			t.Error(err)
		}
		if got := l.noted(); !strings.HasSuffix(got, "last undo") {
			t.Error(got)
		}
	})
}

// Rule: after a retry by an operator, work that was undone is done again.
func TestRetryAfterCompensation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		l.breaks("c")
		h := l.start(saga)
		if _, err := l.result(h); err == nil {
			t.Fatal("it succeeded")
		}
		l.breaks()
		if _, err := l.kit.Backend.Control(t.Context(), belay.Control{
			Execution: h.ID(), Action: belay.ActionRetry,
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.result(h); err != nil {
			t.Error(err)
		}
		if got := l.noted(); got != "a b c undo b undo a a b c" {
			t.Error(got)
		}
	})
}

// Rule: after a retry by an operator, work is done again also if the task that undoes it has failed, and not if that
// task was skipped or did not begin.
func TestRetryAfterPartOfACompensation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		l.breaks("c", "undo a")
		h := l.start(`
name: saga
defaults: {on_failure: {compensate: [undo_a, undo_b]}}
tasks:
  - {id: a, uses: note, with: a}
  - {id: b, uses: note, needs: a, if: 'tasks.a.state != ""', with: b}
  - {id: b2, uses: note, with: b2}
  - {id: c, uses: note, needs: [b, b2], with: c}
  - {id: undo_a, uses: note, needs: a, with: undo a}
  - {id: undo_b, uses: note, needs: b2, if: tasks.b2.output == "x", with: undo b2}
`)
		if _, err := l.result(h); err == nil {
			t.Fatal("it succeeded")
		}
		l.breaks()
		first := len(l.noted())
		if _, err := l.kit.Backend.Control(t.Context(), belay.Control{
			Execution: h.ID(), Action: belay.ActionRetry,
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.result(h); err != nil {
			t.Error(err)
		}
		if got := l.noted()[first:]; got != " a b c" {
			t.Error(l.noted())
		}
	})
}

// Rule: after a retry by an operator, a foreach whose list depends on a task that runs again gets the new list.
func TestRetryWithAnotherList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		l.breaks("a", "b")
		h := l.start(`
name: retry
tasks:
  - {id: a, uses: note, with: a, on_failure: continue}
  - {id: e, uses: note, foreach: '[tasks.a.state, "b"]', needs: a, with: "${{ item }}", on_failure: quarantine}
output: ${{ tasks.e.output }}
`)
		if _, err := l.result(h); err == nil || !strings.Contains(err.Error(), "1 of 2 items failed") {
			t.Error(err)
		}
		l.breaks()
		if _, err := l.kit.Backend.Control(t.Context(), belay.Control{Execution: h.ID(),
			Action: belay.ActionRetry}); err != nil {
			t.Fatal(err)
		}
		if got, err := l.result(h); got != `["succeeded","b"]` || err != nil {
			t.Error(got, err)
		}
	})
}

// Rule: after a retry by an operator, finished tasks and items keep their results, and the others run again.
func TestRetryKeepsFinishedTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		l.breaks("b")
		h := l.start(`
name: retry
tasks:
  - {id: a, uses: note, with: a}
  - {id: e, uses: note, foreach: [a, b, c], parallel: 1, needs: a, with: "${{ item }}", on_failure: quarantine}
  - {id: z, uses: echo, needs: [a, e], with: "${{ tasks.a.output }}${{ join(tasks.e.output) }}"}
output: ${{ tasks.z.output }}
`)
		if _, err := l.result(h); err == nil || !strings.Contains(err.Error(),
			"1 of 3 items failed: item 1: b is broken") {
			t.Error(err)
		}
		l.breaks()
		if _, err := l.kit.Backend.Control(t.Context(), belay.Control{Execution: h.ID(),
			Action: belay.ActionRetry}); err != nil {
			t.Fatal(err)
		}
		if got, err := l.result(h); got != `"aabc"` || err != nil {
			t.Error(got, err)
		}
		if got := l.noted(); got != "a a b c b" {
			t.Error(got)
		}
	})
}
