package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

var dueCases = []testCase{
	{"an empty store has nothing due, now or later", func(e *env) {
		e.same("due", store.Due{}, e.due(10))
	}},
	{"expired sessions are due, the longest expired first", func(e *env) {
		ttl := func(d time.Duration) func(*belay.WorkerSpec) {
			return func(s *belay.WorkerSpec) { s.TTL = belay.Duration(d) }
		}
		slow, fast := e.open(ttl(20*time.Second)), e.open(ttl(5*time.Second))
		ended, middle := e.open(ttl(2*time.Second)), e.open(ttl(10*time.Second))
		e.ok(&machine.End{Worker: ended})
		at := func(id belay.WorkerID) machine.Time { return e.sessions()[id].ExpiresAt }
		if d := e.due(10); len(d.Workers) != 0 || d.NextWorker != at(fast) || d.MinTTL != 5*time.Second {
			e.Errorf("%+v, want nothing until the fast one's end at %d", d, at(fast))
		}
		e.clock.Advance(10 * time.Second) // exactly the TTL of the session
		if d := e.due(10); d.NextWorker != at(slow) {
			e.Errorf("the next session ends at %d, want %d", d.NextWorker, at(slow))
		}
		e.same("due", []belay.WorkerID{fast, middle}, e.due(10).Workers)
		e.same("the first that is due", []belay.WorkerID{fast}, e.due(1).Workers)
	}},
	{"executions whose CheckAt has come are due, the longest due first", func(e *env) {
		start := func(d time.Duration) func(*belay.Submission) {
			return policy(belay.Policy{StartTimeout: belay.Duration(d)})
		}
		late, soon := e.submit(start(time.Minute)), e.submit(start(time.Second))
		e.submit()
		if d := e.due(10); len(d.Checks) != 0 || d.NextCheck != e.row(soon).CheckAt {
			e.Errorf("%+v, want nothing until %d", d, e.row(soon).CheckAt)
		}
		e.clock.Advance(time.Second)
		if d := e.due(10); d.NextCheck != e.row(late).CheckAt {
			e.Errorf("next check at %d, want %d", d.NextCheck, e.row(late).CheckAt)
		}
		e.same("due", []belay.ExecutionID{soon}, e.due(10).Checks)
		e.clock.Advance(time.Minute)
		e.same("due later", []belay.ExecutionID{soon, late}, e.due(10).Checks)
		e.same("the first that is due", []belay.ExecutionID{soon}, e.due(1).Checks)
	}},
	{"executions whose session has ended or does not exist are lost", func(e *env) {
		dead, living := e.open(), e.open()
		a, b := e.run(dead, 1), e.run(dead, 2)
		e.run(living, 1)
		orphan := *e.row(e.submit())
		orphan.State, orphan.Worker, orphan.Token, orphan.DueAt = belay.Running, e.id(), 7, 0
		orphan.Losses, orphan.RunAt, orphan.Lane = 3, orphan.CreatedAt.Add(time.Second), orphan.Lane.Alone()
		e.mustWrite(&machine.Changes{Executions: []*machine.Execution{&orphan}})
		e.same("lost while all live", []store.Lost{e.lost(orphan.ID)}, e.due(10).Lost)
		e.ok(&machine.End{Worker: dead})
		e.same("lost", []store.Lost{
			e.lost(a.Execution), e.lost(b.Execution), e.lost(orphan.ID),
		}, e.due(10).Lost)
		if lost := e.due(2).Lost; len(lost) != 2 {
			e.Errorf("%d lost with a limit of 2", len(lost))
		}
	}},
	{"due executions that fail without a worker are found, lane by lane, the longest due first", func(e *env) {
		alone := policy(belay.Policy{OnNoWorker: belay.FailNoWorker})
		other := func(s *belay.Submission) { s.Queue = "other" }
		e.submit()
		e.submit(policy(belay.Policy{OnNoWorker: belay.WaitForWorker}))
		if f := e.query(store.Query{Of: store.NeedingLanes}); len(f.Lanes) != 0 {
			e.Errorf("lanes %+v without such an execution", f.Lanes)
		}
		second, first := e.submit(alone), e.submit(alone)
		e.clock.Advance(time.Second)
		third, elsewhere := e.submit(alone), e.submit(alone, other)
		late := e.submit(alone, func(s *belay.Submission) { s.DueAt = e.store.Now().Add(time.Hour).Time() })
		gone := e.submit(alone)
		e.control(gone, belay.ActionCancel)
		lane, there := e.row(first).Lane, e.row(elsewhere).Lane
		hints := []store.LaneHint{{Lane: lane, At: e.row(first).DueAt}, {Lane: there, At: e.row(elsewhere).DueAt}}
		slices.SortFunc(hints, func(a, b store.LaneHint) int { return cmp.Compare(a.Lane, b.Lane) })
		e.same("lanes", hints, e.query(store.Query{Of: store.NeedingLanes}).Lanes)
		e.same("the first lane", hints[:1], e.query(store.Query{Of: store.NeedingLanes, Limit: 1}).Lanes)
		found := func(ids ...belay.ExecutionID) (all []machine.NoWorker) {
			for _, id := range ids {
				all = append(all, machine.NoWorker{Execution: id, Seq: e.row(id).Seq})
			}
			return all
		}
		q := store.Query{Of: store.Needing, Lane: lane}
		e.same("executions", found(ordered([]belay.ExecutionID{second, first}, []belay.ExecutionID{third})...),
			e.query(q).Needing)
		q.Limit = 2
		e.same("the first two", found(ordered([]belay.ExecutionID{second, first})...), e.query(q).Needing)
		e.same("elsewhere", found(elsewhere), e.query(store.Query{Of: store.Needing, Lane: there}).Needing)
		e.clock.Advance(time.Hour)
		q.Limit = 0
		if all := e.query(q).Needing; len(all) != 4 || all[3].Execution != late {
			e.Errorf("an hour later %+v", all)
		}
		for _, c := range e.query(q).Needing {
			e.ok(&c)
		}
		e.same("afterwards", []machine.NoWorker(nil), e.query(q).Needing)
	}},
	{"the longest due execution of each lane is found, unless a gate has let it through", func(e *env) {
		other := func(s *belay.Submission) { s.Queue = "other" }
		due := func(limit int) (ids []belay.ExecutionID) {
			for _, h := range e.query(store.Query{Of: store.DueLanes, Limit: limit}).Heads {
				if x := e.row(h.Execution); h.Lane != x.Lane || h.At != x.DueAt {
					e.Errorf("%+v, want lane %d since %d", h, x.Lane, x.DueAt)
				}
				ids = append(ids, h.Execution)
			}
			return ids
		}
		e.same("in an empty store", []belay.ExecutionID(nil), due(0))
		worker := e.open()
		holder, ids := e.parked(worker, func(*belay.Submission) {})
		e.same("while it waits at a gate", []belay.ExecutionID(nil), due(0))
		e.clock.Advance(time.Second)
		second := e.submit(other)
		e.clock.Advance(time.Second)
		third := e.submit()
		e.submit(other)
		e.control(e.submit(other), belay.ActionPause)
		e.submit(func(s *belay.Submission) { s.External = true })
		e.submit(func(s *belay.Submission) { s.Queue, s.DueAt = "later", e.store.Now().Add(time.Hour).Time() })
		e.settle(holder, belay.OutcomeSucceeded)
		e.ok(&machine.Admit{Gate: "limit:x", Heads: 1})
		if x := e.row(ids[0]); x.AdmitBy == 0 || x.Lane != e.row(third).Lane || x.DueAt >= e.row(third).DueAt {
			e.Fatalf("the gate has not let it through: %+v", x)
		}
		e.same("the others", []belay.ExecutionID{second, third}, due(0))
		e.same("the first of them", []belay.ExecutionID{second}, due(1))
		e.fold(e.claims(worker, 3, 10))
		e.same("when they run", []belay.ExecutionID{second}, due(0))
		e.clock.Advance(time.Hour)
		if all := due(0); len(all) != 2 || all[0] != second {
			e.Errorf("an hour later %v", all)
		}
	}},
	{"open children of parents that ended, are being cancelled or were reopened are due", func(e *env) {
		worker := e.open()
		ended, cancelled, goesOn, reopened := e.run(worker, 1), e.run(worker, 2), e.run(worker, 3), e.run(worker, 4)
		a, b := e.child(ended, "a"), e.child(ended, "b")
		e.child(ended, "lives on", policy(belay.Policy{Abandon: true}))
		done := e.child(ended, "done")
		c := e.child(cancelled, "c")
		e.child(goesOn, "d")
		f := e.child(reopened, "f")
		e.same("while all go on", []belay.ExecutionID(nil), e.due(10).Children)
		e.control(done, belay.ActionCancel)
		e.settle(ended, belay.OutcomeSucceeded)
		e.control(cancelled.Execution, belay.ActionCancel)
		e.settle(reopened, belay.OutcomeFailed)
		e.control(reopened.Execution, belay.ActionRetry)
		e.same("due", ordered([]belay.ExecutionID{a, b}, []belay.ExecutionID{c}, []belay.ExecutionID{f}),
			e.due(10).Children)
		if first := e.due(1).Children; len(first) != 1 {
			e.Errorf("%d with a limit of 1", len(first))
		}
		for _, id := range e.due(10).Children {
			e.ok(&machine.CancelChild{Execution: id})
		}
		e.same("when all are cancelled", []belay.ExecutionID(nil), e.due(10).Children)
		e.child(cancelled, "lives on too", policy(belay.Policy{Abandon: true}))
		parted := e.due(10).Parted // the open children of these executions must not be cancelled
		e.same("without such children", []belay.ExecutionID{ended.Execution, cancelled.Execution}, parents(parted))
		e.same("the first of them", parted[:1], e.due(1).Parted)
		for i := range parted {
			e.ok(&parted[i])
		}
		if d := e.due(10); len(d.Children)+len(d.Parted) != 0 {
			e.Errorf("due again though nothing is left to do: %+v", d)
		}
		e.settle(goesOn, belay.OutcomeSucceeded)
		if d := e.due(10); len(d.Children) != 1 || len(d.Parted) != 0 {
			e.Errorf("after the end of another: %+v", d)
		}
	}},
	{"descendants that a spent budget paused are due when the budget is raised or the root has ended", func(e *env) {
		worker := e.open()
		var roots, children []belay.ExecutionID
		for i := range 3 {
			root := e.run(worker, int64(2*i+1), func(s *belay.Submission) { s.Budget = &belay.Budget{Cost: 20_001} })
			child := e.child(root, "c", policy(belay.Policy{Abandon: true}))
			l := e.claim(worker, int64(2*i+2), 1)[0]
			e.ok(&machine.Settle{Settlement: belay.Settlement{
				Lease: l, Op: e.id(), Outcome: belay.OutcomeReleased, CostTokens: 20_001,
			}})
			e.settle(root, belay.OutcomeReleased)
			roots, children = append(roots, root.Execution), append(children, child)
			e.same("the root", belay.Paused, e.row(root.Execution).State)
			e.same("the child's root", root.Execution, e.row(child).SpentBy)
		}
		e.same("while the budgets are spent", []belay.ExecutionID(nil), e.due(10).Unspent)
		raise := func(id belay.ExecutionID, to belay.Cost) {
			e.ok(&machine.Act{Control: belay.Control{
				Execution: id, Action: belay.ActionBudget, Budget: &belay.Budget{Cost: to},
			}})
		}
		raise(roots[0], 20_000)
		e.same("below the cost", []belay.ExecutionID(nil), e.due(10).Unspent)
		raise(roots[0], 20_002)
		e.control(roots[1], belay.ActionCancel)
		e.same("after a raise and an end", ordered(children[:2]), ordered(e.due(10).Unspent))
		e.same("with a limit", 1, len(e.due(1).Unspent))
		for _, id := range e.due(10).Unspent {
			e.ok(&machine.Unspend{Execution: id})
			e.same("resumed", belay.Pending, e.row(id).State)
		}
		e.same("when all are resumed", []belay.ExecutionID(nil), e.due(10).Unspent)
	}},
	{"sessions are listed: living before ended, newest first, with the number of their runs", func(e *env) {
		on := func(host string) func(*belay.WorkerSpec) {
			return func(s *belay.WorkerSpec) { s.Process.Host = host }
		}
		old, ended, young, gone := e.open(on("a")), e.open(on("a")), e.open(on("b")), e.open(on("b"))
		e.run(old, 1)
		e.run(old, 2)
		e.run(ended, 1)
		e.ok(&machine.End{Worker: gone})
		e.ok(&machine.End{Worker: ended})
		type line struct {
			ID      belay.WorkerID
			Running int
		}
		for _, c := range []struct {
			what string
			q    store.WorkerQuery
			want []line
		}{
			{"all", store.WorkerQuery{Owned: true}, []line{{young, 0}, {old, 2}, {gone, 0}, {ended, 1}}},
			{"the first", store.WorkerQuery{Limit: 1}, []line{{young, 0}}},
			{"the first three", store.WorkerQuery{Limit: 3, Owned: true}, []line{{young, 0}, {old, 2}, {gone, 0}}},
			{"the living", store.WorkerQuery{Living: true}, []line{{young, 0}, {old, 0}}},
			{"those on a host", store.WorkerQuery{Host: "a", Owned: true}, []line{{old, 2}, {ended, 1}}},
			{"the living on a host", store.WorkerQuery{Host: "b", Living: true}, []line{{young, 0}}},
			{"the named", store.WorkerQuery{
				IDs: []belay.WorkerID{e.id(), ended, old, ended}, Owned: true,
			}, []line{{old, 2}, {ended, 1}}},
			{"the living of the named", store.WorkerQuery{
				IDs: []belay.WorkerID{ended, old}, Living: true,
			}, []line{{old, 0}}},
			{"none of none", store.WorkerQuery{IDs: []belay.WorkerID{}}, nil},
		} {
			rows, err := e.store.Workers(e.Context(), c.q)
			if err != nil {
				e.Fatal(err)
			}
			var got []line
			for _, r := range rows {
				got = append(got, line{r.ID, r.Running})
			}
			e.same(c.what, c.want, got)
		}
	}},
	{"counts agree with the rows", func(e *env) {
		worker := e.open()
		e.save(e.run(worker, 1), belay.KindStep, "a", `1`)
		e.settle(e.run(worker, 2), belay.OutcomeFailed)
		e.submit()
		e.ok(&machine.End{Worker: e.open()})
		got, err := e.store.Counts(e.Context())
		if err != nil {
			e.Fatal(err)
		}
		e.same("counts", store.Counts{
			Executions: map[belay.State]int64{belay.Pending: 1, belay.Running: 1, belay.Failed: 1},
			Runs:       2, Checkpoints: 1, DeadLetters: 1, Sessions: 1,
		}, got)
	}},
	{"a tally counts all executions that have not ended, and open dead letters", func(e *env) {
		worker, number := e.open(), int64(0)
		run := func(with ...func(*belay.Submission)) belay.Lease { number++; return e.run(worker, number, with...) }
		// running
		run()
		// This execution waits for a signal.
		e.settle(run(), belay.OutcomeSuspended)
		// This execution waits for a timer.
		e.ok(&machine.Settle{
			Settlement: belay.Settlement{Lease: run(), Op: e.id(), Outcome: belay.OutcomeSuspended, Wait: time.Hour},
		})
		for _, o := range []belay.Outcome{belay.OutcomeSucceeded, belay.OutcomeFailed, belay.OutcomeTimedOut} {
			e.settle(run(policy(belay.Policy{MaxAttempts: 1})), o)
		}
		e.settle(run(), belay.OutcomeFailed) // the second dead letter with the reason permanent_error
		again := run(policy(belay.Policy{MaxAttempts: 1}))
		e.settle(again, belay.OutcomeTimedOut)
		e.control(again.Execution, belay.ActionRetry)
		e.control(again.Execution, belay.ActionPause)
		e.control(e.submit(), belay.ActionPause)
		e.control(e.submit(), belay.ActionCancel)
		e.submit(func(s *belay.Submission) { s.External = true })
		e.submit(func(s *belay.Submission) { s.DueAt = e.now().Time().Add(time.Hour) })
		e.submit()
		e.ok(&machine.End{Worker: e.open()})
		e.lock(e.submit(func(s *belay.Submission) { s.External = true })) // an owner of a lock is not a worker
		e.ok(&machine.Cordon{Cordon: belay.Cordon{Worker: e.open()}})
		got, err := e.store.Tally(e.Context())
		if err != nil {
			e.Fatal(err)
		}
		e.same("tally", store.Tally{
			Workers:     map[belay.WorkerState]int64{belay.WorkerOpen: 1, belay.WorkerCordoned: 1},
			Executions:  map[belay.State]int64{belay.Pending: 3, belay.Running: 2, belay.Waiting: 2, belay.Paused: 2},
			DeadLetters: map[string]int64{"permanent_error": 2, "timeout": 1},
			Queues:      []store.QueueLoad{{Queue: "default", Due: 1, Owned: 2}},
		}, got)
	}},
	{"a tally counts the places of gates and the executions that wait at them", func(e *env) {
		worker, nothing := e.open(), func(*belay.Submission) {}
		e.parked(worker, nothing, nothing, nothing)
		e.run(worker, 3)
		e.submit(limited("y", 1))
		got, err := e.store.Tally(e.Context())
		if err != nil {
			e.Fatal(err)
		}
		e.same("gates", []store.GateLoad{{Gate: "limit:x", Held: 1, Waiting: 3}}, got.Gates)
		e.same("queues", []store.QueueLoad{{Queue: "default", Due: 1, Owned: 2}}, got.Queues)
	}},
	{"a tally names the queues and gates with the most work, and adds up the others", func(e *env) {
		const names = store.MaxTallied + 20
		var want store.Tally
		for i := range names {
			name := fmt.Sprintf("it's \"%03d\" 🦀", i)
			n := 1 + i%2*(i/100) // two for the last odd ones, which come before all others
			for range n {
				e.submit(func(s *belay.Submission) { s.Queue = name })
			}
			if n > 1 {
				want.Queues = append(want.Queues, store.QueueLoad{Queue: name, Due: int64(n)})
			}
		}
		for i := range store.MaxTallied - len(want.Queues) {
			// equal ones are in the order of their names
			want.Queues = append(want.Queues, store.QueueLoad{Queue: fmt.Sprintf("it's \"%03d\" 🦀", i), Due: 1})
		}
		want.Queues = append(want.Queues, store.QueueLoad{Due: names - store.MaxTallied})
		want.Order()
		got, err := e.store.Tally(e.Context())
		if err != nil {
			e.Fatal(err)
		}
		e.same("queues", want.Queues, got.Queues)
		if len(got.Executions) != 1 || got.Executions[belay.Pending] != names+10 {
			e.Errorf("executions: %v", got.Executions)
		}
	}},
}

func (e *env) due(limit int) store.Due {
	e.Helper()
	d, err := e.store.Due(e.Context(), limit)
	if err != nil {
		e.Fatalf("due: %v", err)
	}
	return d
}

func parents(all []machine.Part) (ids []belay.ExecutionID) {
	for _, p := range all {
		ids = append(ids, p.Execution)
	}
	return ids
}

// ordered joins lists of children: each list sorted by id, the lists in the order of their
// parents, which is the order of the arguments.
func ordered(families ...[]belay.ExecutionID) []belay.ExecutionID {
	var all []belay.ExecutionID
	for _, f := range families {
		if len(f) == 2 && f[0].Compare(f[1]) > 0 {
			f[0], f[1] = f[1], f[0]
		}
		all = append(all, f...)
	}
	return all
}

// lost returns the entry that Due must list for an execution whose owner's session has ended.
func (e *env) lost(id belay.ExecutionID) store.Lost {
	e.Helper()
	x := e.row(id)
	return store.Lost{
		Lose: machine.Lose{Execution: id, Token: x.Token, Worker: x.Worker}, Losses: x.Losses, RunAt: x.RunAt,
	}
}
