package storetest

import (
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store"
)

var listCases = []testCase{
	{"a list has all roots, newest first", func(e *env) {
		l := e.run(e.open(), 1)
		a, b := e.submit(), e.submit()
		e.control(a, belay.ActionCancel)
		e.same("ids", []belay.ExecutionID{b, a, l.Execution}, e.list(store.List{}))
	}},
	{"children are listed of one parent or with all", func(e *env) {
		worker := e.open()
		p, q := e.run(worker, 1), e.run(worker, 2)
		a, b := e.child(p, "a"), e.child(q, "b")
		e.same("of one", []belay.ExecutionID{a}, e.list(store.List{Parent: p.Execution}))
		e.same("roots", []belay.ExecutionID{q.Execution, p.Execution}, e.list(store.List{}))
		all := []belay.ExecutionID{p.Execution, q.Execution, a, b}
		slices.SortFunc(all, func(a, b belay.ExecutionID) int { return b.Compare(a) })
		e.same("all", all, e.list(store.List{Children: true}))
	}},
	{"a list keeps to its filter", func(e *env) {
		worker := e.open()
		running := e.run(worker, 1).Execution
		plain := e.submit()
		other := e.submit(func(s *belay.Submission) { s.Workflow, s.Queue = "other", "q" })
		keyed := e.submit(func(s *belay.Submission) { s.IdempotencyKey = "k" })
		labelled := e.submit(func(s *belay.Submission) { s.Labels = map[string]string{"a": "1", "b<&>": `"quoted"`} })
		half := e.submit(func(s *belay.Submission) { s.Labels = map[string]string{"a": "1", "b<&>": ""} })
		e.control(plain, belay.ActionCancel)
		for _, c := range []struct {
			name string
			q    store.List
			want []belay.ExecutionID
		}{
			{"one state", store.List{States: []belay.State{belay.Running}}, []belay.ExecutionID{running}},
			{"states", store.List{States: []belay.State{belay.Running, belay.Cancelled}}, []belay.ExecutionID{plain, running}},
			{"workflow", store.List{Workflow: "other"}, []belay.ExecutionID{other}},
			{"queue", store.List{Queue: "q"}, []belay.ExecutionID{other}},
			{"key", store.List{Key: "k"}, []belay.ExecutionID{keyed}},
			{"key of another workflow", store.List{Key: "k", Workflow: "other"}, nil},
			{"label", store.List{Labels: map[string]string{"a": "1"}}, []belay.ExecutionID{half, labelled}},
			{"labels", store.List{Labels: map[string]string{"a": "1", "b<&>": `"quoted"`}}, []belay.ExecutionID{labelled}},
			{"empty label", store.List{Labels: map[string]string{"b<&>": ""}}, []belay.ExecutionID{half}},
			{"label with another value", store.List{Labels: map[string]string{"a": "2"}}, nil},
			{"all at once", store.List{States: []belay.State{belay.Pending}, Workflow: "w", Queue: "default", Labels: map[string]string{"a": "1"}, Before: half, Limit: 9}, []belay.ExecutionID{labelled}},
		} {
			e.same(c.name, c.want, e.list(c.q))
		}
	}},
	{"a list goes on before an id", func(e *env) {
		var all []belay.ExecutionID
		for range 5 {
			all = append(all, e.submit())
		}
		slices.Reverse(all)
		var paged []belay.ExecutionID
		for before := (belay.ExecutionID{}); ; before = paged[len(paged)-1] {
			page := e.list(store.List{Before: before, Limit: 2})
			if len(page) > 2 || len(paged) > len(all) {
				e.Fatalf("a page of %d after %d", len(page), len(paged))
			}
			if len(page) == 0 {
				break
			}
			paged = append(paged, page...)
		}
		e.same("ids", all, paged)
	}},
	{"payloads are listed only if asked for", func(e *env) {
		worker := e.open()
		l := e.run(worker, 1, func(s *belay.Submission) { s.Labels = map[string]string{"a": "1"} })
		e.settle(l, belay.OutcomeSucceeded)
		for _, payloads := range []bool{false, true} {
			recs, err := e.store.List(e.Context(), store.List{Payloads: payloads})
			if err != nil {
				e.Fatal(err)
			}
			rec := recs[0]
			if rec.Spec == nil || rec.Spec.Labels["a"] != "1" || (rec.Spec.Input != nil) != payloads {
				e.Errorf("payloads %t: spec %+v", payloads, rec.Spec)
			}
			if (len(rec.Runs) == 1 && string(rec.Runs[0].Output) == `"out"`) != payloads {
				e.Errorf("payloads %t: runs %+v", payloads, rec.Runs)
			}
		}
	}},
}

func (e *env) list(q store.List) []belay.ExecutionID {
	e.Helper()
	recs, err := e.store.List(e.Context(), q)
	if err != nil {
		e.Fatalf("list: %v", err)
	}
	var ids []belay.ExecutionID
	for _, rec := range recs {
		ids = append(ids, rec.Execution.ID)
	}
	return ids
}
