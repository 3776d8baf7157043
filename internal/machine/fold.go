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
	// Objects are locked last.
	Objects []ObjectRef
	// Refer, if set, is asked what the rows refer to that are loaded: those objects are
	// loaded too, before the clock is read. It may be asked more than once.
	Refer func(*Rows) []ObjectRef

	ready map[LaneID]int // where a lane stands in Ready
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
	// Epoch is below every token that is given out now; see [NextEpoch].
	Epoch belay.Token
	// Mark is the newest mark of life of any server and Beat how often the
	// server that committed last writes one; 0 if there never was one. They are
	// there whatever the Need: who writes a mark must first have looked at the
	// last.
	Mark Time
	Beat time.Duration
	// Leapt is by how much the store's clock leapt forwards, since it was set, and no
	// batch has made good yet. Ahead is by how much it is ahead of the clock that it
	// follows; it decides nothing.
	Leapt, Ahead time.Duration

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
	Objects     []*Object
}

// ReadyLane answers a ReadyQuery.
type ReadyLane struct {
	// Due are the executions to claim, in order.
	Due []belay.ExecutionID
	// Next is when the first execution that is not due yet will be, 0 if
	// there is none or the limit was reached before it.
	Next Time
}

// Changes are what a fold wants written, all or nothing.
type Changes struct {
	Executions  []*Execution
	Specs       []*Spec
	Lanes       []Lane // of what was submitted, each once
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
	Objects     []*Object
	Audit       []*Audit
	// Grace, if not 0, moves the end of every session that has not ended
	// later by so much, and at least to its own TTL from now. Sessions in
	// Workers have it already.
	Grace time.Duration
	// Leap, if not 0, moves the times by which owned executions are late (when they
	// began, were assigned, made progress, must have been cancelled) later by so much,
	// and at most to now: it did not pass. Executions that are changed anyway have it
	// already.
	Leap time.Duration
	// Mark asks for the server's mark of life though no session is written; with
	// a session it is written anyway.
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
		len(c.Deeds)+len(c.DeadLetters)+len(c.Workers)+len(c.Keys)+len(c.Chunks)+len(c.Drops)+len(c.Sums)+
		len(c.Objects)+len(c.Audit) == 0 && c.Grace == 0 && !c.Mark
}

// Vital reports whether writing the changes proves that sessions can be written: they
// change one, or are a mark of life. Only then has a mark something to say to those who
// judge sessions by time: while heartbeats cannot be written, nobody else's writes may
// say that all is well.
func (c *Changes) Vital() bool { return len(c.Workers) > 0 || c.Mark || c.Grace != 0 }

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
	Spec      *Spec      // of that execution, where an action answers with it
	Claims    []Claimed
	Session   belay.Session
	Heartbeat belay.HeartbeatReply
	Object    *Object // a copy, as it stood after the command
	// Follow are commands that must follow: their cause stands in rows, so
	// that a sweep finds them if this process dies before they are sent.
	Follow []Command
	Err    error
}

// Claimed is one execution won.
type Claimed struct {
	Execution Execution
	// Input is that of the execution if Known: what became due in the very
	// batch that claims it was not read with its input, nor was a large one.
	Input []byte
	Known bool
	// First tells that the execution was never claimed before: nothing can be stored
	// of it but what was submitted.
	First bool
	// Alone asks the worker to take nothing else while the run is young.
	Alone bool
}

// NeedOf is what a batch of commands must see.
func NeedOf(commands []Command) Need {
	need := Need{Refer: Refer}
	for _, c := range commands {
		c.Need(&need)
	}
	return need
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
	if w.out.Vital() {
		w.out.Grace = max(w.out.Grace, w.gap)
	}
	return w.out, replies
}
