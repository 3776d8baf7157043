package tasks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/internal/definition/runner"
)

const diamond = `
name: diamond
tasks:
  - {id: a, uses: note, with: a}
  - {id: b, uses: note, needs: a, with: b}
  - {id: c, uses: note, needs: a, with: c}
  - {id: d, uses: note, needs: [b, c], with: "d ${{ tasks.b.output }} ${{ tasks.c.output }}"}
output: ${{ tasks.d.output }}
`

// Rule: from makes a task and those that depend on it run again, and nothing else; later generations keep the results.
func TestFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		l.breaks("d b c")
		id := l.start(diamond)
		l.ends(id, belay.Failed, "d b c is broken")
		l.noted()
		l.repair(belay.Repair{Execution: id, From: []string{"b"}, Actor: "ann", Reason: "b was wrong"})
		l.ends(id, belay.Failed, "d b c is broken")
		if got := l.noted(); got != "b d b c" {
			t.Errorf("%s ran again", got)
		}
		l.breaks()
		l.act(id, belay.ActionRetry)
		l.ends(id, belay.Succeeded, "d b c")
		if got := l.noted(); got != "d b c" {
			t.Errorf("%s ran after the retry", got)
		}
		events, err := l.kit.Backend.Events(t.Context(), belay.EventQuery{Execution: id})
		if err != nil {
			t.Fatal(err)
		}
		audited := false
		for _, ev := range events {
			audited = audited || ev.Kind == "requeue" && ev.Actor == "ann" &&
				strings.HasSuffix(ev.Text, "from task b: b was wrong")
		}
		if !audited {
			t.Errorf("the history lacks the repair: %+v", events)
		}
	})
}

// Rule: a skipped task does not run, and other tasks read the output that a person has given; the view names the
// person.
func TestSkip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		l.breaks("b")
		id := l.start(diamond)
		l.ends(id, belay.Failed, "b is broken")
		l.noted()
		l.repair(belay.Repair{
			Execution: id, Skip: []belay.TaskSkip{skip("b", `"by hand"`)}, Actor: "ann", Reason: "done in the shop",
		})
		l.ends(id, belay.Succeeded, `"d by hand c"`)
		if got := l.noted(); strings.Contains(got, "a") && strings.Fields(got)[0] == "a" {
			t.Errorf("%s ran", got)
		}
		b := l.page(belay.TaskQuery{Execution: id, Task: "b", Outputs: true}).Tasks[0]
		if b.State != belay.TaskSucceeded || b.ByHand == nil || b.ByHand.By != "ann" ||
			b.ByHand.Note != "done in the shop" ||
			string(b.Output) != `"by hand"` || !b.Execution.IsZero() {
			t.Errorf("%+v", b)
		}
	})
}

// Rule: a skip holds over further retries, until from makes the task run again.
func TestASkipHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		l.breaks("b", "d x c", "d y c")
		id := l.start(diamond)
		l.ends(id, belay.Failed, "b is broken")
		l.repair(belay.Repair{Execution: id, Skip: []belay.TaskSkip{skip("b", `"x"`)}})
		l.ends(id, belay.Failed, "d x c is broken")
		l.act(id, belay.ActionRetry)
		l.ends(id, belay.Failed, "d x c is broken")
		l.refused(belay.Repair{Execution: id, Skip: []belay.TaskSkip{skip("b", `"y"`)}}, belay.CodeConflict,
			"does not run again")
		l.repair(belay.Repair{Execution: id, From: []string{"b"}, Skip: []belay.TaskSkip{skip("b", `"y"`)}})
		l.ends(id, belay.Failed, "d y c is broken")
		l.breaks()
		l.noted()
		l.repair(belay.Repair{Execution: id, From: []string{"b"}})
		l.ends(id, belay.Succeeded, "d b c")
		if got := l.noted(); got != "b d b c" {
			t.Errorf("%s ran", got)
		}
		if b := l.page(belay.TaskQuery{Execution: id, Task: "b"}).Tasks[0]; b.ByHand != nil {
			t.Errorf("b still counts as skipped: %+v", b)
		}
	})
}

const fan = `
name: fan
input: {type: object, properties: {n: {type: integer, default: 4}}}
tasks:
  - {id: list, uses: note, with: "${{ input.n }}"}
  - {id: work, uses: note, needs: list, foreach: "1..tasks.list.output", with: "i${{ item }}", on_failure: quarantine,
     outputs: "got ${{ output }}"}
  - {id: sum, uses: note, needs: work, with: "${{ join(map(tasks.work.output, string(#)), '+') }}"}
output: ${{ tasks.sum.output }}
`

