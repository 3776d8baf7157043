package machine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// keeper keeps rows in maps as a store keeps them in tables, and writes changes to them. It
// reports as an error: a new row that exists already, a change to a row that does not exist, and
// a row that was changed but not written. Rows in a keeper are never changed in place, so a
// shallow clone is a snapshot.
type keeper struct {
	now     Time
	epoch   belay.Token
	mark    Time
	beat    time.Duration
	records map[belay.ExecutionID]record
	workers map[belay.WorkerID]*Worker
	lanes   map[LaneID]Lane
	keys    map[Key]KeyRow
	objects map[ObjectRef]*Object
	audit   []*Audit
	places  map[PlaceKey]bool // true if the execution has the place

	// targets are the targets of notifications; nil for those of their object.
	targets *Targets

	folding []Command // the commands of the present batch

	// onRead and onWrite are planted bugs: they change the rows that were read, or the changes
	// before they are written.
	onRead  func(*keeper, *Rows)
	onWrite func(*keeper, *Changes)
}

// record contains all rows of one execution. Each list is sorted by the key of its rows.
type record struct {
	execution   *Execution
	specs       []*Spec
	runs        []*Run
	checkpoints []*Checkpoint
	signals     []*Signal
	deeds       []*Deed
	letters     []*DeadLetter
	chunks      []*Chunk
	sums        []*Sum
}

// began is the time at which the clock of the tests starts.
const began Time = 1_700_000_000_000_000

func newKeeper() *keeper {
	return &keeper{
		now: began, mark: began, beat: 3 * time.Second,
		records: make(map[belay.ExecutionID]record), workers: make(map[belay.WorkerID]*Worker),
		lanes: make(map[LaneID]Lane), keys: make(map[Key]KeyRow), objects: make(map[ObjectRef]*Object),
		places: make(map[PlaceKey]bool),
	}
}

func (k *keeper) clone() *keeper {
	c := *k
	c.records, c.workers = maps.Clone(k.records), maps.Clone(k.workers)
	c.lanes, c.keys, c.objects = maps.Clone(k.lanes), maps.Clone(k.keys), maps.Clone(k.objects)
	c.places = maps.Clone(k.places)
	return &c
}

// fold carries out one batch: it loads the rows that the commands need, applies the commands, and
// writes.
func (k *keeper) fold(commands ...Command) (*Changes, []Reply, error) {
	need := NeedOf(commands)
	targets, err := k.targetsFor(&need, commands)
	if err != nil {
		return nil, nil, err
	}
	rows := k.load(&need)
	rows.Targets = targets
	k.folding = commands
	if k.onRead != nil {
		k.onRead(k, rows)
	}
	changes, replies := Fold(rows, commands)
	if err := k.unwritten(rows, changes); err != nil && k.onRead == nil {
		return changes, replies, err
	}
	if changes.Empty() {
		return changes, replies, nil
	}
	if k.onWrite != nil {
		k.onWrite(k, changes)
	}
	if changes.Vital() {
		k.mark = k.now
	}
	return changes, replies, k.write(changes)
}

// targetsFor returns the targets of notifications for commands that may end executions, as the engine does.
func (k *keeper) targetsFor(n *Need, commands []Command) (t *Targets, err error) {
	ending := false
	var ids []belay.ExecutionID
	for _, c := range commands {
		may, ok := MayEnd(c)
		ids, ending = append(ids, may...), ending || ok
	}
	if !ending {
		return nil, nil
	}
	if t = k.targets; t == nil {
		t, err = TargetsOf(k.objects[TargetsRef()])
	}
	if err == nil && t.Labelled() {
		n.Specs = append(n.Specs, ids...)
	}
	return t, err
}

func (k *keeper) load(n *Need) *Rows {
	rows := &Rows{Now: k.now, Epoch: k.epoch, Mark: k.mark, Beat: k.beat, Held: make(map[belay.WorkerID][]*Execution)}
	for _, id := range unique(n.Workers) {
		if x := k.workers[id]; x != nil {
			rows.Workers = append(rows.Workers, copied(x))
		}
	}
	for _, id := range unique(n.Held) {
		rows.Held[id] = copies(k.where(func(e *Execution) bool { return e.Worker == id }))
	}
	for _, id := range unique(n.Owners) {
		if e := k.records[id].execution; e != nil && k.workers[e.Worker] != nil {
			rows.Owners = append(rows.Owners, copied(k.workers[e.Worker]))
		}
	}
	executions, specs := n.Executions, n.Specs
	for _, q := range n.Ready {
		lane := k.ready(q)
		rows.Ready = append(rows.Ready, lane)
		executions = append(executions, lane.Due...)
		specs = append(specs, lane.Due...)
	}
	for _, q := range n.Lines {
		line := GateLine{Gate: q.Gate}
		for _, e := range k.parked(q.Gate) {
			if len(line.Heads) < q.Limit {
				line.Heads = append(line.Heads, e.ID)
			}
		}
		rows.Lines = append(rows.Lines, line)
		executions = append(executions, line.Heads...)
	}
	for _, id := range unique(k.withAncestors(executions)) {
		rows.Executions = append(rows.Executions, copied(k.records[id].execution))
	}
	for _, id := range unique(specs) {
		if all := k.records[id].specs; len(all) > 0 {
			rows.Specs = append(rows.Specs, copied(all[len(all)-1]))
		}
	}
	k.lookUp(n, rows)
	return rows
}

