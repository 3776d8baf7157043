package store

import (
	"context"
	"encoding/binary"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Hinter is a store whose rows other servers change too, and which hears of it.
// A Store may be one.
type Hinter interface {
	// Listen calls heed with what other servers have committed, soon after
	// they did, and tells them what this one commits, until ctx ends; it
	// returns an error before that only if it can never hear anything. It
	// calls heed from one goroutine. Hints may be late, doubled or lost; of a
	// loss that it notices it says so by a hint.
	Listen(ctx context.Context, heed func(Hint)) error
}

// Hint says where it is worth to look. It changes when something is seen, never
// what is true.
type Hint struct {
	// Down says that nothing is heard any more, until a hint that is not Down.
	Down bool
	// Lost says that hints may have been missed: look at everything.
	Lost bool
	// Lanes have something ready, now or from a moment on. One that is not
	// known yet is worth reading.
	Lanes []LaneHint
	// AnyLane, if not 0, is a moment from which on any lane may have something
	// ready: there were too many of them to be told.
	AnyLane machine.Time
	// Workers are sessions that have something to tell their worker: it
	// should heartbeat. AnyWorker says that there were too many to be told.
	Workers   []belay.WorkerID
	AnyWorker bool
	// Look is the earliest moment at which something new will be due by its
	// time, 0 for none.
	Look machine.Time
	// Ended are the executions that ended, and Changed all others that
	// changed.
	Ended, Changed Executions
	// Objects says that an object was made or changed.
	Objects bool
}

// LaneHint is a lane and the earliest moment that something new is ready in it.
type LaneHint struct {
	Lane machine.LaneID
	At   machine.Time
}

// Executions is a set of executions that may hold a few too many.
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

// Hash is what is told of an execution: ids made together differ in their last
// bytes.
func Hash(id belay.ExecutionID) uint32 { return binary.BigEndian.Uint32(id[12:]) }
