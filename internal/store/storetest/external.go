package storetest

import (
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// lock makes a new external owner lock an execution, and returns its lease.
func (e *env) lock(id belay.ExecutionID) belay.Lease {
	e.Helper()
	r := e.ok(&machine.Lock{LockRequest: belay.LockRequest{ID: e.id(), Execution: id, Owner: "out"}, Secret: e.id()})
	return leaseOf(&r.Claims[0].Execution)
}

var outsideCases = []testCase{
	{"the sessions that own executions come with them, each once", func(e *env) {
		worker := e.open()
		a, b := e.run(worker, 1), e.run(worker, 2)
		out := e.lock(e.submit(func(s *belay.Submission) { s.External = true }))
		free := e.submit()
		rows := e.rows(machine.Need{
			Executions: []belay.ExecutionID{a.Execution, b.Execution, out.Execution, free},
			Owners:     []belay.ExecutionID{a.Execution, b.Execution, out.Execution, free, out.Execution},
		})
		sortRows(rows)
		sessions := e.sessions()
		want := []*machine.Worker{sessions[worker], sessions[out.Worker]}
		slices.SortFunc(want, func(a, b *machine.Worker) int { return slices.Compare(a.ID[:], b.ID[:]) })
		e.same("owners", want, rows.Owners)
		if !sessions[out.Worker].Spec.External || len(rows.Workers) != 0 {
			e.Errorf("the external owner is %+v; %d sessions are locked", sessions[out.Worker], len(rows.Workers))
		}
	}},
	{"the newest runs come with their outputs, as many as asked for", func(e *env) {
		id := e.submit(func(s *belay.Submission) { s.External = true })
		for range 3 {
			e.settle(e.lock(id), belay.OutcomeReleased)
		}
		last := e.lock(id)
		for n, want := range map[int][]belay.Token{0: nil, 1: {4}, 3: {2, 3, 4}, 9: {1, 2, 3, 4}} {
			var got []belay.Token
			for _, r := range e.read(store.Read{Execution: id, Runs: n}).Runs {
				got = append(got, r.Token)
				if open := r.Token == last.Token; open != (r.Output == nil) {
					e.Errorf("run %d has output %q", r.Token, r.Output)
				}
			}
			e.same(named("runs", n), want, got)
		}
	}},
	{"the bytes of a log are counted, and its dropped chunks are loaded before the drop", func(e *env) {
		l := e.run(e.open(), 1)
		for n := range int64(4) {
			e.append(l, "log", n, "four")
		}
		e.append(l, "other", 0, "x")
		ref := machine.SumRef{Execution: l.Execution, Name: "log"}
		drop := machine.ChunkDrop{Execution: l.Execution, Name: "log", From: 1, To: 3}
		rows := e.rows(machine.Need{Sums: []machine.SumRef{ref, ref}, Drops: []machine.ChunkDrop{drop, drop}})
		e.same("sum", []*machine.Sum{{SumRef: ref, Bytes: 16, Token: l.Token, Own: 16}}, rows.Sums)
		var shown []int64
		for _, k := range rows.Chunks {
			shown = append(shown, k.N)
			if k.Size != 4 || k.Data != nil || k.Token != l.Token {
				e.Errorf("chunk %+v", k)
			}
		}
		e.same("chunks about to go", []int64{1, 2}, shown)
		e.ok(&machine.Append{
			Chunk: belay.Chunk{Lease: l, Name: "log", N: 4, Data: []byte("five5"), DropFrom: 1, DropTo: 3},
		})
		rows = e.rows(machine.Need{Sums: []machine.SumRef{ref}})
		e.same("sum afterwards", []*machine.Sum{
			{SumRef: ref, Bytes: 13, Token: l.Token, Own: 13, Log: true},
		}, rows.Sums)
		e.settle(l, belay.OutcomeSucceeded)
		e.clock.Advance(time.Second)
		e.prune(e.now(), 0)
		if rows := e.rows(machine.Need{Sums: []machine.SumRef{ref}}); len(rows.Sums) != 0 {
			e.Errorf("the sum outlives its execution: %+v", rows.Sums[0])
		}
	}},
}
