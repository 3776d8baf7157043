package storetest

import (
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

var writeCases = []testCase{
	{"every field of every row is kept", func(e *env) {
		rows := filled(100)
		e.mustWrite(rows)
		x := rows.Executions[0]
		rec := e.read(store.Read{Execution: x.ID, Spec: true, Run: true, History: true, Data: true})
		want := &machine.Record{
			Execution: kept(x), Spec: rows.Specs[0], Runs: []*machine.Run{keptRun(rows.Runs[0])},
			Checkpoints: rows.Checkpoints,
			Signals:     rows.Signals, Deeds: rows.Deeds,
		}
		e.same("record", want, rec)
		chunks, err := e.store.Chunks(e.Context(), belay.ChunkQuery{Execution: x.ID, Name: rows.Chunks[0].Name})
		if err != nil {
			e.Fatal(err)
		}
		e.same("chunks", []machine.Chunk{*rows.Chunks[0]}, chunks)
		loaded := e.rows(machine.Need{
			Workers: []belay.WorkerID{rows.Workers[0].ID}, Current: []belay.WorkerID{rows.Workers[0].ID},
			Keys: []machine.Key{rows.Keys[0].Key},
		})
		worker := *rows.Workers[0]
		worker.New = false
		e.same("worker", []*machine.Worker{&worker}, loaded.Workers)
		e.same("key", rows.Keys, loaded.Keys)
		loaded = e.rows(machine.Need{Sums: []machine.SumRef{rows.Sums[0].SumRef}})
		sum, object := *rows.Sums[0], rows.Objects[0]
		sum.New = false
		e.same("sum", []*machine.Sum{&sum}, loaded.Sums)
		e.same("object", rows.Objects, e.rows(machine.Need{Objects: []machine.ObjectRef{object.ObjectRef}}).Objects)
		e.same("listed object", rows.Objects, e.query(store.Query{Of: store.Objects, Kind: object.Kind}).Objects)
		e.same("audit", rows.Audit, e.query(store.Query{Of: store.Trail}).Trail)
	}},
	{"every field of an execution that may change is written again", func(e *env) {
		rows := filled(100)
		e.mustWrite(rows)
		first := kept(rows.Executions[0])
		n := 1000
		var next machine.Execution
		fill(&next, &n)
		setFixed(&next, first)
		e.mustWrite(&machine.Changes{Executions: []*machine.Execution{&next}})
		e.same("changed", &next, e.row(first.ID))
		var bare machine.Execution // the fields change back to their zero values
		setFixed(&bare, first)
		bare.State, bare.Seq, bare.Generation, bare.InputGen = belay.Pending, 1, 1, 1
		e.mustWrite(&machine.Changes{Executions: []*machine.Execution{&bare}})
		e.same("emptied", &bare, e.row(first.ID))
	}},
	{"a cost keeps its four decimals in every row", func(e *env) {
		worker := e.open()
		for i, c := range []struct{ save, end belay.Cost }{
			{1, 0}, {0, 9_999}, {9_999, 1}, {25_000, 10_000}, {belay.MaxCost, 0}, {belay.MaxCost, 1},
		} {
			l := e.run(worker, int64(i+1))
			e.ok(&machine.Save{Save: belay.Save{
				Lease: l, Op: e.id(), Kind: belay.KindStep, Key: "k", Data: []byte(`1`), CostTokens: c.save,
			}})
			e.ok(&machine.Settle{Settlement: belay.Settlement{
				Lease: l, Op: e.id(), Outcome: belay.OutcomeSucceeded, CostTokens: c.end,
			}})
			rec := e.read(store.Read{Execution: l.Execution, Run: true, History: true})
			e.same("costs", []belay.Cost{c.save, c.end, c.save.Add(c.end)},
				[]belay.Cost{rec.Checkpoints[0].Cost, rec.Runs[0].Cost, rec.Execution.Cost})
		}
	}},
	{"flags of one fold are not kept", func(e *env) {
		rows := filled(100)
		rows.Executions[0].Attention = true
		e.mustWrite(rows)
		id := rows.Executions[0].ID
		loaded := e.rows(machine.Need{Executions: []belay.ExecutionID{id}, Runs: []belay.RunID{
			{Execution: id, Token: rows.Runs[0].Token},
		}, Workers: []belay.WorkerID{rows.Workers[0].ID}})
		if loaded.Executions[0].New || loaded.Executions[0].Attention || loaded.Runs[0].New || loaded.Workers[0].New {
			e.Errorf("flags are loaded again: %+v %+v %+v", loaded.Executions[0], loaded.Runs[0], loaded.Workers[0])
		}
	}},
	{"of an existing run only the end is written, and the begin if the change has one", func(e *env) {
		rows := filled(100)
		begun := *rows.Runs[0]
		e.mustWrite(rows)
		n := 5000
		var end machine.Run
		fill(&end, &n)
		end.Execution, end.Token, end.StartedSeq = begun.Execution, begun.Token, 0
		e.mustWrite(&machine.Changes{Runs: []*machine.Run{&end}})
		want := begun
		want.New = false
		want.EndedSeq, want.EndedAt, want.Outcome, want.Final, want.Op, want.OpSum = end.EndedSeq, end.EndedAt,
			end.Outcome, end.Final, end.Op, end.OpSum
		want.Output, want.Class, want.Message, want.Stack = end.Output, end.Class, end.Message, end.Stack
		want.FailedBy, want.Steps = end.FailedBy, end.Steps
		want.Cost = end.Cost
		got := e.read(store.Read{Execution: begun.Execution, Run: true}).Runs
		e.same("ended", []*machine.Run{&want}, got)
		end.StartedSeq = 77
		e.mustWrite(&machine.Changes{Runs: []*machine.Run{&end}})
		want.StartedSeq, want.StartedAt = end.StartedSeq, end.StartedAt
		e.same("begun", []*machine.Run{&want}, e.read(store.Read{Execution: begun.Execution, Run: true}).Runs)
	}},
	{"of an existing session all fields but its spec and its opening are written", func(e *env) {
		rows := filled(100)
		rows.Workers[0].State = belay.WorkerOpen
		e.mustWrite(rows)
		n := 5000
		next := *rows.Workers[0]
		var other machine.Worker
		fill(&other, &n)
		next.New, next.State, next.HeartbeatAt, next.ExpiresAt = false, belay.WorkerLost, other.HeartbeatAt,
			other.ExpiresAt
		next.EndedAt, next.Why, next.ClaimNo, next.ClaimFloor = other.EndedAt, other.Why, other.ClaimNo,
			other.ClaimFloor
		next.Current, next.Told = "of a claim, which has not read it", false
		e.mustWrite(&machine.Changes{Workers: []*machine.Worker{&next}})
		ids := []belay.WorkerID{next.ID}
		next.Current = rows.Workers[0].Current
		e.same("worker", []*machine.Worker{&next}, e.rows(machine.Need{Workers: ids, Current: ids}).Workers)
		for _, current := range []string{other.Current, ""} { // a heartbeat writes them, or that there are none
			next.Current, next.Told = current, true
			e.mustWrite(&machine.Changes{Workers: []*machine.Worker{&next}})
			next.Told = false
			e.same("told", []*machine.Worker{&next}, e.rows(machine.Need{Workers: ids, Current: ids}).Workers)
			listed, err := e.store.Workers(e.Context(), store.WorkerQuery{IDs: ids, Current: true})
			if err != nil || len(listed) != 1 || listed[0].Current != current {
				e.Errorf("listed: %v %v, want the current steps %q", listed, err, current)
			}
			next.Current = ""
			e.same("not asked for", []*machine.Worker{&next}, e.rows(machine.Need{Workers: ids}).Workers)
		}
	}},
	{"a cordon of a cordoned session replaces the actor and the reason, and a heartbeat keeps them", func(e *env) {
		w := e.open()
		for _, reason := range []string{"a", "b"} {
			e.ok(&machine.Cordon{Cordon: belay.Cordon{Worker: w, Actor: "ann", Reason: reason}})
			e.ok(&machine.Heartbeat{Heartbeat: belay.Heartbeat{Worker: w}})
			x := e.rows(machine.Need{Workers: []belay.WorkerID{w}}).Workers[0]
			c := machine.WorkerView(x).Cordoned
			if c == nil || c.By != "ann" || c.Reason != reason || c.Since.IsZero() {
				e.Errorf("cordoned for %q, the session has %+v", reason, c)
			}
		}
	}},
	{"a checkpoint can be pruned, and a signal consumed, in the batch that wrote them", func(e *env) {
		l := e.run(e.open(), 1)
		seq := e.row(l.Execution).Seq
		state := func(data string) machine.Command {
			return &machine.Save{
				Save: belay.Save{Lease: l, Op: e.id(), Kind: belay.KindState, Key: "s", Data: []byte(data)},
			}
		}
		e.fold(
			&machine.Deliver{SignalRequest: belay.SignalRequest{Execution: l.Execution, Name: "go"}},
			&machine.Deliver{SignalRequest: belay.SignalRequest{Execution: l.Execution, Name: "go"}},
			state(`1`),
			&machine.Save{Save: belay.Save{Lease: l, Op: e.id(), Kind: belay.KindWait, Key: "w", Consumes: seq + 1}},
			state(`2`),
		)
		rec := e.read(store.Read{Execution: l.Execution, History: true, Data: true})
		var got []string
		for _, k := range rec.Checkpoints {
			got = append(got, string(k.Data))
		}
		e.same("data", []string{"", "", `2`}, got)
		if !rec.Checkpoints[0].Pruned || rec.Checkpoints[2].Pruned || rec.Signals[0].ConsumedBy != seq+4 ||
			rec.Signals[1].ConsumedBy != 0 {
			e.Errorf("checkpoints %+v, signals %+v", rec.Checkpoints, rec.Signals)
		}
	}},
	{"a checkpoint consumes several signals", func(e *env) {
		l := e.run(e.open(), 1)
		seq := e.row(l.Execution).Seq
		for range 3 {
			e.fold(&machine.Deliver{SignalRequest: belay.SignalRequest{Execution: l.Execution, Name: "go"}})
		}
		e.fold(&machine.Save{Save: belay.Save{
			Lease: l, Op: e.id(), Kind: belay.KindState, Key: "state", AlsoConsumes: []int64{seq + 1, seq + 3},
		}})
		var got []int64
		for _, s := range e.read(store.Read{Execution: l.Execution, History: true}).Signals {
			got = append(got, s.ConsumedBy)
		}
		e.same("the consuming checkpoints", []int64{seq + 4, 0, seq + 4}, got)
	}},
	{"a dead letter is resolved once", func(e *env) {
		letter := machine.DeadLetter{
			Execution: e.submit(), Generation: 1, Seq: 1, Reason: "lost", At: e.now(), New: true,
		}
		e.mustWrite(&machine.Changes{DeadLetters: []*machine.DeadLetter{&letter}})
		open := func() int64 {
			c, err := e.store.Counts(e.Context())
			if err != nil {
				e.Fatal(err)
			}
			return c.DeadLetters
		}
		if n := open(); n != 1 {
			e.Errorf("%d open dead letters, want 1", n)
		}
		letter.New, letter.Resolution, letter.ResolvedBy, letter.ResolvedAt = false, "requeued", "me", e.now()
		e.mustWrite(&machine.Changes{DeadLetters: []*machine.DeadLetter{&letter}})
		if n := open(); n != 0 {
			e.Errorf("%d open dead letters, want none", n)
		}
	}},
	{"Grace extends every living session and no ended one", func(e *env) {
		short := e.open(func(s *belay.WorkerSpec) { s.TTL = belay.Duration(2 * time.Second) })
		ended, own := e.open(), e.open()
		e.ok(&machine.End{Worker: ended})
		e.clock.Advance(3 * time.Second) // too short a time for the rules to extend sessions by themselves
		long := e.open(func(s *belay.WorkerSpec) { s.TTL = belay.Duration(time.Minute) })
		before := e.sessions()
		given := *before[own]
		given.ExpiresAt = 12345 // the rules have extended this session already; the store must keep the new value
		e.mustWrite(&machine.Changes{Grace: 2 * time.Second, Workers: []*machine.Worker{&given}})
		after := e.sessions()
		for id, want := range map[belay.WorkerID]machine.Time{
			short: e.now().Add(2 * time.Second), // it had expired, so it now lives for its TTL
			long:  before[long].ExpiresAt.Add(2 * time.Second),
			ended: before[ended].ExpiresAt,
			own:   12345,
		} {
			if got := after[id].ExpiresAt; got != want {
				e.Errorf("%s session expires at %d, want %d", after[id].State, got, want)
			}
		}
	}},
	{"chunks are dropped in ranges, also those of the same batch", func(e *env) {
		l := e.run(e.open(), 1)
		for n := range int64(4) {
			e.append(l, "log", n, named("chunk", int(n)))
		}
		e.append(l, "other", 1, "kept")
		e.fold(
			&machine.Append{Chunk: belay.Chunk{Lease: l, Name: "log", N: 4, Data: []byte("four")}},
			&machine.Append{
				Chunk: belay.Chunk{Lease: l, Name: "log", N: 5, Data: []byte("five"), DropFrom: 1, DropTo: 5},
			},
		)
		e.same("numbers left", []int64{0, 5}, e.chunkNumbers(belay.ChunkQuery{Execution: l.Execution, Name: "log"}))
		e.same("numbers of another name", []int64{1}, e.chunkNumbers(belay.ChunkQuery{Execution: l.Execution,
			Name: "other"}))
	}},
}

// filled returns one row of each kind, all of the same execution, with every field set.
func filled(n int) *machine.Changes {
	c := &machine.Changes{
		Executions: []*machine.Execution{{}}, Specs: []*machine.Spec{{}}, Lanes: []machine.Lane{{}},
		Runs:        []*machine.Run{{}},
		Checkpoints: []*machine.Checkpoint{{}}, Signals: []*machine.Signal{{}}, Deeds: []*machine.Deed{{}},
		DeadLetters: []*machine.DeadLetter{{}}, Workers: []*machine.Worker{{}}, Keys: []machine.KeyRow{{}},
		Chunks:  []*machine.Chunk{{}},
		Objects: []*machine.Object{{}}, Audit: []*machine.Audit{{}}, Sums: []*machine.Sum{{}},
	}
	for _, row := range []any{
		c.Executions[0], c.Specs[0], &c.Lanes[0], c.Runs[0], c.Checkpoints[0], c.Signals[0], c.Deeds[0],
		c.DeadLetters[0],
		c.Workers[0], &c.Keys[0], c.Chunks[0], c.Objects[0], c.Audit[0], c.Sums[0],
	} {
		fill(row, &n)
	}
	id := c.Executions[0].ID
	c.Specs[0].Execution, c.Runs[0].Execution, c.Checkpoints[0].Execution, c.Signals[0].Execution = id, id, id, id
	c.Deeds[0].Execution, c.DeadLetters[0].Execution, c.Keys[0].Execution, c.Chunks[0].Execution = id, id, id, id
	c.Sums[0].Execution = id
	c.Keys[0].Holder = machine.KeyHolderOf(c.Executions[0])
	c.Executions[0].New, c.Runs[0].New, c.DeadLetters[0].New, c.Workers[0].New = true, true, true, true
	c.Sums[0].New, c.Specs[0].Large = true, false
	return c
}

// kept returns a copy of a row without the flags that a store does not keep.
func kept(x *machine.Execution) *machine.Execution {
	c := *x
	c.New, c.Attention = false, false
	return &c
}

func keptRun(r *machine.Run) *machine.Run {
	c := *r
	c.New = false
	return &c
}

// setFixed copies the fields of an execution that never change.
func setFixed(x, from *machine.Execution) {
	x.ID, x.Parent, x.Child, x.ParentGen, x.Workflow, x.Version = from.ID, from.Parent, from.Child, from.ParentGen,
		from.Workflow, from.Version
	x.Gates, x.Notify, x.Trace = from.Gates, from.Notify, from.Trace
	x.Queue, x.Lane, x.Policy, x.External, x.CreatedAt = from.Queue, from.Lane, from.Policy, from.External,
		from.CreatedAt
}

// sessions are all sessions by id.
func (e *env) sessions() map[belay.WorkerID]*machine.Worker {
	e.Helper()
	rows, err := e.store.Workers(e.Context(), store.WorkerQuery{})
	if err != nil {
		e.Fatal(err)
	}
	all := make(map[belay.WorkerID]*machine.Worker)
	for _, x := range rows {
		all[x.ID] = x.Worker
	}
	return all
}

func (e *env) chunkNumbers(q belay.ChunkQuery) []int64 {
	e.Helper()
	chunks, err := e.store.Chunks(e.Context(), q)
	if err != nil {
		e.Fatal(err)
	}
	var numbers []int64
	for _, k := range chunks {
		numbers = append(numbers, k.N)
	}
	if !slices.IsSorted(numbers) {
		e.Errorf("chunks are out of order: %v", numbers)
	}
	return numbers
}