// lookUp loads the rows that commands name one by one.
func (k *keeper) lookUp(n *Need, rows *Rows) {
	for _, key := range unique(n.Keys) {
		if row, ok := k.keys[key]; ok {
			row.Holder = KeyHolderOf(k.records[row.Execution].execution)
			rows.Keys = append(rows.Keys, row)
		}
	}
	for _, id := range unique(n.Runs) {
		for _, r := range k.records[id.Execution].runs {
			if r.Token == id.Token {
				rows.Runs = append(rows.Runs, copied(r))
			}
		}
	}
	k.loadOps(rows, unique(n.Ops))
	for _, ref := range unique(n.Signals) {
		for _, s := range k.records[ref.Execution].signals {
			if s.Seq == ref.Seq {
				rows.Signals = append(rows.Signals, copied(s))
			}
		}
	}
	for _, ref := range unique(n.Chunks) {
		for _, c := range k.records[ref.Execution].chunks {
			if c.ChunkRef == ref {
				rows.Chunks = append(rows.Chunks, Chunk{
					ChunkRef: ref, Token: c.Token, Hash: c.Hash, At: c.At, Size: c.Size,
				})
			}
		}
	}
	for _, d := range unique(n.Drops) {
		for _, c := range k.records[d.Execution].chunks {
			if d.covers(c.ChunkRef) {
				rows.Chunks = append(rows.Chunks, Chunk{
					ChunkRef: c.ChunkRef, Token: c.Token, Hash: c.Hash, At: c.At, Size: c.Size,
				})
			}
		}
	}
	for _, ref := range unique(n.Sums) {
		for _, s := range k.records[ref.Execution].sums {
			if s.SumRef == ref {
				rows.Sums = append(rows.Sums, copied(s))
			}
		}
	}
	load := func(refs []ObjectRef) {
		for _, ref := range refs {
			if o := k.objects[ref]; o != nil {
				rows.Objects = append(rows.Objects, copied(o))
			}
		}
	}
	load(unique(n.Objects))
	for _, id := range n.LaneGates {
		if k.objects[GateRef(id)] != nil {
			rows.LaneGates = append(rows.LaneGates, id)
		}
	}
	more := n.Further(rows)
	load(more.Objects)
	k.loadOps(rows, more.Ops)
	k.count(rows, more, n.Members)
	for _, ref := range unique(n.Letters) {
		var found *DeadLetter
		for _, d := range k.records[ref.Execution].letters {
			if ref.Generation == 0 || d.Generation == ref.Generation {
				found = d // the last is the newest
			}
		}
		if found != nil && !slices.ContainsFunc(rows.Letters, func(d *DeadLetter) bool {
			return d.Execution == found.Execution && d.Generation == found.Generation
		}) {
			rows.Letters = append(rows.Letters, found.copy())
		}
	}
	for _, id := range unique(n.Checkpoints) {
		rows.Checkpoints = append(rows.Checkpoints, copies(k.records[id].checkpoints)...)
	}
	for _, id := range unique(n.Mailboxes) {
		rows.Signals = append(rows.Signals, copies(k.records[id].signals)...)
	}
}

func (k *keeper) loadOps(rows *Rows, refs []OpRef) {
	for _, ref := range refs {
		if o := k.records[ref.Execution].op(ref); o.Seq != 0 {
			rows.Ops = append(rows.Ops, o)
		}
	}
}

// sum returns the row with the stored size of a log or artifact, nil if there is no such row.
func (k *keeper) sum(ref SumRef) *Sum {
	for _, s := range k.records[ref.Execution].sums {
		if s.SumRef == ref {
			return s
		}
	}
	return nil
}

