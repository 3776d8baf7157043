package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// tx is one transaction that decides on commands.
type tx struct {
	*conn
	store  *Store
	slot   *slot // nil in an application's own transaction
	mode   mode
	cutoff machine.Time // the transaction loads executions that are due by this time

	xid        string // number of the transaction, by which the database reports its outcome
	oldest     int64  // oldest schema version whose servers may write
	rows       *machine.Rows
	asked      map[belay.ExecutionID]struct{} // executions that the commands need, and their known ancestors
	executions map[belay.ExecutionID]*loaded
	workers    map[belay.WorkerID]session
	specs      map[belay.ExecutionID]bool // executions whose specs were loaded with the ready executions
	looks      []look
	virtual    map[belay.ExecutionID]belay.Token // runs that begin and get no row until they end
}

// session is the state of a session when it was loaded.
type session struct {
	state   belay.WorkerState
	claimNo int64
	why     string
}

// mode says how the next attempt at a transaction must read and lock rows. An attempt that fails
// for one of the reasons below changes the mode.
type mode struct {
	withAncestorsFirst bool                    // read the ancestors first
	also               []belay.ExecutionID     // executions to lock in addition to the named ones
	strict             map[belay.WorkerID]bool // sessions to lock exclusively
	grace              bool                    // extend all sessions, under the advisory lock lockGrace

	wait time.Duration // how long to wait for rows that other transactions have locked; 0 means the usual time
}

// Reasons to begin a transaction again in another mode.
var (
	errDeep  = errors.New("an ancestor was not known")
	errGrace = errors.New("all sessions are to be extended")
)

// errTaken says that another transaction has changed the execution to which an idempotency key leads.
var errTaken = errors.New("another transaction has taken an idempotency key")

// errStrict requests exclusive locks on sessions, because another transaction has changed one of
// them, or because this transaction will change a session's state.
type errStrict []belay.WorkerID

func (e errStrict) Error() string {
	return fmt.Sprintf("one of %d sessions needs an exclusive lock", len(e))
}

// errUnlocked requests a lock on an execution that the transaction has changed but had read without
// a lock.
type errUnlocked struct{ id belay.ExecutionID }

func (e errUnlocked) Error() string { return fmt.Sprintf("execution %s was not locked", e.id) }

// attempts is the maximum number of attempts at a transaction.
const attempts = 10

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, need machine.Need, decide func(*machine.Rows) *machine.Changes) error {
	const op = "commit"
	if s.options.ReadOnly {
		return &belay.Error{Code: belay.CodeInternal, Op: op, Message: "the store was opened to read only"}
	}
	writers := s.writers
	if store.IsUrgent(ctx) {
		writers = s.pulse
	}
	c, err := writers.take(ctx)
	if err != nil {
		return classify(op, err)
	}
	defer func() { writers <- c }()
	m := mode{wait: store.WaitOf(ctx)}
	for n := 1; ; n++ {
		err := s.attempt(ctx, c, m, need, decide)
		var u *unanswered
		if errors.As(err, &u) {
			committed, known := s.outcome(ctx, c, u)
			if committed || !known {
				s.outbox.failed() // no hint names the changes
			}
			if !known {
				return unknown(err)
			}
			if committed {
				err = nil
			}
		}
		if err == nil {
			return nil
		}
		if n == attempts || ctx.Err() != nil || !m.learn(err) && !again(err, n) {
			if isSlow(err) && ctx.Err() == nil {
				return tooSlow(op, err)
			}
			return classify(op, err)
		}
	}
}

// learn changes the mode so that the next attempt may succeed. It reports false if no mode helps.
func (m *mode) learn(err error) bool {
	var unlocked errUnlocked
	var strict errStrict
	switch {
	case errors.Is(err, errDeep):
		m.withAncestorsFirst = true
	case errors.As(err, &unlocked):
		m.withAncestorsFirst, m.also = true, append(m.also, unlocked.id)
	case errors.As(err, &strict):
		m.strict = maps.Clone(m.strict)
		if m.strict == nil {
			m.strict = make(map[belay.WorkerID]bool, len(strict))
		}
		for _, id := range strict {
			m.strict[id] = true
		}
	case errors.Is(err, errGrace):
		m.grace = true
	default:
		return false
	}
	return true
}

