package machine

import (
	"time"

	"github.com/belaydev/belay"
)

// Need names the rows that a batch of commands must see. A store locks and loads these rows, in
// the order of the fields, before it reads its clock.
type Need struct {
	Workers []belay.WorkerID
	// Held requests the executions that a worker owns. They are read without locks, because a
	// command that requests them does not change them; its follow-up commands do.
	Held []belay.WorkerID
	// Current requests the current steps of sessions among Workers.
	Current []belay.WorkerID
	// Executions requests executions, together with all their ancestors.
	Executions []belay.ExecutionID
	// Owners requests the sessions that own executions. They are read without locks, because the
	// rules use only the parts of a session that never change.
	Owners []belay.ExecutionID
	// Ready requests the first due executions of a lane (the executions with equal queue, workflow,
	// version, priority and labels). The store leaves out executions that another transaction has
	// locked.
	Ready []ReadyQuery
	Keys  []Key
	// Letters requests dead letters, whose executions the same command names.
	Letters []LetterRef
	// Specs requests the newest spec of executions.
	Specs []belay.ExecutionID
	// Runs, Ops, Signals and Chunks request rows that a command names, or that a command has
	// already written if it is a repetition.
	Runs    []belay.RunID
	Ops     []OpRef
	Signals []SignalRef
	Chunks  []ChunkRef
	// Drops requests the chunks of a range, without their data. Sums requests the number of bytes
	// that are stored under a name.
	Drops []ChunkDrop
	Sums  []SumRef
	// Checkpoints requests all checkpoints of an execution that is to be forked, or some of whose
	// checkpoints are to be discarded. Mailboxes requests all signals of an execution some of whose
	// checkpoints are to be discarded.
	Checkpoints []belay.ExecutionID
	Mailboxes   []belay.ExecutionID
	// Lines requests the first executions that wait at gates. The store leaves out executions that
	// another transaction has locked.
	Lines []LineQuery
	// Objects requests objects, which are locked last.
	Objects []ObjectRef
	// LaneGates are the gates that the queues and workflows of lanes would have; most of these
	// gates do not exist. A store finds out without a lock which of them exist. It locks and loads
	// the existing gates in the second step, which Further describes.
	LaneGates []belay.GateID
	// Counts requests gates with the counts of their places and executions, and Members the
	// executions that name a limit. A store locks all gates together in the second step, which
	// Further describes, so that batches of several servers cannot deadlock. Then it reads the
	// counts and the members.
	Counts  []belay.GateID
	Members []MemberQuery
	// CountMembers is the number up to which the store counts the members of the gates in Counts,
	// because no command needs to know a higher number. If CountMembers is 0, no command needs the
	// number of members.
	CountMembers int
	// Entering are executions that a command may give to an owner; all their gates are loaded.
	Entering []belay.ExecutionID
	// Reporting are executions whose run may have failed because of the target that they name; the
	// store loads the gate of that target.
	Reporting []belay.ExecutionID
	// Using are executions that report usage; the store loads their usage objects of today and tomorrow in
	// the second step, which Further describes.
	Using []belay.ExecutionID

	first     []OpRef               // operations of writes that are not marked as repetitions
	laneGates map[belay.GateID]bool // the gates in LaneGates
	ready     map[LaneID]int        // index of a lane's query in Ready
	lines     map[belay.GateID]int  // index of a gate's query in Lines
}

// LineQuery requests up to Limit executions that wait at a gate, in the order of its line (the
// order in which it lets them through): by rank, then by the time since which they are due, then by
// id.
type LineQuery struct {
	Gate  belay.GateID
	Limit int
}

// MemberQuery requests up to Limit executions that name a limit and have not ended, or that have a place
// in a gate of another kind, ordered by id (the oldest first), after the id After.
type MemberQuery struct {
	Gate  belay.GateID
	After belay.ExecutionID
	Limit int
}

// ReadyQuery requests up to Limit executions of a lane (a group of executions that the same workers
// may claim), the longest due first.
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
	// Mark is the newest mark of life of any server (a time that each server stores at short
	// intervals to show that it can write), and Beat is the interval between the marks of the
	// server that committed last; both are 0 if there is no mark. A store loads both for every
	// Need, because the rules read the last mark before they write a new one.
	Mark Time
	Beat time.Duration
	// Targets are the targets of notifications, nil for none. A store does not load them with every batch: the
	// engine adds a list that was read at most a second before the batch, because all servers would wait for each
	// other if each end of an execution locked the object of the targets.
	Targets *Targets
	// Leapt is the time by which the store's clock was set forwards, as far as no batch has
	// extended the deadlines by it yet. Ahead is the time by which the store's clock is ahead of
	// the wall clock (of the machine or of the database). No rule uses Ahead.
	Leapt, Ahead time.Duration

	Workers     []*Worker
	Held        map[belay.WorkerID][]*Execution
	Executions  []*Execution // including the executions in Ready
	Owners      []*Worker
	Ready       []ReadyLane // one for each query, in the order of the queries
	Keys        []KeyRow
	Letters     []*DeadLetter
	Specs       []*Spec // the specs of Need.Specs and of the ready executions
	Runs        []*Run
	Ops         []Op
	Signals     []*Signal // the signals of Need.Signals and Need.Mailboxes; one row may come twice
	Chunks      []Chunk   // the chunks of Need.Chunks and Need.Drops, without Data
	Sums        []*Sum
	Checkpoints []*Checkpoint
	Objects     []*Object
	LaneGates   []belay.GateID // the existing gates among Need.LaneGates
	Lines       []GateLine     // one for each query, in the order of the queries
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
	// Due are the due executions of the lane, in the order in which claims take them.
	Due []belay.ExecutionID
	// Next is the due time of the first execution that is not due yet. It is 0 if there is none,
	// or if the limit was reached before it.
	Next Time
}

