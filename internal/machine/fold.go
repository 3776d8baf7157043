package machine

import (
	"time"

	"github.com/belaydev/belay"
)

// Need names the rows that a batch of commands must see. A store locks and loads these rows, in
// the order of the fields, before it reads its clock.
type Need struct {
	Workers []belay.WorkerID
	// Held asks for the executions that a worker owns, read without locks: each is changed by a
	// command of its own.
	Held []belay.WorkerID
	// Executions come with all their ancestors.
	Executions []belay.ExecutionID
	// Owners asks for the sessions that own executions, read without locks: the rules use only
	// the parts of a session that never change.
	Owners []belay.ExecutionID
	// Ready asks for the first due executions of a lane. The store leaves out executions that
	// another transaction has locked.
	Ready []ReadyQuery
	Keys  []Key
	// Specs asks for the newest spec of executions.
	Specs []belay.ExecutionID
	// Runs, Ops, Signals and Chunks are looked up where a command may be a repetition or names
	// another row.
	Runs    []belay.RunID
	Ops     []OpRef
	Signals []SignalRef
	Chunks  []ChunkRef
	// Drops asks for the chunks of a range, without their data. Sums asks how many bytes are kept
	// under a name.
	Drops []ChunkDrop
	Sums  []SumRef
	// Checkpoints asks for all checkpoints of an execution, to fork it.
	Checkpoints []belay.ExecutionID
	// Lines asks for the executions at the head of the lines of gates, those that another
	// transaction holds left out.
	Lines []LineQuery
	// Objects are locked last.
	Objects []ObjectRef
	// LaneGates are gates of queues and workflows, most of which are not there. A store looks
	// without a lock which of them are there, and then loads those by Further.
	LaneGates []belay.GateID
	// Counts asks for gates and what they hold, and Members who names a limit. All gates are
	// locked together, by Further, so that batches of several servers cannot deadlock. Counts and
	// Members are read after that.
	Counts  []belay.GateID
	Members []MemberQuery
	// Entering are executions that an owner may be given: all their gates are loaded.
	Entering []belay.ExecutionID

	first     []OpRef               // operations of which this is the first try, if none was repeated
	laneGates map[belay.GateID]bool // those in LaneGates
	ready     map[LaneID]int        // index of a lane's query in Ready
	lines     map[belay.GateID]int  // index of a gate's query in Lines
}

// LineQuery asks for up to Limit executions that are parked at a gate, in the order of its
// line: by rank, by the moment since which they are due, by id.
type LineQuery struct {
	Gate  belay.GateID
	Limit int
}

// MemberQuery asks for up to Limit executions that name a limit and have not ended, the
// oldest first.
type MemberQuery struct {
	Gate  belay.GateID
	Limit int
}

// ReadyQuery asks for up to Limit executions of a lane, the longest due first.
type ReadyQuery struct {
	Lane  LaneID
	Limit int
}

// Rows are the rows that a store found for a Need. Fold changes them in place.
type Rows struct {
	// Now is the store's clock, read after the rows were locked.
	Now Time
	// Epoch is the floor of tokens: every new token is above it; see [NextEpoch].
	Epoch belay.Token
	// Mark is the newest mark of life of any server, and Beat how often the server that committed
	// last writes its mark; 0 if there never was one. A store loads both for every Need, since
	// the rules look at the last mark before they write a new one.
	Mark Time
	Beat time.Duration
	// Leapt is how far the store's clock leapt forwards because it was set, as far as no batch
	// has extended deadlines for the leap yet. Ahead is how far the store's clock is ahead of the
	// clock that it follows. No rule uses Ahead.
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
	Chunks      []Chunk // of Need.Chunks and of Need.Drops, without Data
	Sums        []*Sum
	Checkpoints []*Checkpoint
	Objects     []*Object
	LaneGates   []belay.GateID // of the need, those that are there
	Lines       []GateLine     // one for each query, in its order
	Counts      []GateCount
	Members     []Place
}

// GateLine answers a LineQuery.
type GateLine struct {
	Gate  belay.GateID
	Heads []belay.ExecutionID
}

