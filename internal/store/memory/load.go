package memory

import (
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// load copies the rows that a batch of commands needs, without duplicates.
func (s *Store) load(need machine.Need) *machine.Rows {
	rows := &machine.Rows{
		Now: s.nowLocked(), Epoch: s.epoch, Mark: s.mark, Beat: s.beat, Leapt: s.clock.Leapt(), Ahead: s.clock.Ahead(),
		Held: make(map[belay.WorkerID][]*machine.Execution, len(need.Held)),
	}
	for _, id := range unique(need.Workers) {
		if x := s.workers[id]; x != nil {
			next := copyWorker(x)
			if slices.Contains(need.Current, id) {
				next.Current = x.Current
			}
			rows.Workers = append(rows.Workers, next)
		}
	}
	for _, id := range unique(need.Held) {
		rows.Held[id] = s.owned(id)
	}
	executions := s.withAncestors(need.Executions)
	specs := slices.Clone(need.Specs)
	var due []belay.ExecutionID
	for _, q := range need.Ready {
		lane := s.ready(q, rows.Now)
		rows.Ready = append(rows.Ready, lane)
		executions = append(executions, s.withAncestors(lane.Due)...)
		due = append(due, lane.Due...)
	}
	for _, q := range need.Lines {
		line := s.line(q)
		rows.Lines = append(rows.Lines, line)
		executions = append(executions, s.withAncestors(line.Heads)...)
	}
	for _, id := range unique(executions) {
		rows.Executions = append(rows.Executions, copyExecution(s.records[id].execution))
	}
	for i, id := range unique(append(slices.Clip(specs), due...)) {
		if sp := s.newestSpec(id); sp != nil {
			carried := i >= len(unique(specs))
			large := carried && len(sp.Input) > machine.MaxCarried
			if sp = copySpec(sp, !large); carried {
				sp.TriggerPayload = nil
			}
			sp.Large = large
			rows.Specs = append(rows.Specs, sp)
		}
	}
	for _, id := range unique(need.Owners) {
		if x := s.ownerOf(id); x != nil && !slices.ContainsFunc(rows.Owners, func(o *machine.Worker) bool {
			return o.ID == x.ID
		}) {
			rows.Owners = append(rows.Owners, copyWorker(x))
		}
	}
	s.lookUp(need, rows)
	return rows
}

// ownerOf returns the session that owns an execution, nil if no session owns it.
func (s *Store) ownerOf(id belay.ExecutionID) *machine.Worker {
	e := s.of(id).execution
	if e == nil || e.Worker.IsZero() {
		return nil
	}
	return s.workers[e.Worker]
}

// lookUp loads the rows that the commands name by their keys, such as chunks and signals.
func (s *Store) lookUp(need machine.Need, rows *machine.Rows) {
	for _, k := range unique(need.Keys) {
		if row, ok := s.keys[k]; ok {
			row.Holder = machine.KeyHolderOf(s.of(row.Execution).execution)
			rows.Keys = append(rows.Keys, row.KeyRow)
		}
	}
	for _, id := range unique(need.Runs) {
		if i, ok := find(s.of(id.Execution).runs, byToken, int64(id.Token)); ok {
			rows.Runs = append(rows.Runs, copyRun(s.of(id.Execution).runs[i], true))
		}
	}
	s.loadOps(rows, unique(need.Ops))
	for _, ref := range unique(need.Signals) {
		if i, ok := find(s.of(ref.Execution).signals, bySignal, ref.Seq); ok {
			rows.Signals = append(rows.Signals, copySignal(s.of(ref.Execution).signals[i], true))
		}
	}
	for _, ref := range unique(need.Chunks) {
		if i, ok := find(s.of(ref.Execution).chunks, byChunk, ref); ok {
			rows.Chunks = append(rows.Chunks, *copyChunk(s.of(ref.Execution).chunks[i], false))
		}
	}
	for _, d := range unique(need.Drops) {
		for _, k := range s.of(d.Execution).chunks {
			if k.Name == d.Name && d.From <= k.N && k.N < d.To {
				rows.Chunks = append(rows.Chunks, *copyChunk(k, false))
			}
		}
	}
	for _, ref := range unique(need.Sums) {
		if sum, ok := s.of(ref.Execution).sums[ref.Name]; ok {
			rows.Sums = append(rows.Sums, &sum)
		}
	}
	s.loadLetters(rows, unique(need.Letters))
	for _, id := range unique(need.Checkpoints) {
		for _, k := range s.of(id).checkpoints {
			rows.Checkpoints = append(rows.Checkpoints, copyCheckpoint(k, true))
		}
	}
	for _, id := range unique(need.Mailboxes) {
		for _, x := range s.of(id).signals {
			rows.Signals = append(rows.Signals, copySignal(x, true))
		}
	}
	s.loadObjects(rows, unique(need.Objects))
	for _, id := range unique(need.LaneGates) {
		if s.objects[machine.GateRef(id)] != nil {
			rows.LaneGates = append(rows.LaneGates, id)
		}
	}
	more := need.Further(rows)
	s.loadObjects(rows, more.Objects)
	s.loadOps(rows, more.Ops)
	s.loadGates(rows, more, need.Members)
}

func (s *Store) loadOps(rows *machine.Rows, refs []machine.OpRef) {
	for _, ref := range refs {
		if o, ok := s.of(ref.Execution).op(ref); ok {
			rows.Ops = append(rows.Ops, o)
		}
	}
}

// of returns the record of an execution, an empty record if there is no such execution.
func (s *Store) of(id belay.ExecutionID) *record {
	if r := s.records[id]; r != nil {
		return r
	}
	return &record{}
}

// op finds the row that an operation wrote.
func (r *record) op(ref machine.OpRef) (machine.Op, bool) {
	for _, k := range r.checkpoints {
		if k.Op == ref.Op {
			return machine.Op{OpRef: ref, Seq: k.Seq, Sum: k.OpSum}, true
		}
	}
	for _, x := range r.signals {
		if x.Op == ref.Op {
			return machine.Op{OpRef: ref, Seq: x.Seq, Sum: x.OpSum}, true
		}
	}
	for _, d := range r.deeds {
		if d.Op == ref.Op {
			return machine.Op{OpRef: ref, Seq: d.Seq, Sum: d.OpSum}, true
		}
	}
	for _, x := range r.runs {
		if x.Op == ref.Op && x.EndedSeq != 0 {
			return machine.Op{OpRef: ref, Seq: x.EndedSeq, Sum: x.OpSum}, true
		}
	}
	return machine.Op{}, false
}

// withAncestors lists the executions of the ids that exist, with their ancestors.
func (s *Store) withAncestors(ids []belay.ExecutionID) []belay.ExecutionID {
	var all []belay.ExecutionID
	for _, id := range ids {
		for e := s.of(id).execution; e != nil; e = s.of(e.Parent).execution {
			all = append(all, e.ID)
		}
	}
	return all
}

// ready answers one query for the due executions of a lane (a group that the same workers may
// claim).
func (s *Store) ready(q machine.ReadyQuery, now machine.Time) machine.ReadyLane {
	var lane machine.ReadyLane
	waiting := s.where(func(e *machine.Execution) bool { return e.Lane == q.Lane && e.Ready() != 0 })
	slices.SortStableFunc(waiting, func(a, b *machine.Execution) int { return int(a.Ready() - b.Ready()) })
	for _, e := range waiting {
		if len(lane.Due) >= q.Limit {
			break
		}
		if e.Ready() > now {
			lane.Next = e.Ready()
			break
		}
		lane.Due = append(lane.Due, e.ID)
	}
	return lane
}

// owned lists copies of the executions that a worker owns, by id.
func (s *Store) owned(id belay.WorkerID) []*machine.Execution {
	held := s.where(func(e *machine.Execution) bool { return e.Worker == id && !id.IsZero() })
	for i, e := range held {
		held[i] = copyExecution(e)
	}
	return held
}

// where lists the executions that meet a condition, by id.
func (s *Store) where(holds func(*machine.Execution) bool) []*machine.Execution {
	var all []*machine.Execution
	for _, r := range s.records {
		if r.execution != nil && holds(r.execution) {
			all = append(all, r.execution)
		}
	}
	slices.SortFunc(all, func(a, b *machine.Execution) int { return a.ID.Compare(b.ID) })
	return all
}

// newestSpec returns the spec with the present input.
func (s *Store) newestSpec(id belay.ExecutionID) *machine.Spec {
	if specs := s.of(id).specs; len(specs) > 0 {
		return specs[len(specs)-1]
	}
	return nil
}

// unique removes duplicates and keeps the order.
func unique[T comparable](all []T) []T {
	seen := make(map[T]bool, len(all))
	var out []T
	for _, v := range all {
		if !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}