// again reports whether the transaction may succeed if it is repeated in the same mode.
func again(err error, n int) bool {
	var known *belay.Error
	switch {
	case errors.As(err, &known):
		return false
	case repeatable(err):
		return n < 4
	case errors.Is(err, context.DeadlineExceeded): // a smaller batch may succeed
		return false
	case lost(err):
		return n < 3
	}
	return false
}

// attempt runs the transaction once.
func (s *Store) attempt(ctx context.Context, c *slot, m mode, need machine.Need,
	decide func(*machine.Rows) *machine.Changes) error {
	return s.transact(ctx, c, func(ctx context.Context) error {
		t := s.begin(c.conn, m, need)
		t.slot = c
		if err := t.load(ctx, need); err != nil {
			return err
		}
		changes := decide(t.rows)
		if changes == nil || changes.Empty() {
			return nil
		}
		return t.commit(ctx, changes)
	})
}

// begin returns a transaction that has not read anything yet.
func (s *Store) begin(c *conn, m mode, need machine.Need) *tx {
	return &tx{
		conn: c, store: s, mode: m, asked: make(map[belay.ExecutionID]struct{}, len(need.Executions)),
		executions: make(map[belay.ExecutionID]*loaded, len(need.Executions)), workers: make(map[belay.WorkerID]session,
			len(need.Workers)),
		specs: make(map[belay.ExecutionID]bool),
	}
}

// transact runs a transaction on a writer's connection. No transaction is open when transact
// returns or panics.
func (s *Store) transact(ctx context.Context, c *slot, do func(context.Context) error) error {
	if err := s.usable(); err != nil {
		return err
	}
	if err := s.connected(ctx, c); err != nil {
		return err
	}
	// The transaction and its ROLLBACK run to their end even if the caller cancels ctx.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.Patience)
	defer cancel()
	defer func() {
		if c.pg.IsClosed() || c.pg.TxStatus() == 'I' {
			return
		}
		p := c.pipe()
		p.add("ROLLBACK", nil)
		if p.run(ctx) != nil {
			c.drop()
		}
	}()
	return s.outdated(ctx, c.conn, s.damaged(do(ctx)))
}

func (t *tx) load(ctx context.Context, need machine.Need) error {
	began := time.Now()
	if err := t.first(ctx, need); err != nil {
		return err
	}
	if t.oldest > t.store.known {
		return tooOld(t.store.known, t.oldest)
	}
	t.sortReady()
	t.store.floors.looked(t, time.Since(began))
	if err := t.second(ctx, need); err != nil {
		return err
	}
	return t.loadReferred(ctx, need)
}

// commit makes the last round trip: it writes the changes and the server's mark (the time of the
// commit).
func (t *tx) commit(ctx context.Context, changes *machine.Changes) error {
	p := t.pipe()
	p.stream(ctx)
	if err := t.write(p, changes); err != nil {
		p.stop()
		return err
	}
	t.writeMark(p, changes)
	p.add("COMMIT", nil)
	err := p.run(ctx)
	if err == nil {
		t.store.floors.lower(changes.Executions)
		t.store.front.note(changes)
		t.store.outbox.add(t.rows, changes)
		return nil
	}
	if t.mayBeWritten(err, len(p.steps)-1) {
		return &unanswered{t.xid, t.identity, err}
	}
	return err
}

// unanswered is the error of a transaction whose COMMIT was sent and not answered.
type unanswered struct {
	xid string
	of  identity
	err error
}

func (u *unanswered) Error() string { return u.err.Error() }
func (u *unanswered) Unwrap() error { return u.err }

// mayBeWritten reports whether the database may have carried out the COMMIT, which is the last
// step: the connection has ended, and no earlier step was answered with an error.
func (t *tx) mayBeWritten(err error, last int) bool {
	var f *failure
	return errors.As(err, &f) && lost(f) && (f.step >= last || !answered(f))
}
