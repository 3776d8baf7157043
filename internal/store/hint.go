package store

import (
	"context"
	"encoding/binary"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Hinter is a store whose rows other servers can change, and which receives hints (messages) about
// their commits. A Store may implement Hinter.
type Hinter interface {
	// Listen calls heed with a hint (a message about a commit) soon after each commit of another
	// server, and sends hints about the commits of this server to the others, until ctx ends. It
	// returns an error earlier only if it can never receive a hint. It calls heed from one
	// goroutine. Hints may be late, repeated or lost; if Listen notices a loss, it says so in a
	// hint.
	Listen(ctx context.Context, heed func(Hint)) error
}

// Hint names rows that another server has changed. A hint can make the engine read rows earlier; it
// never changes what the engine decides.
type Hint struct {
	// Down says that no hints are received any more, until a hint that is not Down.
	Down bool
	// Lost says that hints may have been lost, so the engine must check everything.
	Lost bool
	// Lanes are lanes (the executions with equal queue, workflow, version, priority and labels)
	// that have a ready execution, or will have one at a known time. The engine should load a lane
	// that it does not know.
	Lanes []LaneHint
	// AnyLane, if not 0, is a time from which on any lane may have a ready execution, because there
	// were too many lanes to list.
	AnyLane machine.Time
	// Workers are sessions that a change concerns. Their workers should send a heartbeat soon,
	// because the reply to the heartbeat reports the change. AnyWorker says that there were too
	// many sessions to list.
	Workers   []belay.WorkerID
	AnyWorker bool
	// Look is the earliest time at which a row of the commit becomes due, 0 for none.
	Look machine.Time
	// Ended are the executions that ended, and Changed are the other executions that changed.
	Ended, Changed Executions
	// Objects says that an object was added or changed.
	Objects bool
	// States are changes of states, if WantStates has requested them. StatesLost says that changes of
	// states may be missing; Lost and Down say that too.
	States     []StateHint
	StatesLost bool
}

// StateHint is a change of an execution's state; see [machine.StateChange].
type StateHint struct {
	Execution   belay.ExecutionID
	From, State belay.State
	Seq         int64
	Generation  int
	At          machine.Time
}

// StateHinter is a Hinter that also receives the changes of states that other servers commit.
type StateHinter interface {
	Hinter
	// WantStates says whether the hints shall contain the changes of states. While they shall, every
	// commit of another server is in Hint.States, or a hint says StatesLost after it. The changes of
	// one server come in the order of its commits. It returns at once.
	WantStates(want bool)
}

// LaneHint is a lane (a group of executions that the same workers may claim) with the earliest time
// at which a changed execution of the lane is ready.
type LaneHint struct {
	Lane machine.LaneID
	At   machine.Time
}

// Executions is a set of executions. The set may contain a few executions too many, since it has
// only hashes of their ids.
type Executions struct {
	All    bool
	Hashes map[uint32]struct{}
}

// Has reports whether the execution may be in the set.
func (x Executions) Has(id belay.ExecutionID) bool {
	_, has := x.Hashes[Hash(id)]
	return has || x.All
}

// None reports whether the set is empty.
func (x Executions) None() bool { return !x.All && len(x.Hashes) == 0 }

// Hash stands for an execution in a hint (a message about a commit). It uses the last bytes of the
// id, in which ids of the same time differ.
func Hash(id belay.ExecutionID) uint32 { return binary.BigEndian.Uint32(id[12:]) }
