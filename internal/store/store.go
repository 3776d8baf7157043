// Package store says what a store of Belay must do. One conformance suite,
// package storetest, holds every store to it; the memory store is its oracle.
//
// A store keeps rows and knows no rules. Writes pass through one door: Commit
// locks and loads the rows that a batch of commands names, reads the clock,
// lets the caller decide, and writes what was decided, all or nothing.
package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Store is where Belay keeps its rows. Every method is safe for concurrent use.
// Errors are *belay.Error: CodeUnavailable when trying again may help,
// CodeInternal when it will not.
type Store interface {
	// Commit runs one transaction: it locks the rows of need in the order of
	// its fields, each kind by id, loads them, asks need.Refer what they refer to
	// and loads that, reads the clock, calls decide and writes its changes,
	// together with the server's mark of life if they are vital. Nothing is written if decide wants
	// nothing written. When Commit returns nil, the
	// changes survive power loss. An error of CodeUnavailable may mean that
	// they were written or not; any other error means they were not. decide
	// may be called more than once, each time with freshly loaded rows, which
	// it may change in place.
	Commit(ctx context.Context, need machine.Need, decide func(*machine.Rows) *machine.Changes) error

	// Read reads one execution in one snapshot. CodeNotFound if it is not
	// there.
	Read(ctx context.Context, q Read) (*machine.Record, error)

	// List reads executions, newest first. It looks at q.Scan of them at most: of the
	// children of one parent; of those that have not ended, or have an owner, if only
	// such are asked for and there are no more than that; else of all. A key is found
	// by itself.
	List(ctx context.Context, q List) (Listed, error)

	// Due finds what time or a crash has left to do, up to limit of each.
	Due(ctx context.Context, limit int) (Due, error)

	// ReadyLanes lists the lanes in which something is ready, now or later, by
	// id, with the first moment at which it is. It takes as long as there are
	// such lanes, and may answer with what it found not long ago.
	ReadyLanes(ctx context.Context) ([]LaneHint, error)

	// Lanes says what lanes are, by id; those in which nothing is ready are
	// left out.
	Lanes(ctx context.Context, ids []machine.LaneID) ([]machine.Lane, error)

	// Workers lists sessions, the living first, then newest first. It takes as
	// long as there are sessions that live or are asked for, however many have
	// ended.
	Workers(ctx context.Context, q WorkerQuery) ([]WorkerRow, error)

	// Chunks reads chunks of one log or artifact, in order of number.
	Chunks(ctx context.Context, q belay.ChunkQuery) ([]machine.Chunk, error)

	// Query lists rows of the kinds that are no execution's, a part at a time. It
	// takes as long as the part is, whatever else there is. CodeInvalid for a cursor
	// that no list gave.
	Query(ctx context.Context, q Query) (Found, error)

	// Counts counts rows, for reports and checks. It reads through whole
	// tables.
	Counts(ctx context.Context) (Counts, error)

	// Tally counts what there is to do. It takes as long as that is much,
	// whatever was done before.
	Tally(ctx context.Context) (Tally, error)

	// Prune deletes executions whose root and all that descends from it ended
	// before a moment, tree by tree, with all their rows; sessions that ended
	// before it and own nothing; and idempotency keys, which live on for KeyLife
	// after their execution; up to limit of each, and a bounded number of rows.
	Prune(ctx context.Context, before machine.Time, limit int) (Pruned, error)

	// Now is the store's clock.
	Now() machine.Time

	// Vitals are what the store knows of itself. They are quick to tell.
	Vitals() Vitals

	// Close ends the store's use.
	Close() error
}

// ErrBroken lies below the errors of a store that cannot keep anything any more:
// a write to its disk failed. Nothing was written since and nothing will be;
// the process must end.
var ErrBroken = errors.New("the store is broken")

// KeyLife is how long an idempotency key outlives its execution.
const KeyLife = 24 * time.Hour

// ChunkLimit is how many chunks a query for so many gets: at most 256, 64 if
// it does not say.
func ChunkLimit(limit int) int {
	if limit <= 0 {
		return 64
	}
	return min(limit, 256)
}

// Read says what of an execution to read. A limit of 0 is none, in all queries
// of a store but a belay.ChunkQuery.
type Read struct {
	Execution belay.ExecutionID
	// Spec reads the spec whose input counts; Run only the newest run, Runs
	// the newest so many of them, with their outputs.
	Spec, Run bool
	Runs      int
	// History reads all rows with a seq after After, up to about Limit
	// events (the oldest first); Data includes payloads.
	History bool
	After   int64
	Limit   int
	Data    bool
	// Resume reads the checkpoints that count, with data, and the signals not
	// consumed, those with a seq after ResumeAfter; Signals the signals alone. Of more
	// than Bytes, if that is not 0, about the first so many are read, one row at least;
	// see [Page].
	Resume      bool
	Signals     bool
	ResumeAfter int64
	Bytes       int
}

