package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

var pruneCases = []testCase{
	{"an execution that ended before the moment is deleted with all its rows", func(e *env) {
		l, _ := e.eventful()
		e.clock.Advance(time.Minute)
		moment := e.now()
		young := e.run(e.open(), 1)
		e.settle(young, belay.OutcomeFailed)
		active := e.submit()
		if n := e.prune(e.row(l.Execution).FinishedAt, 0); n != 0 {
			e.Errorf("%d deleted that did not end before the moment", n)
		}
		if n := e.prune(moment, 0); n != 1 {
			e.Errorf("%d deleted, want the one that ended", n)
		}
		e.same("left", []belay.ExecutionID{active, young.Execution}, e.list(store.List{}))
		if _, err := e.store.Read(e.Context(),
			store.Read{Execution: l.Execution}); belay.CodeOf(err) != belay.CodeNotFound {
			e.Errorf("reading a deleted execution: %v", err)
		}
		got, err := e.store.Counts(e.Context())
		if err != nil {
			e.Fatal(err)
		}
		if got.Runs != 1 || got.Checkpoints != 0 || got.DeadLetters != 1 {
			e.Errorf("rows are left behind: %+v", got)
		}
		if n := e.prune(e.now()+1, 0); n != 1 { // the failed execution, with its dead letter
			e.Errorf("%d deleted, want 1", n)
		}
		if got, err = e.store.Counts(e.Context()); err != nil || got.DeadLetters != 0 || got.Runs != 0 {
			e.Errorf("rows are left behind: %+v (%v)", got, err)
		}
	}},
	{"no more than the limit is deleted, the oldest first", func(e *env) {
		var all []belay.ExecutionID
		for range 5 {
			all = append(all, e.submit())
			e.control(all[len(all)-1], belay.ActionCancel)
		}
		e.clock.Advance(time.Second)
		if n := e.prune(e.now(), 2); n != 2 {
			e.Errorf("%d deleted, want 2", n)
		}
		e.same("left", []belay.ExecutionID{all[4], all[3], all[2]}, e.list(store.List{}))
		if n := e.prune(e.now(), 2) + e.prune(e.now(), 2) + e.prune(e.now(), 2); n != 3 {
			e.Errorf("%d deleted, want 3", n)
		}
	}},
	{"an execution stays while its parent or a child has not ended", func(e *env) {
		worker := e.open()
		waits, ended := e.run(worker, 1), e.run(worker, 2)
		done := e.child(waits, "done")
		e.control(done, belay.ActionCancel)
		e.child(ended, "open", policy(belay.Policy{Abandon: true}))
		e.settle(ended, belay.OutcomeSucceeded)
		e.clock.Advance(time.Second)
		if n := e.prune(e.now(), 0); n != 0 {
			e.Errorf("%d deleted, want none: a parent waits, a child is open", n)
		}
		e.settle(waits, belay.OutcomeSucceeded)
		e.clock.Advance(time.Second)
		if n := e.prune(e.now(), 0); n != 2 {
			e.Errorf("%d deleted, want the parent that waited and its child", n)
		}
	}},
	{"an execution that a retry may need stays as long as its root, and is deleted with it", func(e *env) {
		worker := e.open()
		root := e.run(worker, 1)
		child := e.take(worker, 2, e.child(root, "child"))
		grandchild := e.child(child, "grandchild")
		e.control(grandchild, belay.ActionCancel)
		e.settle(child, belay.OutcomeSucceeded)
		e.clock.Advance(time.Minute)
		between := e.now()
		e.clock.Advance(time.Minute)
		e.settle(root, belay.OutcomeFailed)
		e.clock.Advance(time.Minute)
		if n := e.prune(between, 0); n != 0 {
			e.Errorf("%d deleted, want none: the root may be run again", n)
		}
		e.control(root.Execution, belay.ActionRetry)
		if n := e.prune(e.now(), 0); n != 0 {
			e.Errorf("%d deleted, want none: the root runs again", n)
		}
		e.control(root.Execution, belay.ActionCancel)
		e.clock.Advance(time.Second)
		if n := e.prune(e.now(), 3); n != 3 {
			e.Errorf("%d deleted, want the root and all below it", n)
		}
		e.same("left", []belay.ExecutionID(nil), e.list(store.List{Children: true}))
	}},
	{"a descendant that has not ended keeps its whole tree", func(e *env) {
		worker := e.open()
		root := e.run(worker, 1)
		child := e.take(worker, 2, e.child(root, "child"))
		lives := e.child(child, "lives on", policy(belay.Policy{Abandon: true}))
		e.settle(child, belay.OutcomeSucceeded)
		e.settle(root, belay.OutcomeSucceeded)
		e.clock.Advance(time.Second)
		if n := e.prune(e.now(), 0); n != 0 {
			e.Errorf("%d deleted, want none", n)
		}
		e.control(lives, belay.ActionCancel)
		moment := e.now()
		if n := e.prune(moment, 0); n != 0 {
			e.Errorf("%d deleted, want none: one ended at the moment", n)
		}
		if n := e.prune(moment+1, 0); n != 3 {
			e.Errorf("%d deleted, want all three", n)
		}
	}},
	{"a tree too large for one commit is deleted from its leaves, once it is forgotten", func(e *env) {
		worker := e.open()
		root := e.run(worker, 1)
		child := e.take(worker, 2, e.child(root, "child"))
		var leaves []belay.ExecutionID
		for _, key := range []string{"a", "b", "c"} {
			leaves = append(leaves, e.child(child, key))
			e.control(leaves[len(leaves)-1], belay.ActionCancel)
		}
		e.settle(child, belay.OutcomeSucceeded)
		e.settle(root, belay.OutcomeFailed)
		e.clock.Advance(time.Second)
		p := e.pruned(2)
		e.same("large", []belay.ExecutionID{root.Execution}, p.Large)
		if p.Executions != 0 {
			e.Errorf("%d deleted of a tree that may be run again", p.Executions)
		}
		e.ok(&machine.Forget{Execution: root.Execution, Before: e.now()})
		retry := &machine.Act{Control: belay.Control{Execution: root.Execution, Action: belay.ActionRetry}}
		if err := e.fold(retry)[0].Err; belay.CodeOf(err) != belay.CodeConflict {
			e.Errorf("run again after it was forgotten: %v", err)
		}
		left := []belay.ExecutionID{root.Execution, child.Execution, leaves[0], leaves[1], leaves[2]}
		for _, want := range []int{2, 1, 2} {
			if p = e.pruned(2); p.Executions != want {
				e.Errorf("%+v, want %d deleted", p, want)
			}
			rows := e.list(store.List{Children: true})
			for _, id := range rows {
				if parent := e.row(id).Parent; !parent.IsZero() && !slices.Contains(rows, parent) {
					e.Errorf("%s is left without its parent", id)
				}
			}
			if left = left[:len(left)-want]; len(rows) != len(left) {
				e.Errorf("%d left, want %d", len(rows), len(left))
			}
		}
		if p = e.pruned(2); p.Executions != 0 || p.More {
			e.Errorf("%+v in the end, want nothing", p)
		}
	}},
	{"the tree of a root that an operator deletes is deleted at once, in parts, and nothing else", func(e *env) {
		worker := e.open()
		root, other := e.run(worker, 1), e.run(worker, 2, func(s *belay.Submission) { s.IdempotencyKey = "k" })
		for _, key := range []string{"a", "b", "c"} {
			e.control(e.child(root, key), belay.ActionCancel)
		}
		e.settle(root, belay.OutcomeFailed)
		e.settle(other, belay.OutcomeSucceeded)
		only := func(id belay.ExecutionID, limit int) store.Pruned {
			e.Helper()
			p, err := e.store.Prune(e.Context(), store.Only(id), limit)
			if err != nil {
				e.Fatal(err)
			}
			return p
		}
		if p := only(root.Execution, 0); p.Executions != 0 || p.More {
			e.Errorf("%+v before the execution was deleted", p)
		}
		e.ok(&machine.EditLetter{DeadLetterChange: belay.DeadLetterChange{
			Execution: root.Execution, Action: belay.DeadLetterDiscard,
		}})
		e.control(root.Execution, belay.ActionDelete)
		e.control(other.Execution, belay.ActionDelete)
		all := 0
		for p := (store.Pruned{More: true}); p.More; {
			if p = only(root.Execution, 2); p.Executions > 2 || p.Sessions+p.Keys+p.Gates > 0 {
				e.Errorf("one part: %+v", p)
			}
			if all += p.Executions; all > 4 {
				e.Fatalf("%d deleted of four", all)
			}
		}
		if all != 4 {
			e.Errorf("%d deleted of four", all)
		}
		e.same("left", []belay.ExecutionID{other.Execution}, e.list(store.List{Children: true}))
		if p := only(other.Execution, 0); p.Executions != 1 {
			e.Errorf("the other: %+v", p)
		}
		trail := slices.DeleteFunc(e.query(store.Query{Of: store.Trail}).Trail, func(a *machine.Audit) bool {
			return a.Action != "delete"
		})
		if len(trail) != 2 || trail[0].Kind != machine.ExecutionObject || trail[0].Actor != "me" ||
			trail[0].Reason != "because" || trail[0].Action != "delete" {
			e.Errorf("audit %+v", trail)
		}
	}},
	{"an execution with too many rows for one commit is deleted in several, once it is forgotten", func(e *env) {
		l := e.run(e.open(), 1)
		rows := &machine.Changes{}
		for i := range store.FellRows + 250 {
			rows.Checkpoints = append(rows.Checkpoints, &machine.Checkpoint{
				Execution: l.Execution, Seq: int64(1000 + i), Kind: belay.KindStep, Key: "k", Token: 1, At: 1,
			})
		}
		x := *e.row(l.Execution)
		x.Seq = int64(1000 + len(rows.Checkpoints))
		rows.Executions = []*machine.Execution{&x}
		e.mustWrite(rows)
		e.append(l, "log", 0, "text")
		e.settle(l, belay.OutcomeSucceeded)
		e.clock.Advance(time.Second)
		e.same("large", []belay.ExecutionID{l.Execution}, e.pruned(10).Large)
		e.ok(&machine.Forget{Execution: l.Execution, Before: e.now()})
		for calls := range 10 {
			p := e.pruned(10)
			if p.Executions == 1 {
				break
			}
			if !p.More || calls == 9 {
				e.Fatalf("after %d calls: %+v", calls+1, p)
			}
			e.row(l.Execution) // the execution's row exists until all its other rows are deleted
		}
		got, err := e.store.Counts(e.Context())
		if err != nil {
			e.Fatal(err)
		}
		if len(got.Executions) > 0 || got.Runs+got.Checkpoints > 0 {
			e.Errorf("rows are left behind: %+v", got)
		}
	}},
	{"trees that stay do not delay the deletion of others", func(e *env) {
		worker := e.open()
		for n := range int64(5) {
			l := e.run(worker, n+1)
			e.child(l, "lives on", policy(belay.Policy{Abandon: true}), priority(1), dueIn(e, time.Hour))
			e.settle(l, belay.OutcomeSucceeded)
		}
		e.clock.Advance(time.Second)
		for range 3 {
			e.control(e.submit(), belay.ActionCancel)
		}
		e.clock.Advance(time.Second)
		gone, calls := 0, 0
		for more := true; more && calls < 20; calls++ {
			p := e.pruned(2)
			gone, more = gone+p.Executions, p.More
		}
		if gone != 3 || calls == 20 {
			e.Errorf("%d deleted in %d calls, want 3", gone, calls)
		}
	}},
	{"a call deletes a limited number of keys and sessions", func(e *env) {
		for i := range 3 {
			id := e.submit(func(s *belay.Submission) { s.IdempotencyKey = fmt.Sprint("k", i) })
			e.control(id, belay.ActionCancel)
			e.ok(&machine.End{Worker: e.open()})
		}
		e.clock.Advance(time.Second)
		if p := e.pruned(2); p.Sessions != 2 || p.Keys != 0 || !p.More {
			e.Errorf("first %+v", p)
		}
		if p := e.pruned(2); p.Sessions != 1 || p.Executions != 1 {
			e.Errorf("then %+v", p)
		}
		e.clock.Advance(store.KeyLife)
		if p := e.pruned(2); p.Keys != 2 || !p.More {
			e.Errorf("a day later %+v", p)
		}
		if p := e.pruned(2); p.Keys != 1 || p.More {
			e.Errorf("and then %+v", p)
		}
	}},
	{"a session is deleted when it ended and owns nothing", func(e *env) {
		worker := e.open()
		l := e.run(worker, 1)
		e.ok(&machine.End{Worker: worker})
		e.clock.Advance(time.Second)
		if n := e.prune(e.now(), 0); n != 0 {
			e.Errorf("%d deleted, want none: it still owns a run", n)
		}
		e.ok(&machine.Lose{Execution: l.Execution, Token: l.Token, Worker: worker})
		living := e.open()
		if n := e.prune(e.now(), 0); n != 1 {
			e.Errorf("%d deleted, want the session", n)
		}
		if all := e.sessions(); len(all) != 1 || all[living] == nil {
			e.Errorf("sessions left: %v", all)
		}
	}},
	{"an idempotency key outlives its execution by a day", func(e *env) {
		key := machine.Key{Workflow: "w", Key: "k"}
		id := e.submit(func(s *belay.Submission) { s.IdempotencyKey = key.Key })
		e.control(id, belay.ActionCancel)
		e.clock.Advance(time.Second)
		e.prune(e.now(), 0)
		e.clock.Advance(store.KeyLife - time.Microsecond)
		e.prune(e.now(), 0)
		if rows := e.rows(machine.Need{Keys: []machine.Key{key}}); len(rows.Keys) != 1 || rows.Keys[0].Execution != id {
			e.Errorf("key %+v, want that of %s", rows.Keys, id)
		}
		e.clock.Advance(time.Microsecond)
		e.prune(e.now(), 0)
		if rows := e.rows(machine.Need{Keys: []machine.Key{key}}); len(rows.Keys) != 0 {
			e.Errorf("key %+v a day later", rows.Keys)
		}
	}},
}

