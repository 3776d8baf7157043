package storetest

import (
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

var pruneCases = []testCase{
	{"what ended before a moment is deleted with all its rows", func(e *env) {
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
		if _, err := e.store.Read(e.Context(), store.Read{Execution: l.Execution}); belay.CodeOf(err) != belay.CodeNotFound {
			e.Errorf("reading what was deleted: %v", err)
		}
		got, err := e.store.Counts(e.Context())
		if err != nil {
			e.Fatal(err)
		}
		if got.Runs != 1 || got.Checkpoints != 0 || got.DeadLetters != 1 {
			e.Errorf("rows are left behind: %+v", got)
		}
		if n := e.prune(e.now()+1, 0); n != 1 { // the failed one, and its dead letter
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
	{"what a parent or child that has not ended needs stays", func(e *env) {
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
	{"what was committed is there when the store is opened again", func(e *env) {
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

func (e *env) prune(before machine.Time, limit int) int {
	e.Helper()
	n, err := e.store.Prune(e.Context(), before, limit)
	if err != nil {
		e.Fatalf("prune: %v", err)
	}
	return n
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