// List selects executions.
type List struct {
	States   []belay.State
	Workflow string
	Queue    string
	Key      string
	Parent   belay.ExecutionID // its children only
	Children bool              // children of any too
	Labels   map[string]string
	Before   belay.ExecutionID // those older than it; zero for all
	Limit    int
	// Scan is how many are looked at, at most.
	Scan int
	// Payloads includes inputs and outputs.
	Payloads bool
}

// Listed is a part of a list.
type Listed struct {
	Records []*machine.Record
	// Last is the oldest execution that was looked at, and At when it was made, where
	// older ones were not and fewer were found than were asked for.
	Last belay.ExecutionID
	At   machine.Time
}

// Active reports whether only states are named in which an execution has not ended.
func Active(states []belay.State) bool {
	return len(states) > 0 && !slices.ContainsFunc(states, belay.State.Terminal)
}

// Owned reports whether only states are named in which an execution has an owner.
func Owned(states []belay.State) bool {
	return len(states) > 0 && !slices.ContainsFunc(states, func(s belay.State) bool {
		return s != belay.Running && s != belay.Scheduled
	})
}

// Due is what there is to do now, and when there will be more.
type Due struct {
	// Workers are sessions whose time is over.
	Workers []belay.WorkerID
	// Checks are executions whose CheckAt has come.
	Checks []belay.ExecutionID
	// Lost are executions owned by a session that has ended or is not there.
	// They are in order of their sessions.
	Lost []Lost
	// Children are open children of parents that have ended, are being
	// cancelled or were reopened since, themselves neither cancelled yet nor
	// meant to live on.
	Children []belay.ExecutionID
	// Parted are such parents of whom no such child is left, which nobody has noted yet.
	// Parents are looked at in order of their ids, up to the limit, and no more once
	// they are noted.
	Parted []machine.Part
	// NextWorker and NextCheck are the earliest times after now, 0 for none.
	NextWorker machine.Time
	NextCheck  machine.Time
	// MinTTL is the shortest TTL of the living sessions, 0 if none lives.
	MinTTL time.Duration
}

// Lost is an execution whose owner has gone, how often in a row it was lost before, and
// when its run began.
type Lost struct {
	machine.Lose
	Losses int
	RunAt  machine.Time
}

// WorkerQuery selects sessions; the zero WorkerQuery selects all.
type WorkerQuery struct {
	// IDs selects these, those that are not there left out.
	IDs []belay.WorkerID
	// Living selects those that have not ended.
	Living bool
	// Host selects those whose process runs on this host.
	Host  string
	Limit int
	// Owned counts what each owns.
	Owned bool
}

// Of are the rows of those that the query selects, in order.
func (q WorkerQuery) Of(rows []WorkerRow) []WorkerRow {
	named := make(map[belay.WorkerID]bool, len(q.IDs))
	for _, id := range q.IDs {
		named[id] = true
	}
	rows = slices.DeleteFunc(rows, func(r WorkerRow) bool {
		return q.IDs != nil && !named[r.ID] || q.Living && r.State.Ended() || q.Host != "" &&
			r.Spec.Process.Host != q.Host
	})
	slices.SortFunc(rows, func(a, b WorkerRow) int {
		if a.State.Ended() != b.State.Ended() {
			return cmp.Compare(a.State, b.State) // those of the living come before the others
		}
		return slices.Compare(b.ID[:], a.ID[:])
	})
	if q.Limit > 0 && len(rows) > q.Limit {
		rows = rows[:q.Limit]
	}
	return rows
}

// WorkerRow is a session and, if that was asked for, how much it owns.
type WorkerRow struct {
	*machine.Worker
	Running int
}

// Counts are numbers of rows.
type Counts struct {
	Executions  map[belay.State]int64
	Runs        int64
	Checkpoints int64
	DeadLetters int64 // open ones
	Sessions    int64 // living ones
}

// Tally is how much there is to do.
type Tally struct {
	Executions  map[belay.State]int64       // those that have not ended
	DeadLetters map[string]int64            // open ones, by reason
	Workers     map[belay.WorkerState]int64 // sessions that live
}

// NewTally is nothing at all.
func NewTally() Tally {
	return Tally{
		Executions: make(map[belay.State]int64), DeadLetters: make(map[string]int64),
		Workers: make(map[belay.WorkerState]int64),
	}
}