// Rule: an item of a foreach can be skipped with an output of its own, and a whole foreach with a list.
func TestSkipItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		l.breaks("i2", "i3")
		id := l.start(fan)
		l.ends(id, belay.Failed, "2 of 4 items failed")
		if got := l.states(id); got != "list succeeded, work failed, sum blocked" {
			t.Error(got)
		}
		failed := l.page(belay.TaskQuery{Execution: id, Task: "work", State: belay.TaskFailed})
		if len(failed.Tasks) != 2 || failed.Total != 4 || failed.Tasks[0].ID != "work[1]" ||
			failed.Tasks[1].ID != "work[2]" ||
			failed.Tasks[0].Error != "i2 is broken" {
			t.Errorf("%+v", failed)
		}
		for _, bad := range []struct {
			skip belay.TaskSkip
			code belay.Code
			text string
		}{
			{skip("work[9]", "1"), belay.CodeInvalid, "has 4 items"},
			{skip("work[0]", "1"), belay.CodeConflict, "does not run again"},
			{skip("list[0]", "1"), belay.CodeInvalid, "has no items"},
			{skip("work", "7"), belay.CodeInvalid, "must be a list"},
			{skip("work", ""), belay.CodeInvalid, "must be a list"},
			{skip("work[01]", "7"), belay.CodeInvalid, "no task"},
			{skip("work[+1]", "7"), belay.CodeInvalid, "no task"},
		} {
			l.refused(belay.Repair{Execution: id, Skip: []belay.TaskSkip{bad.skip}}, bad.code, bad.text)
		}
		l.noted()
		l.breaks("i3")
		l.repair(belay.Repair{Execution: id, Skip: []belay.TaskSkip{skip("work[2]", `"hand"`)}, Actor: "ann"})
		l.ends(id, belay.Succeeded, `"got i1+got i2+hand+got i4"`)
		if got := l.noted(); got != "i2 got i1+got i2+hand+got i4" {
			t.Errorf("%s ran", got)
		}
		work := l.page(belay.TaskQuery{Execution: id, Task: "work"}).Tasks
		if work[2].ByHand == nil || work[2].ByHand.By != "ann" || work[1].ByHand != nil || work[1].Generation != 2 ||
			work[0].Generation != 1 {
			t.Errorf("%+v", work)
		}

		l.breaks("i2")
		id = l.start(fan)
		l.ends(id, belay.Failed, "1 of 4 items failed")
		l.repair(belay.Repair{Execution: id, Skip: []belay.TaskSkip{skip("work", `["x", 2]`)}})
		l.ends(id, belay.Succeeded, `"x+2"`)
		l.refused(belay.Repair{Execution: id, From: []string{"work"}}, belay.CodeConflict, "it has succeeded"[3:])
	})
}

// Rule: the items of a foreach whose list will be computed anew cannot be skipped one by one.
func TestSkipItemsOfAnUnknownList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		l.breaks("i2")
		id := l.start(fan)
		l.ends(id, belay.Failed, "1 of 4 items failed")
		l.refused(belay.Repair{Execution: id, From: []string{"list"}, Skip: []belay.TaskSkip{skip("work[1]", "1")}},
			belay.CodeConflict, "not known before it runs")
		l.refused(belay.Repair{Execution: id, From: []string{"work[1]"}}, belay.CodeInvalid, "single item")
		l.noted()
		l.breaks()
		l.repair(belay.Repair{Execution: id, From: []string{"work"}})
		l.ends(id, belay.Succeeded, "got i1+got i2+got i3+got i4")
		if got := strings.Fields(l.noted()); len(got) != 9 { // 4 items and the 5 words of the sum
			t.Errorf("%v ran", got)
		}
	})
}

