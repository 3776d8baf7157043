// Package memory is a store in the memory of one process. It is the reference to which the
// conformance suite compares the other stores, and the store of the simulation. Its code is
// simple so that its correctness is obvious. It starts no goroutine, and the same calls give the
// same answers in the same order. Its data ends with the process.
package memory

import (
	"context"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// Store keeps all rows in maps. Rows in it are never changed in place: a commit replaces rows by
// changed copies, all at once.
type Store struct {
	clock *store.Clock
	seen  store.Seen

	mu      sync.Mutex
	closed  bool
	walk    store.Walk  // the execution after which the next Prune continues its search
	gates   store.Gates // the gate after which the next Prune continues its search
	epoch   belay.Token
	mark    machine.Time
	beat    time.Duration // the interval between marks of life, written with the mark
	records map[belay.ExecutionID]*record
	workers map[belay.WorkerID]*machine.Worker
	keys    map[machine.Key]keyRow
	objects map[machine.ObjectRef]*machine.Object
	audit   []*machine.Audit  // in the order of the audit, oldest first
	places  map[placeKey]bool // true if the execution has one of the places of the gate
}

// record contains all rows of one execution. Each list is sorted by the key of its rows.
type record struct {
	execution   *machine.Execution
	specs       []*machine.Spec
	runs        []*machine.Run
	checkpoints []*machine.Checkpoint
	signals     []*machine.Signal
	deeds       []*machine.Deed
	letters     []*machine.DeadLetter
	chunks      []*machine.Chunk
	sums        map[string]machine.Sum // by name; replaced, never changed in place
}

// keyRow is an idempotency key. When its execution is deleted, expires is set, and the key is kept
// until that time.
type keyRow struct {
	machine.KeyRow
	expires machine.Time
}

var _ store.Store = (*Store)(nil)

// New makes an empty store. Its time follows clock; steady, if given, measures its pace. See
// [store.NewClock].
func New(clock func() time.Time, steady ...func() time.Duration) *Store {
	var pace func() time.Duration
	if len(steady) > 0 {
		pace = steady[0]
	}
	return &Store{
		clock:   store.NewClock(clock, pace),
		records: make(map[belay.ExecutionID]*record),
		workers: make(map[belay.WorkerID]*machine.Worker),
		keys:    make(map[machine.Key]keyRow),
		objects: make(map[machine.ObjectRef]*machine.Object),
		places:  make(map[placeKey]bool),
	}
}

// SetEpoch begins an epoch (the number above which all new tokens are), as the restore of a backup
// does; see [machine.NextEpoch].
func (s *Store) SetEpoch(epoch belay.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch = epoch
	s.seen.Begun(epoch)
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, need machine.Need, decide func(*machine.Rows) *machine.Changes) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, "commit"); err != nil {
		return err
	}
	rows := s.load(need)
	changes := decide(rows)
	if changes == nil || changes.Empty() {
		return nil
	}
	t := &tx{Store: s, now: rows.Now, records: make(map[belay.ExecutionID]*record)}
	if err := t.write(changes); err != nil {
		return err
	}
	t.publish(changes)
	s.clock.MadeGood(rows.Leapt)
	s.markLocked(rows.Now, changes)
	return nil
}

// Now implements store.Store.
func (s *Store) Now() machine.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nowLocked()
}

// Vitals implements store.Store.
func (s *Store) Vitals() store.Vitals { return s.seen.Vitals(s.clock) }

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// markLocked writes the mark of life (a time that shows that the server runs) if the changes
// include a session or request a mark, and writes the interval between marks of life (the beat) if
// the changes set it.
func (s *Store) markLocked(now machine.Time, c *machine.Changes) {
	if c.Vital() {
		s.mark = now
	}
	if c.Beat != 0 {
		s.beat = c.Beat
	}
}

// nowLocked is the time of the store's clock.
func (s *Store) nowLocked() machine.Time {
	return s.clock.Now()
}

// usable refuses a call after Close and a call whose context has ended.
func (s *Store) usable(ctx context.Context, op string) error {
	if s.closed {
		return &belay.Error{Code: belay.CodeUnavailable, Op: op, Message: "the store is closed"}
	}
	if err := context.Cause(ctx); err != nil {
		return &belay.Error{Code: belay.CodeUnavailable, Op: op, Message: "the caller has given up", Err: err}
	}
	return nil
}
