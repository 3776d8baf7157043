package storetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// snapshot is everything that can be read from a store.
type snapshot struct {
	Records []*machine.Record // with the whole history, newest execution first
	Resumed []*machine.Record
	Bare    []*machine.Record // history without payloads
	Listed  []*machine.Record
	Chunks  map[string][]machine.Chunk
	Workers []store.WorkerRow
	Ready   []store.LaneHint
	Heads   []store.LaneHead
	Lanes   []machine.Lane
	Objects []*machine.Object
	Gates   []*machine.Object
	Texts   []*machine.Object // the documents and the texts of their versions
	Trail   []*machine.Audit
	Due     store.Due
	Counts  store.Counts
	Tally   store.Tally
	Rows    *machine.Rows // the result of a load of all rows
}

// asked names the rows that a snapshot must read one by one, because no list contains them.
type asked struct {
	chunks []machine.ChunkRef
	keys   []machine.Key
	ops    []machine.OpRef
}

// snapshotOf reads everything.
func snapshotOf(e *env) *snapshot {
	e.Helper()
	s, err := take(e.Context(), e.store, asked{}, allExecutions)
	if err != nil {
		e.Fatalf("snapshot: %v", err)
	}
	s.Rows.Now = 0 // the stores read their clocks at different moments
	return s
}

// allExecutions selects all executions.
func allExecutions(*machine.Execution) bool { return true }

// take reads a store: all lists in full, and all rows of the selected executions.
func take(ctx context.Context, s store.Store, a asked, wanted func(*machine.Execution) bool) (*snapshot, error) {
	snap := &snapshot{Chunks: make(map[string][]machine.Chunk)}
	var err error
	listed, err := s.List(ctx, store.List{Children: true, Payloads: true})
	if snap.Listed = listed.Records; err != nil {
		return nil, err
	}
	need := machine.Need{Keys: a.keys, Ops: a.ops, Chunks: a.chunks}
	for _, ref := range a.chunks {
		need.Sums = append(need.Sums, machine.SumRef{Execution: ref.Execution, Name: ref.Name})
		need.Drops = append(need.Drops, machine.ChunkDrop{Execution: ref.Execution, Name: ref.Name, From: 1, To: 3})
	}
	for _, listed := range snap.Listed {
		id := listed.Execution.ID
		if !wanted(listed.Execution) {
			continue
		}
		for _, read := range []struct {
			into *[]*machine.Record
			what store.Read
		}{
			{&snap.Records, store.Read{Execution: id, Spec: true, Run: true, History: true, Data: true}},
			{&snap.Bare, store.Read{Execution: id, History: true, After: 1}},
			{&snap.Resumed, store.Read{Execution: id, Runs: 2, Resume: true}},
		} {
			rec, err := s.Read(ctx, read.what)
			if err != nil {
				return nil, fmt.Errorf("read %+v: %w", read.what, err)
			}
			*read.into = append(*read.into, rec)
		}
		everything(&need, snap.Records[len(snap.Records)-1])
	}
	for _, ref := range a.chunks {
		if snap.Chunks[ref.Execution.String()+ref.Name], err = s.Chunks(ctx, belay.ChunkQuery{Execution: ref.Execution,
			Name: ref.Name}); err != nil {
			return nil, err
		}
	}
	err = snap.rest(ctx, s, need)
	return snap, err
}

// everything adds all rows of a record to the rows that a load requests.
func everything(need *machine.Need, rec *machine.Record) {
	id := rec.Execution.ID
	need.Executions = append(need.Executions, id)
	need.Owners = append(need.Owners, id)
	need.Specs = append(need.Specs, id)
	need.Checkpoints = append(need.Checkpoints, id)
	need.Mailboxes = append(need.Mailboxes, id)
	for _, r := range rec.Runs {
		need.Runs = append(need.Runs, belay.RunID{Execution: id, Token: r.Token})
	}
	for _, x := range rec.Signals {
		need.Signals = append(need.Signals, machine.SignalRef{Execution: id, Seq: x.Seq})
	}
}