// ReadyLane answers a ReadyQuery.
type ReadyLane struct {
	// Due are the executions to claim, in order.
	Due []belay.ExecutionID
	// Next is the due time of the first execution that is not due yet. It is 0 if there is none,
	// or if the limit was reached before it.
	Next Time
}

// Changes are the rows that a fold wants written: all of them in one transaction, or none.
type Changes struct {
	Executions  []*Execution
	Specs       []*Spec
	Lanes       []Lane // of submitted executions, each once
	Runs        []*Run
	Checkpoints []*Checkpoint
	Pruned      []SignalRef // checkpoints whose data is deleted, by execution and seq
	Signals     []*Signal
	Consumed    []*Signal // signals whose ConsumedBy was set
	Deeds       []*Deed
	DeadLetters []*DeadLetter // New, or resolved
	Workers     []*Worker
	Keys        []KeyRow
	Drops       []ChunkDrop // deleted before Chunks are written
	Chunks      []*Chunk
	Sums        []*Sum
	Objects     []*Object
	Audit       []*Audit
	Places      []*Place // as they stand after the fold, each once
	// Grace, if not 0, extends every session that has not ended by this much, and at least to its
	// own TTL from now. Sessions in Workers are extended already.
	Grace time.Duration
	// Leap, if not 0, moves the times from which the delays of owned executions are counted
	// (begin, assignment, progress, end of the cancel grace) later by this much, and at most to
	// now: the clock leapt, and this time did not pass. Executions in Executions are moved
	// already.
	Leap time.Duration
	// Mark asks the store to write the server's mark of life although no session is written. With
	// a session the store writes the mark in any case.
	Mark bool
	// Beat is how often the server intends to write its mark of life; it is written with the
	// mark. The engine sets Beat. Beat alone is no reason to write.
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
		len(c.Objects)+len(c.Audit)+len(c.Places) == 0 && c.Grace == 0 && !c.Mark
}

// Vital reports whether writing the changes proves that sessions can be written: the changes
// include a session or a mark of life. Only such a commit may write a mark. While heartbeats
// cannot be written, a mark from other writes would hide this from the judgement of sessions by
// time.
func (c *Changes) Vital() bool { return len(c.Workers) > 0 || c.Mark || c.Grace != 0 }

// Command is one request to decide. The types of this package that implement it are all the
// commands.
type Command interface {
	// Need adds the rows that the command must see.
	Need(n *Need)
	// apply decides the command: it checks everything and then changes rows, or refuses and
	// changes nothing.
	apply(w *world) (Reply, error)
}

// Reply answers one command. Only the fields that concern the command are set.
type Reply struct {
	ID        belay.ExecutionID
	Seq       int64
	Replayed  bool
	Execution *Execution // a copy, in its state after the command
	Spec      *Spec      // of that execution, in the reply to an action
	Claims    []Claimed
	Session   belay.Session
	Heartbeat belay.HeartbeatReply
	Object    *Object // a copy, in its state after the command
	// Shut are lanes of a claim whose gates let nothing through.
	Shut []ShutLane
	// Follow are follow-up commands for other rows. Their cause stands in rows, so a sweep finds
	// it if this process dies before the commands are sent.
	Follow []Command
	Err    error
}

// ShutLane is a lane whose queue or workflow has a gate that lets nothing through.
type ShutLane struct {
	Lane LaneID
	Gate belay.GateID
	// Until is when it is worth to look again, 0 where an operator has to open the gate.
	Until Time
}

// Claimed is one execution that a claim won.
type Claimed struct {
	Execution Execution
	// Input is the execution's input if Known is set. Known is not set for an execution that
	// became due in the batch that claims it, nor for a large input: neither is read with the
	// claim.
	Input []byte
	Known bool
	// First says that the execution was never claimed before: the store can have nothing of it
	// but the submission.
	First bool
	// Alone asks the worker to claim nothing else while the run is young.
	Alone bool
}

// NeedOf names the rows that a batch of commands must see.
func NeedOf(commands []Command) Need {
	var need Need
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
		w.following = nil
		r, err := c.apply(w)
		if err != nil {
			r = Reply{Err: err}
		}
		r.Follow = append(r.Follow, w.following...)
		replies[i] = r
	}
	w.writeGates()
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