// Rule: a task that waits for a person can be skipped; its output stands for the answer.
func TestSkipApproval(t *testing.T) {
	const doc = `
name: ask
tasks:
  - {id: ask, uses: approval, timeout: 1h}
  - {id: go, uses: note, needs: ask, with: "for ${{ tasks.ask.output.by }}"}
output: ${{ tasks.go.output }}
`
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		id := l.start(doc)
		l.ends(id, belay.Failed, "no signal came")
		l.repair(belay.Repair{Execution: id, Skip: []belay.TaskSkip{skip("ask", `{"by": "bert"}`)}})
		l.ends(id, belay.Succeeded, "for bert")
		// An answer that is saved stays usable beside a repair of another task.
		l.breaks("for carl")
		id = l.start(doc)
		if err := l.kit.Backend.Signal(t.Context(), belay.SignalRequest{
			Execution: id, Name: "ask", Payload: json.RawMessage(`{"approved": true, "by": "carl"}`),
		}); err != nil {
			t.Fatal(err)
		}
		l.ends(id, belay.Failed, "for carl is broken")
		l.breaks()
		l.repair(belay.Repair{Execution: id, From: []string{"go"}})
		l.ends(id, belay.Succeeded, "for carl")
	})
}

// Rule: a repair that does not fit is refused with advice, and changes nothing.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		l.breaks("b")
		id := l.start(diamond)
		l.ends(id, belay.Failed, "b is broken")
		deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
		for _, bad := range []struct {
			repair belay.Repair
			code   belay.Code
			text   string
		}{
			{belay.Repair{}, belay.CodeInvalid, "name a task"},
			{belay.Repair{From: []string{"x"}}, belay.CodeInvalid, `no task "x"; it has a, b, c, d`},
			{belay.Repair{From: []string{strings.Repeat("<script>", 1000)}}, belay.CodeInvalid, "no task"},
			{belay.Repair{Skip: []belay.TaskSkip{skip("a", "1")}}, belay.CodeConflict, "a is succeeded"},
			{belay.Repair{Skip: []belay.TaskSkip{skip("b", "{")}}, belay.CodeInvalid, "not valid JSON"},
			{belay.Repair{Skip: []belay.TaskSkip{skip("b", "1e999")}}, belay.CodeInvalid, "cannot be used"},
			{belay.Repair{Skip: []belay.TaskSkip{skip("b", deep)}}, belay.CodeInvalid, "output of b"},
			{belay.Repair{Skip: []belay.TaskSkip{skip("b", "1"), skip("b", "2")}}, belay.CodeInvalid, "twice"},
			{belay.Repair{Skip: []belay.TaskSkip{skip("b", `"`+strings.Repeat("x", belay.MaxPayload)+`"`)}},
				belay.CodePayloadTooLarge, "the limit is"},
			{belay.Repair{From: []string{"b"}, Generation: 2}, belay.CodeConflict, "the present one is 1"},
			{belay.Repair{From: []string{"b"}, Generation: -1}, belay.CodeInvalid, "negative"},
			{belay.Repair{From: []string{"b"}, Reason: strings.Repeat("x", 201)}, belay.CodeInvalid, "the reason"},
			{belay.Repair{From: []string{"b"}, Reason: "a\x00b"}, belay.CodeInvalid, "control"},
			{belay.Repair{From: []string{"b"}, Actor: "a\nb"}, belay.CodeInvalid, "control"},
		} {
			bad.repair.Execution = id
			l.refused(bad.repair, bad.code, bad.text)
		}
		if e, err := l.kit.Backend.Execution(t.Context(), id); err != nil || e.Generation != 1 ||
			e.State != belay.Failed {
			t.Errorf("%+v %v", e, err)
		}
		child := l.page(belay.TaskQuery{Execution: id, Task: "a"}).Tasks[0].Execution
		l.refused(belay.Repair{Execution: child, From: []string{"a"}}, belay.CodeInvalid, "not run a document")
		running := l.start("name: x\ntasks:\n  - {id: a, uses: nap, with: a}\n")
		l.kit.Advance(time.Minute)
		l.refused(belay.Repair{Execution: running, From: []string{"a"}}, belay.CodeConflict, "cancel it first")
		l.act(running, belay.ActionCancel)
		l.ends(running, belay.Cancelled, "")
		l.repair(belay.Repair{Execution: running, Skip: []belay.TaskSkip{skip("a", "1")}})
		l.ends(running, belay.Succeeded, "succeeded")
	})
}