// rest reads the rows that belong to no execution.
func (snap *snapshot) rest(ctx context.Context, s store.Store, need machine.Need) (err error) {
	if snap.Workers, err = s.Workers(ctx, store.WorkerQuery{Owned: true, Current: true}); err != nil {
		return err
	}
	for _, x := range snap.Workers {
		need.Workers = append(need.Workers, x.ID)
		need.Held = append(need.Held, x.ID)
	}
	if snap.Ready, err = s.ReadyLanes(ctx); err != nil {
		return err
	}
	lanes := make([]machine.LaneID, len(snap.Ready))
	for i, l := range snap.Ready {
		lanes[i] = l.Lane
	}
	if snap.Lanes, err = s.Lanes(ctx, lanes); err != nil {
		return err
	}
	heads, err := s.Query(ctx, store.Query{Of: store.DueLanes, Limit: 1000})
	if snap.Heads = heads.Heads; err != nil {
		return err
	}
	if snap.Objects, err = store.All(ctx, s, machine.KeyObject); err != nil {
		return err
	}
	for _, o := range snap.Objects {
		need.Objects = append(need.Objects, o.ObjectRef)
	}
	for _, kind := range []machine.ObjectKind{machine.DocumentObject, machine.TextObject} {
		all, err := store.All(ctx, s, kind)
		if err != nil {
			return err
		}
		for _, o := range all {
			need.Objects = append(need.Objects, o.ObjectRef)
		}
		snap.Texts = append(snap.Texts, all...)
	}
	if snap.Gates, err = store.All(ctx, s, machine.GateObject); err != nil {
		return err
	}
	for _, o := range snap.Gates {
		id := belay.GateID(o.Name)
		need.Counts, need.CountMembers = append(need.Counts, id), 5
		need.Lines = append(need.Lines, machine.LineQuery{Gate: id, Limit: 2})
		need.Members = append(need.Members, machine.MemberQuery{Gate: id, Limit: 3})
	}
	trail, err := s.Query(ctx, store.Query{Of: store.Trail, Limit: 1000})
	if snap.Trail = trail.Trail; err != nil {
		return err
	}
	for i, l := range snap.Lanes {
		need.Ready = append(need.Ready, machine.ReadyQuery{Lane: l.ID, Limit: 1 + i})
	}
	if snap.Due, err = s.Due(ctx, 0); err != nil {
		return err
	}
	if snap.Counts, err = s.Counts(ctx); err != nil {
		return err
	}
	if snap.Tally, err = s.Tally(ctx); err != nil {
		return err
	}
	err = s.Commit(ctx, need, func(rows *machine.Rows) *machine.Changes {
		snap.Rows = rows
		return nil
	})
	if err == nil {
		sortRows(snap.Rows)
	}
	return err
}

// sortRows sorts the rows, since a store may load them in any order.
func sortRows(rows *machine.Rows) {
	slices.SortFunc(rows.Executions, func(a, b *machine.Execution) int { return a.ID.Compare(b.ID) })
	slices.SortFunc(rows.Workers, func(a, b *machine.Worker) int { return slices.Compare(a.ID[:], b.ID[:]) })
	slices.SortFunc(rows.Owners, func(a, b *machine.Worker) int { return slices.Compare(a.ID[:], b.ID[:]) })
	slices.SortFunc(rows.Specs, func(a, b *machine.Spec) int { return a.Execution.Compare(b.Execution) })
	slices.SortFunc(rows.Objects, func(a, b *machine.Object) int { return a.Compare(b.ObjectRef) })
	slices.SortFunc(rows.Counts, func(a, b machine.GateCount) int { return cmp.Compare(a.Gate, b.Gate) })
	slices.SortStableFunc(rows.Members, func(a, b machine.Place) int { return cmp.Compare(a.Gate, b.Gate) })
	maps.DeleteFunc(rows.Held, func(_ belay.WorkerID, held []*machine.Execution) bool { return len(held) == 0 })
}