// Changes are the rows that a store must write after a batch: all of them in one transaction, or
// none.
type Changes struct {
	Executions  []*Execution
	States      []StateChange // for the followers of states; a store does not write them
	Specs       []*Spec
	Lanes       []Lane // the lanes of submitted executions, without duplicates
	Runs        []*Run
	Checkpoints []*Checkpoint
	Pruned      []SignalRef // checkpoints whose data is deleted because they are not valid, by execution and seq
	Signals     []*Signal
	Consumed    []*Signal // signals whose ConsumedBy was changed
	Deeds       []*Deed
	DeadLetters []*DeadLetter // new or changed dead letters
	Workers     []*Worker
	Keys        []KeyRow
	Drops       []ChunkDrop // chunks to delete before Chunks are written
	Chunks      []*Chunk
	Sums        []*Sum
	Objects     []*Object
	Audit       []*Audit
	Places      []*Place // the rows after the batch, without duplicates
	// Opened says that a circuit breaker has opened, for alerts; a store does not write it.
	Opened bool
	// Grace, if not 0, is a time by which the store extends every session that has not ended. After
	// that each session lives at least for its TTL from now. The sessions in Workers are extended
	// already.
	Grace time.Duration
	// Leap, if not 0, is a time by which the clock was set forwards although it did not really
	// pass. The store adds Leap to the times from which the deadlines of owned executions are
	// counted (begin, assignment, progress, end of the cancel grace); none of these times becomes
	// later than now. In Executions it is added already.
	Leap time.Duration
	// Mark makes the store write the server's mark of life (the present time) even if no session is
	// written. If the changes include a session, the store writes the mark in any case.
	Mark bool
	// Beat is the interval at which the server intends to write its mark of life (the present
	// time). The engine sets Beat, and the store writes it with the mark; Beat alone is no reason
	// to write.
	Beat time.Duration
}

// ChunkDrop removes the chunks with numbers From ≤ n < To.
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

// Vital reports whether the changes include a session or request a mark of life (the server's
// present time). A commit of such changes proves that the store can write sessions, and only such a
// commit writes a mark of life. If other commits wrote marks while the store cannot write
// heartbeats, the rules would end sessions as expired although their workers are alive.
func (c *Changes) Vital() bool { return len(c.Workers) > 0 || c.Mark || c.Grace != 0 }

// Command is one request that the rules accept or refuse. Only types of this package implement it.
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
	Spec      *Spec      // the spec of Execution, in the reply to an action
	Claims    []Claimed
	Session   belay.Session
	Heartbeat belay.HeartbeatReply
	Object    *Object     // a copy, in its state after the command
	Letter    *DeadLetter // a copy, in its state after the command
	Slots     []belay.ScheduleSlot
	Delivery  belay.WebhookDelivery
	Document  belay.DocumentVersion
	Triggers  []belay.DocumentTrigger // the schedules and webhooks that a document has changed
	Fresh     bool                    // a document has a new version
	Target    belay.TargetAnswer
	// NotificationTarget is a target of notifications after a change; after a removal, before it.
	NotificationTarget belay.NotificationTargetInfo
	// Alerts is the number of alerts that RaiseAlerts has sent, and Refused the number of those that could not be
	// sent.
	Alerts, Refused int
	// NoClaims says that a claim won nothing because its worker is cordoned or unhealthy.
	NoClaims bool
	// Worker is the new state of a session, if a health probe has changed it.
	Worker belay.WorkerState
	// Shut are the lanes of a claim whose queue or workflow has a shut gate.
	Shut []ShutLane
	// Follow are commands that change other rows as a consequence of this command. If this process
	// dies before it sends them, a sweep finds in the stored rows that they are needed.
	Follow []Command
	Err    error
}

// ShutLane is a lane whose queue or workflow has a gate that lets nothing through.
type ShutLane struct {
	Lane LaneID
	Gate belay.GateID
	// Until is the time at which a claim should check the gate again; 0 if only an operator opens
	// it.
	Until Time
}

// Claimed is one execution that a claim won.
type Claimed struct {
	Execution Execution
	// Input is the execution's input if Known is set. The claim does not read the input, and Known
	// is not set, if the input is large or if the execution became due in the batch that claims it.
	Input []byte
	Known bool
	// First says that the execution was never claimed before: the store can have no data of it
	// except its submission and signals.
	First bool
	// Alone tells the worker to claim no other execution until the run has saved a checkpoint, has
	// ended or has lasted for belay.AloneFor.
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
	w.out.States = w.stateChanges()
	w.out.Workers = w.dirtyWorkers
	if w.out.Vital() {
		w.out.Grace = max(w.out.Grace, w.gap)
	}
	return w.out, replies
}

// StateChange is an execution that is new, or whose state after a batch differs from its state before
// the batch. An execution that had several states within a batch has one StateChange, because no
// other transaction could see the states between.
type StateChange struct {
	*Execution
	From belay.State // the state before the batch; 0 for a new execution
}

// stateChanges lists the executions whose state the batch has changed, each once.
func (w *world) stateChanges() []StateChange {
	var all []StateChange
	for i, was := range w.was {
		if e := w.Rows.Executions[i]; e.State != was {
			all = append(all, StateChange{e, was})
		}
	}
	for _, e := range w.dirty {
		if e.New {
			all = append(all, StateChange{e, 0})
		}
	}
	return all
}