// op returns the operation with its seq; the seq is 0 if no row has the operation.
func (r record) op(ref OpRef) Op {
	for _, c := range r.checkpoints {
		if c.Op == ref.Op {
			return Op{ref, c.Seq, c.OpSum}
		}
	}
	for _, s := range r.signals {
		if s.Op == ref.Op {
			return Op{ref, s.Seq, s.OpSum}
		}
	}
	for _, d := range r.deeds {
		if d.Op == ref.Op {
			return Op{ref, d.Seq, d.OpSum}
		}
	}
	for _, x := range r.runs {
		if x.Op == ref.Op && x.EndedSeq != 0 {
			return Op{ref, x.EndedSeq, x.OpSum}
		}
	}
	return Op{}
}

func (k *keeper) withAncestors(ids []belay.ExecutionID) []belay.ExecutionID {
	var all []belay.ExecutionID
	for _, id := range ids {
		for e := k.records[id].execution; e != nil; e = k.records[e.Parent].execution {
			all = append(all, e.ID)
		}
	}
	return all
}

func (k *keeper) ready(q ReadyQuery) ReadyLane {
	var lane ReadyLane
	all := k.where(func(e *Execution) bool { return e.Lane == q.Lane && e.Ready() != 0 })
	slices.SortStableFunc(all, func(a, b *Execution) int { return cmp.Compare(a.Ready(), b.Ready()) })
	for _, e := range all {
		if len(lane.Due) == q.Limit {
			break
		}
		if e.Ready() > k.now {
			lane.Next = e.Ready()
			break
		}
		lane.Due = append(lane.Due, e.ID)
	}
	return lane
}

// where lists the executions that meet a condition, sorted by id.
func (k *keeper) where(holds func(*Execution) bool) []*Execution {
	var all []*Execution
	for _, r := range k.records {
		if r.execution != nil && holds(r.execution) {
			all = append(all, r.execution)
		}
	}
	slices.SortFunc(all, func(a, b *Execution) int { return a.ID.Compare(b.ID) })
	return all
}

// history is the record from which events are merged.
func (r record) history() *Record {
	h := &Record{
		Execution: r.execution, Runs: r.runs, Checkpoints: r.checkpoints, Signals: r.signals, Deeds: r.deeds,
	}
	if len(r.specs) > 0 {
		h.Spec = r.specs[len(r.specs)-1]
	}
	return h
}

// unwritten finds rows that a batch changed but did not list as changed. A store would lose such a
// change.
func (k *keeper) unwritten(rows *Rows, c *Changes) error {
	for _, e := range rows.Executions {
		if was := k.records[e.ID].execution; !slices.Contains(c.Executions, e) && !same(was, e) {
			return fmt.Errorf("execution %s was changed and not written: %+v, was %+v", e.ID, *e, *was)
		}
	}
	for _, x := range rows.Workers {
		if was := k.workers[x.ID]; !slices.Contains(c.Workers, x) && !same(was, x) {
			return fmt.Errorf("worker %s was changed and not written", x.ID)
		}
	}
	for _, s := range rows.Signals {
		if s.ConsumedBy != 0 && !slices.Contains(c.Consumed, s) && !slices.ContainsFunc(k.records[s.Execution].signals,
			func(was *Signal) bool { return same(was, s) }) {
			return fmt.Errorf("signal %d of %s was changed and not written", s.Seq, s.Execution)
		}
	}
	for _, s := range rows.Sums {
		if was := k.sum(s.SumRef); !slices.Contains(c.Sums, s) && !same(was, s) {
			return fmt.Errorf("the sum of %s was changed and not written", s.Name)
		}
	}
	for _, o := range rows.Objects {
		if !same(k.objects[o.ObjectRef], o) {
			return fmt.Errorf("the loaded row of %s %s was changed in place", o.Kind, o.Name)
		}
	}
	for _, x := range rows.Owners {
		if !same(k.workers[x.ID], x) {
			return fmt.Errorf("worker %s was read without a lock and changed", x.ID)
		}
	}
	for id, held := range rows.Held {
		for _, e := range held {
			if !same(k.records[e.ID].execution, e) {
				return fmt.Errorf("execution %s was read without a lock for %s and changed", e.ID, id)
			}
		}
	}
	return nil
}

func copied[R any](r *R) *R {
	c := *r
	return &c
}

func copies[R any](all []*R) []*R {
	out := make([]*R, len(all))
	for i, r := range all {
		out[i] = copied(r)
	}
	return out
}

func unique[T comparable](all []T) []T {
	seen := make(map[T]bool, len(all))
	return slices.DeleteFunc(slices.Clone(all), func(v T) bool {
		was := seen[v]
		seen[v] = true
		return was
	})
}