// Rule: a repair with the same operation takes effect once; of two repairs at the same time, one is refused.
func TestRepairsAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		l.breaks("b")
		id := l.start(diamond)
		l.ends(id, belay.Failed, "b is broken")
		r := belay.Repair{Execution: id, From: []string{"a"}, Skip: []belay.TaskSkip{skip("b", `{"x": 1}`)},
			Op: belay.OpID{1}}
		l.repair(r)
		l.ends(id, belay.Succeeded, "")
		l.repair(r)
		r.From = []string{"c"}
		l.refused(r, belay.CodeIdempotencyMismatch, "another repair")

		id = l.start(diamond)
		l.ends(id, belay.Failed, "b is broken")
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() {
				_, errs[i] = l.Repair(t.Context(), belay.Repair{
					Execution: id, Skip: []belay.TaskSkip{skip("b", fmt.Sprint(i))},
				})
			})
		}
		wg.Wait()
		done := 0
		for _, err := range errs {
			switch {
			case err == nil:
				done++
			case belay.CodeOf(err) != belay.CodeConflict:
				t.Error(err)
			}
		}
		if done != 1 {
			t.Errorf("%d repairs took effect", done)
		}
		l.ends(id, belay.Succeeded, "")
	})
}

// Rule: another input runs all tasks again, without the repairs of the earlier input.
func TestAnotherInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		l.breaks("i1", "x")
		id := l.start(fan, `{"n": 1}`)
		l.ends(id, belay.Failed, "1 of 1 items failed")
		l.repair(belay.Repair{Execution: id, Skip: []belay.TaskSkip{skip("work", `["x"]`)}})
		l.ends(id, belay.Failed, "x is broken")
		if _, err := l.Viewer.NewInput(t.Context(), l.Backend, id, json.RawMessage(`{"n": "x"}`)); err == nil ||
			!strings.Contains(err.Error(), "input.n: got string") {
			t.Error(err)
		}
		input, err := l.Viewer.NewInput(t.Context(), l.Backend, id, json.RawMessage(`{"n": 2}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := runner.CheckInput(input); err != nil {
			t.Error(err)
		}
		l.breaks()
		l.noted()
		if _, err := l.kit.Backend.Control(t.Context(), belay.Control{
			Execution: id, Action: belay.ActionRequeue, Input: input,
		}); err != nil {
			t.Fatal(err)
		}
		l.ends(id, belay.Succeeded, "got i1+got i2")
		if got := l.noted(); !strings.HasPrefix(got, "2 i") {
			t.Errorf("%s ran", got)
		}
	})
}

// Rule: callers cannot put repairs into the input of a submission or of a requeue.
func TestForgedRepairs(t *testing.T) {
	doc := "name: x\ntasks:\n  - {id: a, uses: note}\n"
	encode := func(repairs ...runner.Repair) json.RawMessage {
		data, err := json.Marshal(runner.Input{Document: doc, Hash: definition.Hash([]byte(doc)), Repair: repairs})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	own := runner.Repair{Generation: 2, Skip: "a", By: "ann"}
	forged := runner.Repair{Generation: 3, Skip: "a", By: "ann"}
	for _, c := range []struct {
		input, before json.RawMessage
		ok            bool
	}{
		{encode(), nil, true},
		{encode(own), nil, false},
		{encode(own), encode(), false},
		{encode(own), encode(own), true},
		{encode(), encode(own), true},
		{encode(own, forged), encode(own), false},
		{encode(own), json.RawMessage(`7`), false},
	} {
		if err := runner.CheckReopened(c.input, c.before); (err == nil) != c.ok {
			t.Errorf("%s after %s: %v", c.input, c.before, err)
		}
	}
}

// Rule: work that compensation has undone is done again beside a repair, unless the repair skips it; a task that
// compensates cannot be repaired itself.
func TestRepairAfterCompensation(t *testing.T) {
	const doc = `
name: saga
tasks:
  - {id: book, uses: note, with: book}
  - {id: unbook, uses: note, needs: book, with: unbook}
  - {id: pay, uses: note, needs: book, with: "pay ${{ tasks.book.output }}", on_failure: {compensate: [unbook]}}
output: ${{ tasks.pay.output }}
`
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		for _, by := range []bool{false, true} {
			l.breaks("pay book", "pay hand")
			id := l.start(doc)
			l.ends(id, belay.Failed, "pay book is broken")
			l.refused(belay.Repair{Execution: id, Skip: []belay.TaskSkip{skip("unbook", "1")}}, belay.CodeInvalid,
				"undoes the work of book")
			l.noted()
			r := belay.Repair{Execution: id, Skip: []belay.TaskSkip{skip("pay", `"paid"`)}}
			want := "book"
			if by {
				r.Skip = append(r.Skip, skip("book", `"hand"`))
				want = ""
			}
			l.repair(r)
			l.ends(id, belay.Succeeded, "paid")
			if got := l.noted(); got != want {
				t.Errorf("%q ran, want %q", got, want)
			}
			if !by {
				continue
			}
			// A booking that was made by hand is not undone.
			id = l.start(doc)
			l.ends(id, belay.Failed, "pay book is broken")
			l.noted()
			l.repair(belay.Repair{Execution: id, Skip: []belay.TaskSkip{skip("book", `"hand"`)}})
			l.ends(id, belay.Failed, "pay hand is broken")
			if got := l.noted(); got != "pay hand" {
				t.Errorf("%q ran", got)
			}
		}
	})
}

// Rule: a worker that crashes before or after any of its writes in a repaired generation does not change the outcome:
// finished tasks do not run again, and the skipped task never runs.
func TestCrashesInARepairedGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n := 1; n <= 12; n++ {
			for _, after := range []bool{false, true} {
				l := newLab(t)
				l.breaks("b", "d")
				id := l.start(diamond)
				l.ends(id, belay.Failed, "b is broken")
				l.noted()
				if after {
					l.kit.CrashAfter(n)
				} else {
					l.kit.CrashBefore(n)
				}
				l.repair(belay.Repair{Execution: id, From: []string{"c"}, Skip: []belay.TaskSkip{skip("b", `"x"`)}})
				synctest.Wait()
				l.kit.Crash()
				l.kit.Restart()
				l.ends(id, belay.Succeeded, "d x c")
				got := strings.Fields(l.noted())
				if len(got) < 4 || got[0] != "c" || strings.Contains(strings.Join(got, " "), "a ") {
					t.Errorf("crash %d, after %t: %v", n, after, got)
				}
				for _, s := range got {
					if s == "a" || s == "b" {
						t.Errorf("crash %d, after %t: %s ran: %v", n, after, s, got)
					}
				}
				l.close()
			}
		}
	})
}

// Rule: from makes a task run again although its child of an earlier generation has succeeded, and the run that waited
// for this child was lost before it saved that. Without from, the result of the child counts.
func TestFromIgnoresAnEndThatWasNotSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, from := range []bool{false, true} {
			l := newLab(t)
			l.kit.CrashBefore(2) // the second checkpoint would have the end of a
			id := l.start(diamond)
			synctest.Wait()
			l.kit.Crash()
			// b and c are started before the checkpoint, and may have begun already.
			if got := strings.Fields(l.noted()); len(got) == 0 || got[0] != "a" || slices.Contains(got[1:], "a") {
				t.Errorf("%v ran before the crash", got)
			}
			l.act(id, belay.ActionCancel)
			l.kit.Restart()
			l.ends(id, belay.Cancelled, "")
			want := 0
			if from {
				want = 1
				l.repair(belay.Repair{Execution: id, From: []string{"a"}})
			} else {
				l.act(id, belay.ActionRetry)
			}
			l.ends(id, belay.Succeeded, "d b c")
			n := 0
			for _, s := range strings.Fields(l.noted()) {
				if s == "a" {
					n++
				}
			}
			if n != want {
				t.Errorf("from %t: a ran %d times, want %d", from, n, want)
			}
			l.close()
		}
	})
}

// overtaken is a Backend on which something happens between the reads of a repair and its write.
type overtaken struct {
	belay.Backend
	first func()
}

func (o *overtaken) Control(ctx context.Context, c belay.Control) (belay.Execution, error) {
	o.first()
	return o.Backend.Control(ctx, c)
}

// Rule: a repair is refused if another generation has begun and failed since the repair has read the execution.
func TestARepairIsOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		l.breaks("b")
		id := l.start(diamond)
		l.ends(id, belay.Failed, "b is broken")
		b := &overtaken{Backend: l.kit.Backend, first: func() {
			l.act(id, belay.ActionRetry)
			l.ends(id, belay.Failed, "b is broken")
		}}
		_, err := l.Viewer.Repair(t.Context(), b, belay.Repair{
			Execution: id, Skip: []belay.TaskSkip{skip("b", "1")},
		})
		if belay.CodeOf(err) != belay.CodeConflict {
			t.Error(err)
		}
		if e, err := l.kit.Backend.Execution(t.Context(), id); err != nil || e.Generation != 2 {
			t.Errorf("%+v %v", e, err)
		}
	})
}
