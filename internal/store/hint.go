package store

import (
	"context"
	"encoding/binary"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Hinter is a store whose rows other servers change too, and which receives hints of their
// commits. A Store may be a Hinter.
type Hinter interface {
	// Listen calls heed with hints of what other servers have committed, soon after the commit,
	// and sends them hints of what this server commits, until ctx ends. It returns an error
	// earlier only if it can never receive a hint. It calls heed from one goroutine. Hints may be
	// late, repeated or lost; if Listen notices a loss, it says so in a hint.
	Listen(ctx context.Context, heed func(Hint)) error
}

// Hint says where it is worth looking. A hint changes when the engine looks at rows, never what
// the rows say.
type Hint struct {
	// Down says that no hints are received any more, until a hint that is not Down.
	Down bool
	// Lost says that hints may have been missed: the engine must look at everything.
	Lost bool
	// Lanes have a ready execution, now or from a moment on. The engine should load a lane that
	// it does not know.
	Lanes []LaneHint
	// AnyLane, if not 0, is a moment from which on any lane may have a ready execution: there
	// were too many lanes to list.
	AnyLane machine.Time
	// Workers are sessions whose worker should send a heartbeat, because the reply has news.
	// AnyWorker says that there were too many to list.
	Workers   []belay.WorkerID
	AnyWorker bool
	// Look is the earliest moment at which something new becomes due by time, 0 for none.
	Look machine.Time
	// Ended are the executions that ended, and Changed the other executions that changed.
	Ended, Changed Executions
	// Objects says that an object was added or changed.
	Objects bool
}

// LaneHint is a lane with the earliest moment at which something new is ready in it.
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

// Hash stands for an execution in a hint. It uses the last bytes of the id, in which ids of the
// same time differ.
func Hash(id belay.ExecutionID) uint32 { return binary.BigEndian.Uint32(id[12:]) }
