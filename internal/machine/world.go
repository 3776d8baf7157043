package machine

import (
	"time"

	"github.com/belaydev/belay"
)

// Need names the rows that a batch of commands must see. A store locks and
// loads them, in the order of the fields, before it reads its clock.
type Need struct {
	Workers []belay.WorkerID
	// Held asks for the executions a worker owns, read without locks: what
	// must become of them is a command of its own.
	Held []belay.WorkerID
	// Executions come with all their ancestors.
	Executions []belay.ExecutionID
	// Owners asks for the sessions that own executions, read without locks:
	// it is only told who they are, which does not change.
	Owners []belay.ExecutionID
	// Ready asks for the first due executions of a lane, those that another
	// transaction holds left out.
	Ready []ReadyQuery
	Keys  []Key
	// Specs asks for the newest spec of executions.
	Specs []belay.ExecutionID
	// Runs, Ops, Signals and Chunks are looked up where a command may be a
	// repetition or names another row.
	Runs    []belay.RunID
	Ops     []OpRef
	Signals []SignalRef
	Chunks  []ChunkRef
	// Drops asks for the chunks of a range, without their data, and Sums for
	// how much is kept under a name.
	Drops []ChunkDrop
	Sums  []SumRef
	// Checkpoints asks for all checkpoints of an execution, to fork it.
	Checkpoints []belay.ExecutionID
	APIKeys     []belay.KeyID
}

// ReadyQuery asks for up to Limit executions of a lane, the longest due first.
type ReadyQuery struct {
	Lane  LaneID
	Limit int
}

// Rows are what a store found for a Need. Fold changes them in place.
type Rows struct {
	// Now is the store's clock, read after the locks.
	Now Time
	// Epoch is the part of every token that grows when a backup is restored.
	Epoch int64
	// Mark is the newest mark of life of any server and Beat how often that
	// server writes one; 0 if there never was one. They are there whatever
	// the Need: who writes a mark must first have looked at the last.
	Mark Time
	Beat time.Duration

	Workers     []*Worker
	Held        map[belay.WorkerID][]*Execution
	Executions  []*Execution // ready ones included
	Owners      []*Worker
	Ready       []ReadyLane // one for each query, in its order
	Keys        []KeyRow
	Specs       []*Spec // of Need.Specs and of the ready ones
	Runs        []*Run
	Ops         []Op
	Signals     []*Signal
	Chunks      []Chunk // of Need.Chunks and of Need.Drops; Data left out
	Sums        []*Sum
	Checkpoints []*Checkpoint
	APIKeys     []*APIKey
}

// ReadyLane answers a ReadyQuery.
type ReadyLane struct {
	// Due are the executions to claim, in order.
	Due []belay.ExecutionID
	// Next is when the first execution that is not due yet will be, 0 if
	// there is none or the limit was reached before it.
	Next Time
}

// Op is an operation that was carried out before.
type Op struct {
	OpRef
	Seq int64
}

// Changes are what a fold wants written, all or nothing.
type Changes struct {
	Executions  []*Execution
	Specs       []*Spec
	Lanes       []Lane // written where not there yet
	Runs        []*Run
	Checkpoints []*Checkpoint
	Pruned      []SignalRef // checkpoints that lose their data, by execution and seq
	Signals     []*Signal
	Consumed    []*Signal // signals that got their ConsumedBy
	Deeds       []*Deed
	DeadLetters []*DeadLetter // New, or resolved
	Workers     []*Worker
	Keys        []KeyRow
	Drops       []ChunkDrop // made before Chunks are written
	Chunks      []*Chunk
	Sums        []*Sum
	APIKeys     []*APIKey // New, or revoked
	// Grace, if not 0, moves the end of every session that has not ended
	// later by so much, and at least to its own TTL from now. Sessions in
	// Workers have it already.
	Grace time.Duration
	// Mark asks for the server's mark of life though there is nothing else to
	// write; with anything else it is written anyway.
	Mark bool
	// Beat is how often the server means to write its mark of life, written
	// with it. The engine sets it; it is no reason to write by itself.
	Beat time.Duration
}

