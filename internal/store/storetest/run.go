package storetest

import (
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// runs lists runs, part by part, with the given number of rows in each part.
func (e *env) runs(q store.RunQuery, limit int) (all []belay.RunID) {
	e.Helper()
	for part := (store.Query{Of: store.Runs, Runs: q, Limit: limit}); ; {
		found := e.query(part)
		if len(found.Runs) > limit {
			e.Errorf("a part has %d runs, more than %d", len(found.Runs), limit)
		}
		for _, r := range found.Runs {
			all = append(all, belay.RunID{Execution: r.Execution, Token: r.Token})
		}
		if part.After = found.Next; part.After == "" {
			return all
		}
	}
}

// runOf returns the id of a lease's run.
func runOf(l belay.Lease) belay.RunID { return belay.RunID{Execution: l.Execution, Token: l.Token} }

var runCases = []testCase{
	{"runs of all executions are listed in parts, the run that started last first, and selected", func(e *env) {
		worker, other := e.open(), e.open(func(s *belay.WorkerSpec) { s.Name = "other" })
		var all []belay.RunID
		outcomes := []belay.Outcome{belay.OutcomeSucceeded, belay.OutcomeFailed, 0, belay.OutcomeSuspended, 0}
		for i, outcome := range outcomes {
			owner := worker
			if i%2 == 1 {
				owner = other
			}
			l := e.run(owner, int64(i+1))
			e.clock.Advance(time.Second)
			if all = append(all, runOf(l)); outcome != 0 {
				e.settle(l, outcome)
			}
		}
		failed := all[1].Execution
		e.control(failed, belay.ActionRetry)
		again := e.take(worker, 9, failed)
		e.submit() // has no run
		newest := append(slices.Clone(all), runOf(again))
		slices.Reverse(newest)
		for _, limit := range []int{1, 2, 3, 6, 100} {
			e.same("all", newest, e.runs(store.RunQuery{}, limit))
			e.same("examined one by one", newest, e.runs(store.RunQuery{
				Scan: 1, Matches: func(store.RunRow) bool { return true },
			}, limit))
			e.same("of the other worker", []belay.RunID{all[3], all[1]}, e.runs(store.RunQuery{
				Matches: func(r store.RunRow) bool { return r.Worker == other },
			}, limit))
			e.same("not ended", []belay.RunID{runOf(again), all[4], all[2]}, e.runs(store.RunQuery{
				Matches: func(r store.RunRow) bool { return r.EndedSeq == 0 },
			}, limit))
			e.same("failed", []belay.RunID{all[1]}, e.runs(store.RunQuery{
				Matches: func(r store.RunRow) bool { return r.Outcome == belay.OutcomeFailed },
			}, limit))
		}
		at := e.query(store.Query{Of: store.Runs}).Runs[3].StartedAt // of all[2]
		e.same("started before", []belay.RunID{all[1], all[0]}, e.runs(store.RunQuery{Before: at}, 100))
		e.same("not started before", newest[:4], e.runs(store.RunQuery{Since: at}, 100))
		for _, cursor := range []string{"x", "1/2", "1/ex_0/1", "1/" + failed.String() + "/x", "a/b/c/d"} {
			_, err := e.store.Query(e.Context(), store.Query{Of: store.Runs, After: cursor})
			if belay.CodeOf(err) != belay.CodeInvalid {
				e.Errorf("cursor %q: %v", cursor, err)
			}
		}
	}},
	{"a run is listed with the key that follows from the content of its execution, with no other key", func(e *env) {
		worker := e.open()
		content := e.submit(func(s *belay.Submission) { s.Idempotency = belay.IdempotencyByContent })
		first := e.take(worker, 1, content)
		e.clock.Advance(time.Second)
		e.take(worker, 2, e.submit(func(s *belay.Submission) { s.IdempotencyKey = "k" }))
		e.settle(first, belay.OutcomeFailed)
		e.ok(&machine.Act{Control: belay.Control{
			Execution: content, Action: belay.ActionRequeue, Input: []byte("7"), Op: e.id(),
		}})
		e.clock.Advance(time.Second)
		e.take(worker, 3, content)
		rec, err := e.store.Read(e.Context(), store.Read{Execution: content, Spec: true})
		if err != nil || rec.Spec.Key == "" {
			e.Fatalf("%+v: %v", rec, err)
		}
		of := func(generation int, key string, inputGen int) store.RunRow {
			return store.RunRow{Run: &machine.Run{Generation: generation}, Content: key, InputGen: inputGen}
		}
		var got []store.RunRow
		for _, r := range e.query(store.Query{Of: store.Runs}).Runs {
			got = append(got, of(r.Generation, r.Content, r.InputGen))
		}
		e.same("runs", []store.RunRow{of(2, rec.Spec.Key, 2), of(1, "", 1), of(1, rec.Spec.Key, 2)}, got)
	}},
	{"a run is listed with its workflow and error, without its output and stack", func(e *env) {
		worker := e.open()
		running := e.run(worker, 1)
		e.clock.Advance(time.Second)
		l := e.run(worker, 2)
		e.ok(&machine.Settle{Settlement: belay.Settlement{
			Lease: l, Op: e.id(), Outcome: belay.OutcomeFailed, Output: []byte(`"out"`), CostTokens: 7,
			Failure: &belay.Failure{Class: belay.ClassPermanent, Message: "broken", Stack: "main.go:1"},
		}})
		found := e.query(store.Query{Of: store.Runs}).Runs
		if len(found) != 2 {
			e.Fatalf("%d runs", len(found))
		}
		for i, id := range []belay.ExecutionID{l.Execution, running.Execution} {
			want := *e.read(store.Read{Execution: id, Runs: 1}).Runs[0]
			want.Output, want.Stack, want.Op, want.OpSum = nil, "", belay.OpID{}, machine.OpSum{}
			got := *found[i].Run
			got.Op, got.OpSum = belay.OpID{}, machine.OpSum{} // a list may leave out these two fields
			e.same("run", want, got)
			e.same("workflow", "w", found[i].Workflow)
		}
		if r := found[0]; r.Message != "broken" || r.Cost != 7 || r.EndedAt == 0 {
			e.Errorf("%+v", *r.Run)
		}
	}},
	{"a run that was assigned and has not started is not listed", func(e *env) {
		l := e.run(e.open(), 1)
		e.mustWrite(&machine.Changes{Runs: []*machine.Run{{
			Execution: l.Execution, Token: l.Token + 1, ScheduledSeq: 9, ScheduledAt: e.now(), New: true,
		}}})
		e.same("runs", []belay.RunID{runOf(l)}, e.runs(store.RunQuery{}, 10))
	}},
}
