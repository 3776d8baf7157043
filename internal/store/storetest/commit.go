package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

var commitCases = []testCase{
	{"a batch that is refused leaves nothing behind", func(e *env) {
		id := e.submit()
		before, mark := snapshotOf(e), e.rows(machine.Need{}).Mark
		e.clock.Advance(time.Second)
		var fresh, again machine.Execution
		n := 0
		fill(&fresh, &n)
		fresh.New = true
		again = *e.row(id)
		again.New = true // the row exists already
		spec := machine.Spec{Execution: fresh.ID, Generation: 1, Trigger: "manual"}
		err := e.write(&machine.Changes{
			Executions: []*machine.Execution{&fresh, &again}, Specs: []*machine.Spec{&spec},
		})
		if code := belay.CodeOf(err); err == nil || code == belay.CodeUnavailable {
			e.Errorf("a second row with one id: %v, want a refusal that repeating will not help", err)
		}
		e.same("rows", before, snapshotOf(e))
		e.same("mark", mark, e.rows(machine.Need{}).Mark)
		e.submit() // the store still accepts commits
	}},
	{"a second row with the same key is refused, for each kind of row", func(e *env) {
		l := e.run(e.open(), 1)
		e.save(l, belay.KindStep, "a", `1`)
		e.signal(l.Execution, "s")
		e.append(l, "log", 0, "text")
		e.control(l.Execution, belay.ActionPreempt)
		rec := e.read(store.Read{Execution: l.Execution, Spec: true, History: true, Data: true})
		rec.Runs[0].New = true
		chunk := machine.Chunk{ChunkRef: machine.ChunkRef{Execution: l.Execution, Name: "log"}}
		for what, c := range map[string]*machine.Changes{
			"spec": {Specs: []*machine.Spec{rec.Spec}}, "run": {Runs: rec.Runs},
			"checkpoint": {Checkpoints: rec.Checkpoints},
			"signal":     {Signals: rec.Signals}, "action": {Deeds: rec.Deeds},
			"chunk": {Chunks: []*machine.Chunk{&chunk}},
		} {
			if err := e.write(c); err == nil || belay.CodeOf(err) == belay.CodeUnavailable {
				e.Errorf("a second %s with one key: %v, want a refusal", what, err)
			}
		}
	}},
	{"empty changes write nothing, not even a mark of life", func(e *env) {
		e.submit()
		before := e.rows(machine.Need{})
		e.clock.Advance(time.Second)
		e.mustWrite(&machine.Changes{})
		e.mustWrite(&machine.Changes{Beat: time.Minute})
		if rows := e.rows(machine.Need{}); rows.Mark != before.Mark || rows.Beat != before.Beat {
			e.Errorf("mark %d and beat %s, want %d and %s", rows.Mark, rows.Beat, before.Mark, before.Beat)
		}
	}},
	{"rows that a decision changes in place and does not write are unchanged", func(e *env) {
		id, worker := e.submit(policy(belay.Policy{MaxAttempts: 7})), e.open()
		before := snapshotOf(e)
		rows := e.rows(machine.Need{
			Executions: []belay.ExecutionID{id}, Workers: []belay.WorkerID{worker}, Specs: []belay.ExecutionID{id},
		})
		rows.Executions[0].State, rows.Executions[0].Seq = belay.Failed, 99
		rows.Workers[0].State = belay.WorkerLost
		rows.Specs[0].Input[0] = 'x'
		e.same("rows", before, snapshotOf(e))
	}},
	{"a caller that changes its rows after the commit does not change the store", func(e *env) {
		input := []byte(`{"n":1}`)
		id := e.submit(func(s *belay.Submission) { s.Input = input })
		input[0] = 'x'
		if got := string(e.read(store.Read{Execution: id, Spec: true}).Spec.Input); got != `{"n":1}` {
			e.Errorf("input %s", got)
		}
	}},
	{"only a commit that writes sessions writes a mark of life, with its beat", func(e *env) {
		if rows := e.rows(machine.Need{}); rows.Mark != 0 || rows.Beat != 0 {
			e.Errorf("a new store has mark %d and beat %s", rows.Mark, rows.Beat)
		}
		worker := e.open()
		e.clock.Advance(time.Second)
		e.mustWrite(&machine.Changes{
			Workers: e.rows(machine.Need{Workers: []belay.WorkerID{worker}}).Workers, Beat: 3 * time.Second,
		})
		if rows := e.rows(machine.Need{}); rows.Mark != e.now() || rows.Beat != 3*time.Second {
			e.Errorf("mark %d and beat %s, want %d and 3s", rows.Mark, rows.Beat, e.now())
		}
		e.clock.Advance(time.Second)
		e.mustWrite(&machine.Changes{Mark: true, Beat: 4 * time.Second})
		if rows := e.rows(machine.Need{}); rows.Mark != e.now() || rows.Beat != 4*time.Second {
			e.Errorf("mark %d and beat %s, want %d and 4s", rows.Mark, rows.Beat, e.now())
		}
		marked := e.now()
		e.clock.Advance(time.Second)
		e.submit()
		if rows := e.rows(machine.Need{}); rows.Mark != marked || rows.Beat != time.Second {
			e.Errorf("after a commit without sessions: mark %d and beat %s, want %d and 1s", rows.Mark, rows.Beat,
				marked)
		}
	}},
	{"the clock never goes back", func(e *env) {
		e.submit()
		before := e.now()
		e.clock.Advance(-time.Hour)
		if now := e.now(); now != before {
			e.Errorf("the clock shows %d after %d", now, before)
		}
		if now := e.rows(machine.Need{}).Now; now != before {
			e.Errorf("a batch reads %d after %d", now, before)
		}
		e.clock.Advance(2 * time.Hour)
		if now := e.now(); now != before.Add(time.Hour) {
			e.Errorf("the clock shows %d, want %d", now, before.Add(time.Hour))
		}
	}},
	{"concurrent commits are serialized", func(e *env) {
		const writers, each = 4, 10
		l := e.run(e.open(), 1)
		seq := e.row(l.Execution).Seq
		var wg sync.WaitGroup
		for w := range writers {
			ops := make([]belay.OpID, each)
			for i := range ops {
				ops[i] = e.id()
			}
			wg.Go(func() {
				for i, op := range ops {
					save := &machine.Save{
						Save: belay.Save{Lease: l, Op: op, Kind: belay.KindStep, Key: named("step", w*each+i)},
					}
					if r, err := fold(e.Context(), e.store, []machine.Command{save}); err != nil || r[0].Err != nil {
						e.Errorf("save: %v", errors.Join(err, r[0].Err))
					}
				}
			})
		}
		wg.Wait()
		rec := e.read(store.Read{Execution: l.Execution, History: true})
		if rec.Execution.Seq != seq+writers*each || len(rec.Checkpoints) != writers*each {
			e.Errorf("seq %d with %d checkpoints, want %d with %d", rec.Execution.Seq, len(rec.Checkpoints),
				seq+writers*each, writers*each)
		}
	}},
	{"a call whose context has ended is refused and writes nothing", func(e *env) {
		ctx, cancel := context.WithCancel(e.Context())
		cancel()
		called := false
		err := e.store.Commit(ctx, machine.Need{}, func(*machine.Rows) *machine.Changes {
			called = true
			return nil
		})
		if belay.CodeOf(err) != belay.CodeUnavailable || called {
			e.Errorf("commit: %v, decided: %t", err, called)
		}
		if _, err := e.store.Counts(ctx); belay.CodeOf(err) != belay.CodeUnavailable {
			e.Errorf("counts: %v", err)
		}
		if _, err := e.store.Tally(ctx); belay.CodeOf(err) != belay.CodeUnavailable {
			e.Errorf("tally: %v", err)
		}
		e.submit()
	}},
	{"a closed store refuses everything", func(e *env) {
		if err := e.store.Close(); err != nil {
			e.Fatal(err)
		}
		_, counts := e.store.Counts(e.Context())
		_, tally := e.store.Tally(e.Context())
		_, read := e.store.Read(e.Context(), store.Read{})
		for what, err := range map[string]error{
			"commit": e.write(&machine.Changes{}), "counts": counts, "tally": tally, "read": read,
		} {
			if belay.CodeOf(err) != belay.CodeUnavailable {
				e.Errorf("%s: %v, want unavailable", what, err)
			}
		}
		if err := e.store.Close(); err != nil {
			e.Errorf("closing it again: %v", err)
		}
	}},
}
