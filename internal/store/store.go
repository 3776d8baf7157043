// Package store defines the interface of Belay's stores. The conformance suite, package
// storetest, tests every store; the memory store is the reference for the others.
//
// A store keeps rows and contains no rules. All writes go through Commit, which locks and loads
// the rows that a batch of commands names, reads the clock, lets the caller decide, and writes
// the caller's changes in one transaction, or none of them.
//
// Retention deletes executions by trees. A tree is a root execution with its descendants, a leaf
// is an execution without children, and to fell is to choose trees and leaves for deletion (see
// retention.go).
package store

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Store keeps Belay's rows. Every method is safe for concurrent use. Errors are *belay.Error:
// CodeUnavailable if a later try may succeed, CodeInternal if it cannot.
type Store interface {
	// Commit runs one transaction. It locks the rows of need in the order of its fields, each kind
	// by id, and loads them. Then it loads the further rows that need.Further names, to which the
	// first rows refer. It reads the clock, calls decide, and writes the changes. It also writes the
	// server's mark of life (a time that shows that it runs) if the changes include a session or
	// request a mark (Changes.Vital). If the changes are empty, nothing is written.
	//
	// When Commit returns nil, the changes survive a power loss. After an error of
	// CodeUnavailable the changes may have been written or not; after any other error they were
	// not. Commit may call decide more than once, each time with freshly loaded rows, which
	// decide may change in place.
	Commit(ctx context.Context, need machine.Need, decide func(*machine.Rows) *machine.Changes) error

	// Read reads one execution in one snapshot. If there is no such execution, the error has
	// CodeNotFound.
	Read(ctx context.Context, q Read) (*machine.Record, error)

	// List reads executions, newest first. It examines at most q.Scan executions. If the list names
	// a parent, it examines only that parent's children. If the list selects only states of
	// executions that have not ended, or only states of executions with an owner, and at most
	// q.Scan executions are in such a state, it examines only these executions. Otherwise it
	// examines all executions. It finds an idempotency key by an index.
	List(ctx context.Context, q List) (Listed, error)

	// Due finds work that is due because time has passed or because a crash has interrupted it, up
	// to limit of each kind.
	Due(ctx context.Context, limit int) (Due, error)

	// ReadyLanes lists, by id, the lanes (the executions with equal queue, workflow, version,
	// priority and labels) that have an execution that is ready now or will be ready at a known
	// time, with the earliest such time. The call's duration grows with the number of such lanes;
	// its answer may come from a cache and be a little old.
	ReadyLanes(ctx context.Context) ([]LaneHint, error)

	// Lanes describes lanes (groups of executions that the same workers may claim), by id. Lanes
	// without a ready execution are left out.
	Lanes(ctx context.Context, ids []machine.LaneID) ([]machine.Lane, error)

	// Workers lists sessions: first those that have not ended, then the others, each newest first.
	// The call's duration grows with the number of sessions that have not ended or that are
	// selected, not with the number of ended sessions.
	Workers(ctx context.Context, q WorkerQuery) ([]WorkerRow, error)

	// Chunks reads chunks of one log or artifact, in order of number.
	Chunks(ctx context.Context, q belay.ChunkQuery) ([]machine.Chunk, error)

	// Query lists rows that belong to no execution, one part at a time. The call's duration grows
	// only with the size of the part. For an invalid cursor the error has CodeInvalid.
	Query(ctx context.Context, q Query) (Found, error)

	// Counts counts rows for reports and checks. It reads whole tables.
	Counts(ctx context.Context) (Counts, error)

	// Tally counts the work that has not ended. The call's duration grows only with the amount of
	// that work.
	Tally(ctx context.Context) (Tally, error)

	// Prune deletes four kinds of rows. It deletes whole trees of executions that ended before the
	// given time, with all their rows, except trees whose root has an open dead letter; sessions
	// that ended before that time and own no execution; idempotency keys whose execution was
	// deleted at least KeyLife ago; and gates that have not changed since that time, that no
	// operator has set, and in which no execution has a place or waits. It deletes at most limit
	// of each kind, and a limited number of rows.
	Prune(ctx context.Context, over Retention, limit int) (Pruned, error)

	// Now is the store's clock.
	Now() machine.Time

	// Vitals are facts that the store knows without a query. The call is fast.
	Vitals() Vitals

	// Close closes the store.
	Close() error
}

// ErrBroken is wrapped by the errors of a store that cannot write any more, because a write to its
// disk failed. The store has written nothing since then and will write nothing: the process must
// end.
var ErrBroken = errors.New("the store is broken")

// KeyLife is how long an idempotency key outlives its execution.
const KeyLife = 24 * time.Hour

// ChunkLimit is the number of chunks that a query reads: its limit, at most 256, or 64 if it has
// no limit.
func ChunkLimit(limit int) int {
	if limit <= 0 {
		return 64
	}
	return min(limit, 256)
}

// Read selects the parts of an execution to read. In the queries of a store a limit of 0 means no
// limit, except in a belay.ChunkQuery.
type Read struct {
	Execution belay.ExecutionID
	// Spec reads the spec, with the input, of the generation Generation; if Generation is 0, of the
	// present generation. Run reads the newest run. Runs is the number of newest runs to read, with
	// their outputs.
	Spec, Run  bool
	Generation int
	Runs       int
	// History reads all rows with a seq after After, up to about Limit events, the oldest first, and the
	// actor of the first event if After is 0; Data includes their payloads.
	History bool
	After   int64
	Limit   int
	Data    bool
	// Resume reads the valid checkpoints, with their data, and the signals that were not consumed,
	// both with a seq after ResumeAfter. Signals reads only these signals. Bytes, if not 0, is the
	// approximate largest number of bytes to read, but at least one row is read; see [Page].
	Resume      bool
	Signals     bool
	ResumeAfter int64
	Bytes       int
	// Detail computes the measures, and reads the newest action of a person or program among the newest
	// [ActsRead] actions.
	Detail bool
}