var durableCases = []testCase{
	{"committed rows are there when the store is opened again", func(e *env) {
		l, _ := e.eventful()
		e.append(e.run(e.open(), 1), "log", 0, "text")
		rows := filled(100)
		rows.Beat = time.Second
		e.mustWrite(rows)
		before := snapshotOf(e)
		e.store = e.reopen()
		e.same("rows", before, snapshotOf(e))
		e.same("history", before.Records, snapshotOf(e).Records)
		if e.row(l.Execution).State != belay.Succeeded {
			e.Errorf("the execution is %s", e.row(l.Execution).State)
		}
	}},
	{"the clock does not go back when the store is opened again", func(e *env) {
		e.submit()
		e.clock.Advance(time.Minute)
		e.mustWrite(&machine.Changes{Mark: true, Beat: time.Second})
		marked := e.now()
		e.clock.Advance(-time.Hour)
		e.store = e.reopen()
		if now := e.now(); now != marked {
			e.Errorf("the clock shows %d, want the last mark %d", now, marked)
		}
		if rows := e.rows(machine.Need{}); rows.Mark != marked || rows.Beat != time.Second {
			e.Errorf("mark %d and beat %s, want %d and 1s", rows.Mark, rows.Beat, marked)
		}
	}},
}

// prune deletes the executions and sessions that ended before the given time, and returns their
// number.
func (e *env) prune(before machine.Time, limit int) int {
	e.Helper()
	p, err := e.store.Prune(e.Context(), store.Retention{Before: before, Letters: before}, limit)
	if err != nil {
		e.Fatalf("prune: %v", err)
	}
	return p.Executions + p.Sessions
}

// pruned deletes everything that has ended.
func (e *env) pruned(limit int) store.Pruned {
	e.Helper()
	p, err := e.store.Prune(e.Context(), store.Retention{Before: e.now(), Letters: e.now()}, limit)
	if err != nil {
		e.Fatalf("prune: %v", err)
	}
	return p
}

// take claims an execution, which must be the first due execution of the variable lane.
func (e *env) take(worker belay.WorkerID, number int64, id belay.ExecutionID) belay.Lease {
	e.Helper()
	leases := e.claim(worker, number, 1)
	if len(leases) != 1 || leases[0].Execution != id {
		e.Fatalf("claim %d won %v, not %s", number, leases, id)
	}
	return leases[0]
}

// reopen closes the store and opens it again.
func (e *env) reopen() store.Store {
	e.Helper()
	r, ok := e.store.(Reopener)
	if !ok {
		e.Fatalf("%T cannot be opened again", e.store)
	}
	return r.Reopen(e)
}