// ChunkDrop removes chunks From ≤ n < To.
type ChunkDrop struct {
	Execution belay.ExecutionID
	Name      string
	From, To  int64
}

// Empty reports whether there is nothing to write.
func (c *Changes) Empty() bool {
	return len(c.Executions)+len(c.Specs)+len(c.Runs)+len(c.Checkpoints)+len(c.Signals)+len(c.Consumed)+
		len(c.Deeds)+len(c.DeadLetters)+len(c.Workers)+len(c.Keys)+len(c.Chunks)+len(c.Drops)+len(c.Sums)+len(c.APIKeys) == 0 && c.Grace == 0 && !c.Mark
}

// Command is one thing to decide. The commands are the types of this package
// that implement it.
type Command interface {
	// Need adds the rows the command must see.
	Need(n *Need)
	// apply decides: it checks everything, then changes, or refuses and
	// changes nothing.
	apply(w *world) (Reply, error)
}

// Reply answers one command. Only the fields that the command speaks of are set.
type Reply struct {
	ID        belay.ExecutionID
	Seq       int64
	Replayed  bool
	Execution *Execution // a copy, as it stood after the command
	Claims    []Claimed
	Session   belay.Session
	Heartbeat belay.HeartbeatReply
	Key       belay.Key
	// Follow are commands that must follow: their cause stands in rows, so
	// that a sweep finds them if this process dies before they are sent.
	Follow []Command
	Err    error
}

// Claimed is one execution won.
type Claimed struct {
	Execution Execution
	// Input is that of the execution if Known: what became due in the very
	// batch that claims it was not read with its input.
	Input []byte
	Known bool
}

// Fold applies the commands to the rows in order.
func Fold(rows *Rows, commands []Command) (*Changes, []Reply) {
	w := newWorld(rows)
	replies := make([]Reply, len(commands))
	for i, c := range commands {
		r, err := c.apply(w)
		if err != nil {
			r = Reply{Err: err}
		}
		replies[i] = r
	}
	for _, e := range w.dirty {
		e.CheckAt = checkAt(e)
	}
	w.out.Executions = w.dirty
	w.out.Workers = w.dirtyWorkers
	return w.out, replies
}

// world is the rows of one fold, by their keys, and the changes so far.
type world struct {
	*Rows
	execs   map[belay.ExecutionID]*Execution
	workers map[belay.WorkerID]*Worker
	keys    map[Key]KeyRow
	specs   map[belay.ExecutionID]*Spec
	runs    map[belay.RunID]*Run
	sums    map[SumRef]*Sum
	lanes   map[LaneID]bool
	ready   map[LaneID][]*Execution
	fresh   map[LaneID][]*Execution // became ready in this fold

	assigned     []*Execution // got an owner in this fold
	dirty        []*Execution
	isDirty      map[*Execution]bool
	dirtyRuns    map[*Run]bool
	dirtyWorkers []*Worker
	out          *Changes
}

func newWorld(rows *Rows) *world {
	n := len(rows.Executions)
	w := &world{
		Rows:    rows,
		execs:   make(map[belay.ExecutionID]*Execution, n),
		workers: make(map[belay.WorkerID]*Worker, len(rows.Workers)),
		keys:    make(map[Key]KeyRow, len(rows.Keys)),
		specs:   make(map[belay.ExecutionID]*Spec, len(rows.Specs)),
		runs:    make(map[belay.RunID]*Run, len(rows.Runs)+n),
		sums:    make(map[SumRef]*Sum, len(rows.Sums)),
		lanes:   make(map[LaneID]bool),
		ready:   make(map[LaneID][]*Execution, len(rows.Ready)),
		fresh:   make(map[LaneID][]*Execution),
		isDirty: make(map[*Execution]bool, n),

		dirtyRuns: make(map[*Run]bool, n),
		out:       &Changes{},
	}
	for _, e := range rows.Executions {
		w.execs[e.ID] = e
	}
	for _, x := range rows.Workers {
		w.workers[x.ID] = x
	}
	for _, k := range rows.Keys {
		w.keys[k.Key] = k
	}
	for _, s := range rows.Specs {
		w.specs[s.Execution] = s
	}
	for _, r := range rows.Runs {
		w.runs[belay.RunID{Execution: r.Execution, Token: r.Token}] = r
	}
	for _, s := range rows.Sums {
		w.sums[s.SumRef] = s
	}
	for _, lane := range rows.Ready {
		for _, id := range lane.Due {
			if e := w.execs[id]; e != nil {
				w.ready[e.Lane] = append(w.ready[e.Lane], e)
			}
		}
	}
	w.grace()
	return w
}

