package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

var loadCases = []testCase{
	{"executions come with all their ancestors, each once", func(e *env) {
		worker := e.open()
		root := e.run(worker, 1)
		child := e.child(root, "c")
		childLease := e.claim(worker, 2, 1)[0]
		grandchild := e.child(childLease, "g")
		e.submit() // an execution that the load does not request
		rows := e.rows(machine.Need{
			Executions: []belay.ExecutionID{grandchild, root.Execution, grandchild, {}, e.id()},
		})
		sortRows(rows)
		var ids []belay.ExecutionID
		for _, x := range rows.Executions {
			ids = append(ids, x.ID)
		}
		want := []belay.ExecutionID{root.Execution, child, grandchild}
		slices.SortFunc(want, belay.ExecutionID.Compare)
		e.same("executions", want, ids)
	}},
	{"the due executions of a lane come longest due first, up to the limit", func(e *env) {
		late, other := e.submit(dueIn(e, 3*time.Second)), e.submit(priority(5))
		e.clock.Advance(time.Second)
		second, third := e.submit(), e.submit()
		// a due time in the past counts as the time of submission, which is later than that of
		// second and third
		first := e.submit(dueIn(e, -time.Hour))
		e.submit(func(s *belay.Submission) { s.External = true })
		high := machine.NewLane("default", "w", "", 5, nil).ID
		rows := e.rows(machine.Need{
			Ready: []machine.ReadyQuery{{Lane: lane.ID, Limit: 2}, {Lane: high, Limit: 9}, {Lane: lane.ID, Limit: 9}},
		})
		want := []machine.ReadyLane{
			{Due: []belay.ExecutionID{second, third}}, // Next is 0, because the limit was reached
			{Due: []belay.ExecutionID{other}},
			{Due: []belay.ExecutionID{second, third, first}, Next: e.row(late).DueAt},
		}
		e.same("ready", want, rows.Ready)
		if len(rows.Executions) != 4 || len(rows.Specs) != 4 || rows.Specs[0].Input == nil {
			e.Errorf("%d executions and %d specs came along, want those of 4", len(rows.Executions), len(rows.Specs))
		}
		e.clock.Advance(2 * time.Second)
		rows = e.rows(machine.Need{Ready: []machine.ReadyQuery{{Lane: lane.ID, Limit: 9}}})
		e.same("ready when the last is due", []machine.ReadyLane{
			{Due: []belay.ExecutionID{second, third, first, late}},
		}, rows.Ready)
	}},
	{"an owned, external, paused, gated or ended execution is not ready", func(e *env) {
		worker := e.open()
		e.run(worker, 1)
		e.settle(e.run(worker, 2), belay.OutcomeSucceeded)
		e.control(e.submit(), belay.ActionPause)
		waiting := e.run(worker, 3)
		e.settle(waiting, belay.OutcomeSuspended) // waiting for a signal
		e.submit(func(s *belay.Submission) { s.External = true })
		parked := e.submit()
		gate := func(id belay.GateID) {
			row := *e.row(parked)
			row.Gate = id
			e.mustWrite(&machine.Changes{Executions: []*machine.Execution{&row}})
		}
		gate("limit:crawler")
		ready := func() []machine.ReadyLane {
			return e.rows(machine.Need{Ready: []machine.ReadyQuery{{Lane: lane.ID, Limit: 9}}}).Ready
		}
		e.same("ready", []machine.ReadyLane{{}}, ready())
		e.signal(waiting.Execution, "go")
		e.same("ready after the signal", []machine.ReadyLane{{Due: []belay.ExecutionID{waiting.Execution}}}, ready())
		e.control(waiting.Execution, belay.ActionPause)
		gate("")
		e.same("ready after its gate let it go", []machine.ReadyLane{{Due: []belay.ExecutionID{parked}}}, ready())
	}},
	{"the executions that a session owns come with it, oldest first", func(e *env) {
		mine, other := e.open(), e.open()
		a, b := e.run(mine, 1), e.run(mine, 2)
		e.run(other, 1)
		e.settle(e.run(mine, 3), belay.OutcomeSucceeded)
		rows := e.rows(machine.Need{Held: []belay.WorkerID{mine, mine}})
		e.same("held", map[belay.WorkerID][]*machine.Execution{
			mine: {e.row(a.Execution), e.row(b.Execution)},
		}, rows.Held)
	}},
	{"the newest spec of an execution counts", func(e *env) {
		l := e.run(e.open(), 1)
		e.settle(l, belay.OutcomeFailed)
		e.ok(&machine.Act{
			Control: belay.Control{Execution: l.Execution, Action: belay.ActionRequeue, Input: []byte(`{"n":2}`)},
		})
		rows := e.rows(machine.Need{Specs: []belay.ExecutionID{l.Execution, l.Execution}})
		if len(rows.Specs) != 1 || rows.Specs[0].Generation != 2 || string(rows.Specs[0].Input) != `{"n":2}` {
			e.Errorf("specs %+v, want that of generation 2 alone", rows.Specs)
		}
	}},
	{"an operation is found by the row it wrote", func(e *env) {
		l := e.run(e.open(), 1)
		save, signal, act, end := belay.OpID(e.id()), belay.OpID(e.id()), belay.OpID(e.id()), belay.OpID(e.id())
		saved := e.ok(&machine.Save{Save: belay.Save{Lease: l, Op: save, Kind: belay.KindStep, Key: "a"}}).Seq
		signalled := e.ok(&machine.Deliver{
			SignalRequest: belay.SignalRequest{Execution: l.Execution, Name: "s", Op: signal},
		}).Seq
		acted := e.ok(&machine.Act{
			Control: belay.Control{Execution: l.Execution, Action: belay.ActionPreempt, Op: act},
		}).Seq
		ended := e.ok(&machine.Settle{
			Settlement: belay.Settlement{Lease: l, Op: end, Outcome: belay.OutcomeSucceeded},
		}).Seq
		other := e.submit()
		ref := func(id belay.ExecutionID, op belay.OpID) machine.OpRef { return machine.OpRef{Execution: id, Op: op} }
		rows := e.rows(machine.Need{Ops: []machine.OpRef{
			ref(l.Execution, save), ref(l.Execution, signal), ref(l.Execution, act), ref(l.Execution, end),
			ref(l.Execution, e.id()), ref(other, save), ref(l.Execution, save),
		}})
		sums := make(map[machine.OpSum]bool)
		for i := range rows.Ops {
			sums[rows.Ops[i].Sum] = true
			rows.Ops[i].Sum = machine.OpSum{}
		}
		e.same("operations", []machine.Op{
			{OpRef: ref(l.Execution, save), Seq: saved}, {OpRef: ref(l.Execution, signal), Seq: signalled},
			{OpRef: ref(l.Execution, act), Seq: acted}, {OpRef: ref(l.Execution, end), Seq: ended},
		}, rows.Ops)
		if len(sums) != 4 || sums[machine.OpSum{}] {
			e.Errorf("%d sums of four operations", len(sums))
		}
	}},
	{"an operation id stands for one operation with one body", func(e *env) {
		op := belay.OpID(e.id())
		writes := []struct {
			what string
			of   func(l belay.Lease) machine.Command
		}{
			{"a checkpoint", func(l belay.Lease) machine.Command {
				return &machine.Save{
					Save: belay.Save{Lease: l, Op: op, Kind: belay.KindStep, Key: "a", Data: []byte(`1`), Repeat: true},
				}
			}},
			{"one with other data", func(l belay.Lease) machine.Command {
				return &machine.Save{
					Save: belay.Save{Lease: l, Op: op, Kind: belay.KindStep, Key: "a", Data: []byte(`2`), Repeat: true},
				}
			}},
			{"a signal", func(l belay.Lease) machine.Command {
				return &machine.Deliver{
					SignalRequest: belay.SignalRequest{Execution: l.Execution, Name: "s", Op: op, Payload: []byte(`1`)},
				}
			}},
			{"one with another payload", func(l belay.Lease) machine.Command {
				return &machine.Deliver{SignalRequest: belay.SignalRequest{Execution: l.Execution, Name: "s", Op: op}}
			}},
			{"a pause", func(l belay.Lease) machine.Command {
				return &machine.Act{Control: belay.Control{Execution: l.Execution, Action: belay.ActionPause, Op: op}}
			}},
			{"a preemption", func(l belay.Lease) machine.Command {
				return &machine.Act{Control: belay.Control{Execution: l.Execution, Action: belay.ActionPreempt, Op: op}}
			}},
			{"a preemption with a reason", func(l belay.Lease) machine.Command {
				return &machine.Act{
					Control: belay.Control{Execution: l.Execution, Action: belay.ActionPreempt, Op: op, Reason: "r"},
				}
			}},
			{"a steal, which ends the run", func(l belay.Lease) machine.Command {
				return &machine.Act{Control: belay.Control{Execution: l.Execution, Action: belay.ActionSteal, Op: op}}
			}},
			{"a success", func(l belay.Lease) machine.Command {
				return &machine.Settle{Settlement: belay.Settlement{
					Lease: l, Op: op, Outcome: belay.OutcomeSucceeded, Output: []byte(`1`), Repeat: true,
				}}
			}},
			{"one with another output", func(l belay.Lease) machine.Command {
				return &machine.Settle{Settlement: belay.Settlement{
					Lease: l, Op: op, Outcome: belay.OutcomeSucceeded, Output: []byte(`2`), Repeat: true,
				}}
			}},
		}
		worker := e.open()
		number := int64(0)
		for i, first := range writes {
			number++
			l := e.run(worker, number)
			seq := e.ok(first.of(l)).Seq
			for _, together := range []bool{false, true} {
				for k, then := range writes {
					if together { // both writes in one commit
						number++
						l = e.run(worker, number)
					}
					before := e.row(l.Execution).Seq
					r := machine.Reply{}
					if together {
						all := e.fold(first.of(l), then.of(l))
						if all[0].Err != nil {
							e.Fatalf("%s: %v", first.what, all[0].Err)
						}
						seq, r, before = all[0].Seq, all[1], e.row(l.Execution).Seq
						if before != seq {
							e.Errorf("%s and then %s at once: seq %d, want %d", first.what, then.what, before, seq)
						}
					} else {
						r = e.fold(then.of(l))[0]
					}
					switch {
					case i == k && (r.Err != nil || !r.Replayed || r.Seq != seq):
						e.Errorf("%s again (together %t): %+v, want what it was answered first", then.what, together, r)
					case i != k && belay.CodeOf(r.Err) != belay.CodeIdempotencyMismatch:
						e.Errorf("%s under the id of %s (together %t): %+v, want a mismatch", then.what, first.what,
							together, r)
					}
					if now := e.row(l.Execution).Seq; now != before {
						e.Errorf("%s under the id of %s wrote something", then.what, first.what)
					}
					// The execution that the worker released is cancelled, so that the next claim
					// wins another execution.
					if together || k == len(writes)-1 {
						e.fold(&machine.Act{Control: belay.Control{Execution: l.Execution, Action: belay.ActionCancel}})
					}
				}
			}
		}
	}},
	{"an operation without a stored sum matches any operation", func(e *env) {
		l := e.run(e.open(), 1)
		x, op := *e.row(l.Execution), belay.OpID(e.id())
		x.Seq++
		e.mustWrite(&machine.Changes{
			Executions: []*machine.Execution{&x},
			Deeds:      []*machine.Deed{{Execution: x.ID, Seq: x.Seq, Kind: "pause", Op: op, At: e.now()}},
		})
		r := e.ok(&machine.Act{
			Control: belay.Control{Execution: x.ID, Action: belay.ActionPause, Reason: "any", Op: op},
		})
		if !r.Replayed || r.Seq != x.Seq {
			e.Errorf("the pause again: %+v", r)
		}
	}},
	{"runs, signals, chunks and keys are found by name, without others", func(e *env) {
		worker := e.open()
		first := e.run(worker, 1, func(s *belay.Submission) { s.IdempotencyKey = "k" })
		e.settle(first, belay.OutcomeReleased)
		second := e.claim(worker, 2, 1)[0]
		seq := e.signal(first.Execution, "s")
		e.append(second, "log", 0, "zero")
		e.append(second, "log", 1, "one")
		id := first.Execution
		rows := e.rows(machine.Need{
			Runs:    []belay.RunID{first.Run(), {Execution: id, Token: 99}},
			Signals: []machine.SignalRef{{Execution: id, Seq: seq}, {Execution: id, Seq: seq + 1}},
			Chunks: []machine.ChunkRef{{Execution: id, Name: "log", N: 1}, {Execution: id, Name: "log", N: 2},
				{Execution: id, Name: "out", N: 1}},
			Keys: []machine.Key{{Workflow: "w", Key: "k"}, {Workflow: "other", Key: "k"}},
		})
		if len(rows.Runs) != 1 || rows.Runs[0].Token != first.Token || rows.Runs[0].Outcome != belay.OutcomeReleased {
			e.Errorf("runs %+v, want the first alone", rows.Runs)
		}
		if len(rows.Signals) != 1 || string(rows.Signals[0].Payload) != "1" {
			e.Errorf("signals %+v, want the one there is", rows.Signals)
		}
		if len(rows.Chunks) != 1 || rows.Chunks[0].N != 1 || rows.Chunks[0].Size != 3 || rows.Chunks[0].Data != nil {
			e.Errorf("chunks %+v, want the head of chunk 1 alone", rows.Chunks)
		}
		if len(rows.Keys) != 1 || rows.Keys[0].Execution != id {
			e.Errorf("keys %+v, want that of the workflow alone", rows.Keys)
		}
	}},
	{"all checkpoints of an execution come in order, for a fork", func(e *env) {
		worker := e.open()
		l, other := e.run(worker, 1), e.run(worker, 2)
		e.save(l, belay.KindState, "state", `1`)
		e.save(l, belay.KindStep, "a", `2`)
		e.save(l, belay.KindState, "state", `3`)
		e.save(other, belay.KindStep, "a", `4`)
		rows := e.rows(machine.Need{Checkpoints: []belay.ExecutionID{l.Execution}})
		var got []string
		for _, k := range rows.Checkpoints {
			got = append(got, string(k.Data))
		}
		e.same("data, the pruned state's gone", []string{"", `2`, `3`}, got)
	}},
	{"a retry from a step discards its result and all later ones, and gives back an earlier signal", func(e *env) {
		worker := e.open()
		l, other := e.run(worker, 1), e.run(worker, 2)
		e.save(l, belay.KindStep, "a", `1`)
		early := e.signal(l.Execution, "early")
		e.save(l, belay.KindStep, "b", `2`)
		for i, seq := range []int64{early, e.signal(l.Execution, "late")} {
			e.ok(&machine.Save{Save: belay.Save{
				Lease: l, Op: e.id(), Kind: belay.KindWait, Key: fmt.Sprint("w", i), Data: []byte(`3`), Consumes: seq,
			}})
		}
		e.save(l, belay.KindState, "s", `4`)
		e.signal(other.Execution, "s")
		e.settle(l, belay.OutcomeFailed)
		var got []string
		for _, x := range e.rows(machine.Need{Mailboxes: []belay.ExecutionID{l.Execution, l.Execution}}).Signals {
			got = append(got, x.Name)
		}
		e.same("the signals of the execution, in order", []string{"early", "late"}, got)
		e.ok(&machine.Act{Control: belay.Control{
			Execution: l.Execution, Action: belay.ActionRetry, From: "b", Op: e.id(),
		}})
		got = nil
		left := machine.Resume(e.read(store.Read{Execution: l.Execution, Resume: true}), e.now())
		for _, k := range left.Checkpoints {
			got = append(got, string(k.Data))
		}
		for _, x := range left.Signals {
			got = append(got, x.Name)
		}
		e.same("what the next run gets", []string{`1`, "early"}, got)
	}},
}
