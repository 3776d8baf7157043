package storetest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
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
	{"a list has only executions that match its filter", func(e *env) {
		worker := e.open()
		running := e.run(worker, 1).Execution
		broken := e.run(worker, 2)
		failed := broken.Execution
		e.ok(&machine.Settle{Settlement: belay.Settlement{
			Lease: broken, Op: e.id(), Outcome: belay.OutcomeFailed, Failure: &belay.Failure{
				Class: belay.ClassPermanent, Message: "Connection to the database of Shard %_Q: Ä lost",
			},
		}})
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
			{"states", store.List{
				States: []belay.State{belay.Running, belay.Cancelled},
			}, []belay.ExecutionID{plain, running}},
			{"workflow", store.List{Workflow: "other"}, []belay.ExecutionID{other}},
			{"queue", store.List{Queue: "q"}, []belay.ExecutionID{other}},
			{"key", store.List{Key: "k"}, []belay.ExecutionID{keyed}},
			{"key of another workflow", store.List{Key: "k", Workflow: "other"}, nil},
			{"label", store.List{Labels: map[string]string{"a": "1"}}, []belay.ExecutionID{half, labelled}},
			{"labels", store.List{
				Labels: map[string]string{"a": "1", "b<&>": `"quoted"`},
			}, []belay.ExecutionID{labelled}},
			{"labels among the newest", store.List{
				Labels: map[string]string{"a": "1", "b<&>": `"quoted"`}, Scan: 100,
			}, []belay.ExecutionID{labelled}},
			{"label of the newest", store.List{
				Labels: map[string]string{"a": "1"}, Scan: 1,
			}, []belay.ExecutionID{half}},
			{"label of the newest older ones", store.List{
				Labels: map[string]string{"a": "1"}, Scan: 1, Before: half,
			}, []belay.ExecutionID{labelled}},
			{"label of active ones", store.List{
				Labels: map[string]string{"a": "1"}, Scan: 100, States: belay.ActiveStates(),
			}, []belay.ExecutionID{half, labelled}},
			{"label of active ones, if there are too many", store.List{
				Labels: map[string]string{"a": "1"}, Scan: 1, States: belay.ActiveStates(),
			}, []belay.ExecutionID{half}},
			{"a label that a value contains", store.List{
				Labels: map[string]string{"quoted": ""}, Scan: 100,
			}, nil},
			{"ids", store.List{IDs: []belay.ExecutionID{plain, {9}, half, plain}}, []belay.ExecutionID{half, plain}},
			{"ids of executions in another state", store.List{
				IDs: []belay.ExecutionID{plain, half}, States: []belay.State{belay.Pending}, Scan: 1, Limit: 5,
			}, []belay.ExecutionID{half}},
			{"fewer ids than named", store.List{IDs: []belay.ExecutionID{plain, other, half}, Limit: 2},
				[]belay.ExecutionID{half, other}},
			{"empty label", store.List{Labels: map[string]string{"b<&>": ""}}, []belay.ExecutionID{half}},
			{"label with another value", store.List{Labels: map[string]string{"a": "2"}}, nil},
			{"error", store.List{Error: "of SHARD %_q: Ä"}, []belay.ExecutionID{failed}},
			{"error that none has", store.List{Error: "of shard x"}, nil},
			{"error in another state", store.List{Error: "shard", States: []belay.State{belay.Cancelled}}, nil},
			{"error among the newest", store.List{Error: "shard", Scan: 100}, []belay.ExecutionID{failed}},
			{"all at once", store.List{States: []belay.State{belay.Pending}, Workflow: "w", Queue: "default",
				Labels: map[string]string{"a": "1"}, Before: half, Limit: 9}, []belay.ExecutionID{labelled}},
		} {
			e.same(c.name, c.want, e.list(c.q))
		}
	}},
	{"a list counts the newest executions by state, whatever its states and its page are", func(e *env) {
		worker := e.open()
		p := e.run(worker, 1)
		child := e.child(p, "a")
		var all []belay.ExecutionID
		for i := range 4 {
			all = append(all, e.submit(func(s *belay.Submission) {
				s.Labels = map[string]string{"odd": fmt.Sprint(i % 2)}
			}))
		}
		e.control(all[1], belay.ActionCancel)
		states := func(pending, cancelled, running int) map[belay.State]int {
			m := map[belay.State]int{belay.Pending: pending, belay.Cancelled: cancelled, belay.Running: running}
			maps.DeleteFunc(m, func(_ belay.State, n int) bool { return n == 0 })
			return m
		}
		for _, c := range []struct {
			name  string
			q     store.List
			want  map[belay.State]int
			older bool
		}{
			{"all", store.List{Count: 6}, states(3, 1, 1), false},
			{"the newest", store.List{Count: 3}, states(2, 1, 0), true},
			{"one page of one state", store.List{
				Count: 10, States: []belay.State{belay.Pending}, Before: all[2], Limit: 1, Scan: 1,
			}, states(3, 1, 1), false},
			{"a label", store.List{Count: 10, Labels: map[string]string{"odd": "1"}}, states(1, 1, 0), false},
			{"children", store.List{Count: 1, Parent: p.Execution}, states(1, 0, 0), false},
			{"with children", store.List{Count: 6, Children: true}, states(4, 1, 1), false},
			{"ids", store.List{Count: 10, IDs: []belay.ExecutionID{child}}, nil, false},
			{"no count", store.List{}, nil, false},
		} {
			list, err := e.store.List(e.Context(), c.q)
			if err != nil {
				e.Fatalf("%s: %v", c.name, err)
			}
			e.same(c.name, c.want, list.States)
			e.same(c.name+": older", c.older, list.Older)
		}
	}},
	{"a list has only executions older than Before", func(e *env) {
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
	{"a list examines a limited number and says how far it came", func(e *env) {
		var all []belay.ExecutionID
		for i := range 6 {
			e.clock.Advance(time.Second)
			all = append(all, e.submit(func(s *belay.Submission) {
				if i == 0 {
					s.Workflow, s.IdempotencyKey, s.Labels = "rare", "k", map[string]string{"a": "1"}
				}
			}))
			e.control(all[i], belay.ActionCancel)
		}
		rare := store.List{Workflow: "rare", Limit: 2, Scan: 4}
		ids, last := e.search(rare)
		e.same("the first part", []belay.ExecutionID(nil), ids)
		e.same("its last", all[2], last)
		rare.Before = last
		ids, last = e.search(rare)
		e.same("the second part", all[:1], ids)
		e.same("its last", belay.ExecutionID{}, last)
		labelled := store.List{Labels: map[string]string{"a": "1"}, Limit: 1, Scan: 3}
		_, last = e.search(labelled)
		e.same("the last with a label", all[3], last)
		ids, last = e.search(store.List{Limit: 2, Scan: 4})
		e.same("enough of all", []belay.ExecutionID{all[5], all[4]}, ids)
		e.same("their last", belay.ExecutionID{}, last)
	}},
	{"a key, and executions that have not ended, are found whatever Scan is", func(e *env) {
		worker := e.open()
		waiting := e.run(worker, 1)
		e.settle(waiting, belay.OutcomeSuspended)
		running := e.run(worker, 2)
		keyed := e.submit(func(s *belay.Submission) { s.IdempotencyKey = "k" })
		other := e.submit(func(s *belay.Submission) { s.Workflow, s.IdempotencyKey = "other", "k" })
		for range 9 {
			e.control(e.submit(), belay.ActionCancel)
		}
		one := func(q store.List, want ...belay.ExecutionID) {
			e.Helper()
			q.Limit, q.Scan = 5, 4
			ids, last := e.search(q)
			e.same("found", want, ids)
			e.same("last", belay.ExecutionID{}, last)
		}
		one(store.List{Key: "k"}, other, keyed)
		one(store.List{Key: "k", Workflow: "other"}, other)
		one(store.List{Key: "k", States: []belay.State{belay.Failed}})
		one(store.List{States: []belay.State{belay.Waiting, belay.Paused}}, waiting.Execution)
		one(store.List{States: []belay.State{belay.Running}}, running.Execution)
		one(store.List{States: []belay.State{belay.Pending}}, other, keyed)
		one(store.List{States: []belay.State{belay.Pending}, Before: other}, keyed)
		e.submit() // one more than the list may examine
		_, last := e.search(store.List{States: []belay.State{belay.Waiting}, Limit: 5, Scan: 4})
		if last.IsZero() {
			e.Errorf("more open executions than Scan were all examined")
		}
	}},
	{"outputs are listed up to a size", func(e *env) {
		worker := e.open()
		l := e.run(worker, 1)
		e.settle(l, belay.OutcomeSucceeded)
		for size, want := range map[int64]string{0: "", 4: "", 5: `"out"`, 100: `"out"`} {
			list, err := e.store.List(e.Context(), store.List{IDs: []belay.ExecutionID{l.Execution}, Outputs: size})
			if err != nil {
				e.Fatal(err)
			}
			v := machine.View(list.Records[0])
			if string(v.Output) != want || v.Input != nil {
				e.Errorf("up to %d bytes: output %s and input %s", size, v.Output, v.Input)
			}
		}
	}},
	{"payloads are listed only if asked for", func(e *env) {
		worker := e.open()
		l := e.run(worker, 1, func(s *belay.Submission) { s.Labels = map[string]string{"a": "1"} })
		e.settle(l, belay.OutcomeSucceeded)
		for _, payloads := range []bool{false, true} {
			list, err := e.store.List(e.Context(), store.List{Payloads: payloads})
			if err != nil {
				e.Fatal(err)
			}
			rec := list.Records[0]
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
	ids, _ := e.search(q)
	return ids
}

// search reads a list, and returns its executions and the last execution that the store examined.
func (e *env) search(q store.List) (ids []belay.ExecutionID, last belay.ExecutionID) {
	e.Helper()
	list, err := e.store.List(e.Context(), q)
	if err != nil {
		e.Fatalf("list: %v", err)
	}
	for _, rec := range list.Records {
		ids = append(ids, rec.Execution.ID)
	}
	if at := e.createdAt(list.Last); list.At != at {
		e.Errorf("looked back until %d, want %d", list.At, at)
	}
	return ids, list.Last
}

// createdAt returns the time at which an execution was created, 0 if there is no such execution.
func (e *env) createdAt(id belay.ExecutionID) machine.Time {
	e.Helper()
	if id.IsZero() {
		return 0
	}
	return e.row(id).CreatedAt
}