// grace gives every session the gap again if the servers' marks have missed
// three beats: a worker cannot renew with nobody to answer it. It does so
// whatever the commands are about, since the mark that goes with them would
// hide the gap from the next batch.
func (w *world) grace() {
	if w.Mark == 0 || w.Beat == 0 {
		return
	}
	gap := w.Now.Sub(w.Mark)
	if gap <= 3*w.Beat {
		return
	}
	w.out.Grace = gap
	for _, x := range w.Rows.Workers {
		if !x.State.Ended() {
			x.ExpiresAt = max(x.ExpiresAt.Add(gap), w.Now.Add(x.ttl()))
			w.changedWorker(x)
		}
	}
}

// copyOf is the row as it stands, for a reply that later commands of the fold
// must not change.
func (w *world) copyOf(e *Execution) *Execution {
	c := *e
	c.CheckAt = checkAt(e)
	return &c
}

// changed notes that the row must be written.
func (w *world) changed(e *Execution) {
	if !w.isDirty[e] {
		w.isDirty[e] = true
		w.dirty = append(w.dirty, e)
	}
}

func (w *world) changedWorker(x *Worker) {
	for _, d := range w.dirtyWorkers {
		if d == x {
			return
		}
	}
	w.dirtyWorkers = append(w.dirtyWorkers, x)
}

// advance gives the execution its next seq and notes the change.
func (w *world) advance(e *Execution) int64 {
	e.Seq++
	w.changed(e)
	return e.Seq
}

// awake notes that the execution has become due in this fold, so that a claim
// later in the fold may take it.
func (w *world) awake(e *Execution) {
	if e.Ready().over(w.Now) {
		w.fresh[e.Lane] = append(w.fresh[e.Lane], e)
	}
}

// run is the row of the execution's current run, made to be written.
func (w *world) run(e *Execution) *Run {
	id := belay.RunID{Execution: e.ID, Token: e.Token}
	r := w.runs[id]
	if r == nil || r.EndedSeq != 0 {
		r = &Run{Execution: e.ID, Token: e.Token, Generation: e.Generation}
		w.runs[id] = r
	}
	w.changedRun(r)
	return r
}

func (w *world) changedRun(r *Run) {
	if !w.dirtyRuns[r] {
		w.dirtyRuns[r] = true
		w.out.Runs = append(w.out.Runs, r)
	}
}

// deed records an action under the execution's current seq.
func (w *world) deed(e *Execution, kind, actor, reason string, op belay.OpID) *Deed {
	d := &Deed{Execution: e.ID, Seq: e.Seq, Kind: kind, Actor: actor, Reason: reason, Op: op, At: w.Now}
	w.out.Deeds = append(w.out.Deeds, d)
	return d
}

// did finds an operation that was carried out before, in the store or earlier
// in this fold.
func (w *world) did(id belay.ExecutionID, op belay.OpID) (int64, bool) {
	if op.IsZero() {
		return 0, false
	}
	for _, o := range w.Ops {
		if o.Execution == id && o.Op == op {
			return o.Seq, true
		}
	}
	for _, c := range w.out.Checkpoints {
		if c.Execution == id && c.Op == op {
			return c.Seq, true
		}
	}
	for _, s := range w.out.Signals {
		if s.Execution == id && s.Op == op {
			return s.Seq, true
		}
	}
	for _, d := range w.out.Deeds {
		if d.Execution == id && d.Op == op {
			return d.Seq, true
		}
	}
	return 0, false
}
