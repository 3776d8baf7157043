package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// tx is one transaction of a writer.
type tx struct {
	*conn
	store  *Store
	slot   *slot // nil in somebody else's transaction
	mode   mode
	cutoff machine.Time // what is due by then is looked for

	xid        string // under which its end can be asked for
	oldest     int64  // schema whose servers may write
	rows       *machine.Rows
	asked      map[belay.ExecutionID]struct{} // named, or known ancestors of those
	executions map[belay.ExecutionID]*loaded
	workers    map[belay.WorkerID]session
	specs      map[belay.ExecutionID]bool // loaded with what is ready
	looks      []look
	virtual    map[belay.ExecutionID]belay.Token // runs that begin and get no row yet
}

// session is what is remembered of a session that was loaded.
type session struct {
	state   belay.WorkerState
	version uint32 // of its row
}

// mode is what a transaction has learned from those before it that had to be
// given up.
type mode struct {
	deep   bool                // look for ancestors first
	also   []belay.ExecutionID // executions to lock that were not named
	strict bool                // keep sessions for this transaction alone
	grace  bool                // be the only one that extends all sessions

	hurried bool // wait for nobody for long
}

// Reasons to begin a transaction anew, in another mode.
var (
	errDeep   = errors.New("an ancestor was not known")
	errStrict = errors.New("a session was changed meanwhile")
	errGrace  = errors.New("all sessions are to be extended")
)

// errUnlocked asks for an execution that was read without a lock and changed.
type errUnlocked struct{ id belay.ExecutionID }

func (e errUnlocked) Error() string { return fmt.Sprintf("execution %s was not locked", e.id) }

// attempts is how often a transaction is begun anew.
const attempts = 10

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, need machine.Need, decide func(*machine.Rows) *machine.Changes) error {
	const op = "commit"
	if s.options.ReadOnly {
		return &belay.Error{Code: belay.CodeInternal, Op: op, Message: "the store was opened to read only"}
	}
	c, err := s.writers.take(ctx)
	if err != nil {
		return classify(op, err)
	}
	defer func() { s.writers <- c }()
	m := mode{hurried: store.IsHurried(ctx)}
	for n := 1; ; n++ {
		err := s.attempt(ctx, c, m, need, decide)
		var u *unanswered
		if errors.As(err, &u) {
			committed, known := s.outcome(ctx, c, u)
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
			return classify(op, err)
		}
	}
}

// learn changes the mode to that in which the transaction may pass, if there is
// one.
func (m *mode) learn(err error) bool {
	var unlocked errUnlocked
	switch {
	case errors.Is(err, errDeep):
		m.deep = true
	case errors.As(err, &unlocked):
		m.deep, m.also = true, append(m.also, unlocked.id)
	case errors.Is(err, errStrict):
		m.strict = true
	case errors.Is(err, errGrace):
		m.strict, m.grace = true, true
	default:
		return false
	}
	return true
}

// again reports whether it is worth to begin the transaction anew as it was.
func again(err error, n int) bool {
	var known *belay.Error
	switch {
	case errors.As(err, &known):
		return false
	case repeatable(err):
		return n < 4
	case lost(err):
		return n < 3
	}
	return false
}

// attempt runs the transaction once.
func (s *Store) attempt(ctx context.Context, c *slot, m mode, need machine.Need, decide func(*machine.Rows) *machine.Changes) error {
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

// begin gives a transaction that has not looked at anything yet.
func (s *Store) begin(c *conn, m mode, need machine.Need) *tx {
	return &tx{
		conn: c, store: s, mode: m, asked: make(map[belay.ExecutionID]struct{}, len(need.Executions)),
		executions: make(map[belay.ExecutionID]*loaded, len(need.Executions)), workers: make(map[belay.WorkerID]session, len(need.Workers)),
		specs: make(map[belay.ExecutionID]bool),
	}
}

// transact runs a transaction on a writer. However it ends, even by a panic,
// none is open afterwards.
func (s *Store) transact(ctx context.Context, c *slot, do func(context.Context) error) error {
	if err := s.usable(); err != nil {
		return err
	}
	if err := s.connected(ctx, c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.Patience) // what began is ended
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
	return do(ctx)
}

func (t *tx) load(ctx context.Context, need machine.Need) error {
	began := time.Now()
	if err := t.first(ctx, need); err != nil {
		return err
	}
	if t.oldest > t.store.known {
		return tooOld(t.store.known, t.oldest)
	}
	t.arrange()
	t.store.floors.looked(t, time.Since(began))
	return t.second(ctx, need)
}

// commit is the last trip: it writes the changes and the server's mark.
func (t *tx) commit(ctx context.Context, changes *machine.Changes) error {
	p := t.pipe()
	p.stream(ctx)
	if err := t.write(p, changes); err != nil {
		p.stop()
		return err
	}
	t.leaveMark(p, changes.Beat)
	p.add("COMMIT", nil)
	err := p.run(ctx)
	if err == nil {
		t.store.lanes.note(changes.Lanes)
		t.store.floors.lower(changes.Executions)
		t.store.news.tell(t.rows, changes)
		return nil
	}
	if t.mayBeWritten(err, len(p.steps)-1) {
		return &unanswered{t.xid, t.identity, err}
	}
	return err
}

// unanswered is the error of a transaction whose commit was sent and not
// answered.
type unanswered struct {
	xid string
	of  identity
	err error
}

func (u *unanswered) Error() string { return u.err.Error() }
func (u *unanswered) Unwrap() error { return u.err }

// mayBeWritten reports whether the commit, which is the last step, may have been
// carried out: the connection ended without an answer to any step before, of
// which each would have been answered first.
func (t *tx) mayBeWritten(err error, last int) bool {
	var f *failure
	return errors.As(err, &f) && lost(f) && (f.step >= last || !answered(f))
}

const (
	leaveMark = `
INSERT INTO servers (period, id, slot, mark_at, beat)
VALUES ($1::bigint, $2::uuid, $3::bigint, $4::bigint, $5::bigint)
ON CONFLICT (period, id, slot) DO UPDATE SET mark_at = excluded.mark_at, beat = excluded.beat`

	// Whoever comes first; nobody waits for it.
	dropMarks = `
DELETE FROM servers s
USING (SELECT period, id, slot FROM servers WHERE period < $1::bigint ORDER BY period LIMIT 1000 FOR UPDATE SKIP LOCKED) old
WHERE s.period = old.period AND s.id = old.id AND s.slot = old.slot`
)

// A row of marks is used for a period, and dropped some periods later.
const (
	markPeriod  = machine.Time(10 * time.Second / time.Microsecond)
	markPeriods = 6
)

// leaveMark writes the server's mark of life. A beat of 0 leaves the last one.
func (t *tx) leaveMark(p *pipe, beat time.Duration) {
	if beat == 0 {
		beat = t.rows.Beat
	}
	now := t.rows.Now
	period := int64(now / markPeriod)
	p.add(leaveMark, nil).int(period).id(t.store.options.Server).int(int64(t.slot.number)).int(int64(now)).int(beat.Microseconds())
	if period != t.slot.period {
		t.slot.period = period
		p.add(dropMarks, nil).int(period - markPeriods)
	}
}