// ActsRead is the largest number of actions among which Read looks for the newest one of a person or program.
const ActsRead = 1000

// UpTo returns the newest generation whose spec is read.
func (q Read) UpTo() int64 {
	if q.Generation > 0 {
		return int64(q.Generation)
	}
	return math.MaxInt32
}

// List selects executions.
type List struct {
	States   []belay.State
	Workflow string
	Queue    string
	Key      string
	Parent   belay.ExecutionID // if set, List selects only the children of this execution
	Children bool              // includes children, of any parent
	Labels   map[string]string
	Error    string            // a part of the error's message; the letters A to Z are equal to a to z
	Before   belay.ExecutionID // only executions older than this one; zero for all
	// IDs, if not empty, selects only these executions; the list then finds them by their ids.
	IDs   []belay.ExecutionID
	Limit int
	// Scan is the largest number of executions to examine.
	Scan int
	// Payloads includes inputs and outputs.
	Payloads bool
	// Outputs, if above 0, includes the newest run of each execution, without an output of more bytes.
	Outputs int64
	// Count, if above 0 and without a Key and IDs, adds Listed.States: of the newest Count executions, or
	// children of Parent, those that the list selects if its States and Before do not count.
	Count int
}

// Listed is one part of a list.
type Listed struct {
	Records []*machine.Record
	// Last is the oldest execution that List examined, and At is the time of its creation. They are
	// set only if List found fewer executions than the limit but did not examine all older ones.
	Last belay.ExecutionID
	At   machine.Time
	// States has the numbers of executions by state, nil without List.Count. Older says that there are
	// older executions than those that were counted.
	States map[belay.State]int
	Older  bool
}

// Counted returns the list whose executions are counted for the list q, and whether they are.
func (q List) Counted() (List, bool) {
	counted := q.Count > 0 && q.Key == "" && len(q.IDs) == 0
	q.States, q.Before, q.Scan = nil, belay.ExecutionID{}, q.Count
	return q, counted
}

// Active reports whether states is not empty and contains only states of executions that have not
// ended.
func Active(states []belay.State) bool {
	return len(states) > 0 && !slices.ContainsFunc(states, belay.State.Terminal)
}

// Owned reports whether states is not empty and contains only states of executions that have an
// owner.
func Owned(states []belay.State) bool {
	return len(states) > 0 && !slices.ContainsFunc(states, func(s belay.State) bool {
		return s != belay.Running && s != belay.Scheduled
	})
}

// Due lists the work that is due now, and the times at which further work will be due.
type Due struct {
	// Workers are sessions that have expired.
	Workers []belay.WorkerID
	// Checks are executions whose CheckAt has come.
	Checks []belay.ExecutionID
	// Lost are executions whose owner's session has ended or does not exist, in the order of
	// their sessions.
	Lost []Lost
	// Children are open children that must be cancelled: their parent has ended, is being
	// cancelled, or was reopened after it had started them, and their policy does not let them
	// continue without it. Children that are being cancelled already are left out.
	Children []belay.ExecutionID
	// Parted are executions that have a reason to cancel their children (see
	// [machine.Execution.Parting]) but no child left to cancel, and for which no [machine.Part]
	// command has recorded this yet. Parents are examined in the order of their ids, up to the
	// limit.
	Parted []machine.Part
	// Unspent are descendants that were paused because the budget of their root was spent
	// (machine.Execution.SpentBy), and whose root has ended or does not exist, or has a budget that is
	// not spent any more.
	Unspent []belay.ExecutionID
	// Objects are the objects whose NextAt has come, with their NextAt. Only schedules have their bodies.
	Objects []*machine.Object
	// NextWorker, NextCheck and NextObject are the times at which the next session, execution and
	// object will be due, 0 for none.
	NextWorker machine.Time
	NextCheck  machine.Time
	NextObject machine.Time
	// MinTTL is the shortest TTL of the sessions that have not ended, 0 if there is none.
	MinTTL time.Duration
}

// Lost is an execution whose owner's session has ended, with the number of earlier losses in a row
// and the start time of its run.
type Lost struct {
	machine.Lose
	Losses int
	RunAt  machine.Time
}

// WorkerQuery selects sessions; the zero WorkerQuery selects all.
type WorkerQuery struct {
	// IDs selects the sessions with these ids.
	IDs []belay.WorkerID
	// Living selects sessions that have not ended.
	Living bool
	// Host selects sessions whose process runs on this host.
	Host  string
	Limit int
	// Owned counts the executions that each session owns.
	Owned bool
	// Current reads the current steps of the sessions.
	Current bool
}

// Of returns the rows that the query selects, in the order of [Store.Workers].
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
			if a.State.Ended() {
				return 1
			}
			return -1
		}
		return slices.Compare(b.ID[:], a.ID[:])
	})
	if q.Limit > 0 && len(rows) > q.Limit {
		rows = rows[:q.Limit]
	}
	return rows
}

// WorkerRow is a session with the number of executions that it owns, if the query asked for it.
type WorkerRow struct {
	*machine.Worker
	Running int
}

// Counts are numbers of rows.
type Counts struct {
	Executions  map[belay.State]int64
	Runs        int64
	Checkpoints int64
	DeadLetters int64 // number of open dead letters
	Sessions    int64 // number of sessions that have not ended
}
