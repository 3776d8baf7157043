package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// tx is one transaction of the writer.
type tx struct {
	*conn
	store *Store
	ctx   context.Context // not cancelled with the caller's context, so that a transaction that has begun also ends
	now   machine.Time
	epoch belay.Token
	mark  machine.Time
	beat  time.Duration
	// found are the loaded executions as the database has them. written are the executions that the
	// transaction changes or adds.
	found   map[belay.ExecutionID]*machine.Execution
	written []*machine.Execution
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, need machine.Need, decide func(*machine.Rows) *machine.Changes) error {
	return s.write(ctx, "commit", func(t *tx) (bool, error) {
		rows, err := t.load(need)
		if err != nil {
			return false, err
		}
		changes := decide(rows)
		if changes == nil || changes.Empty() {
			return false, nil
		}
		if err := t.apply(changes); err != nil {
			return false, err
		}
		return true, t.writeMark(changes)
	})
}

// write runs one transaction of the writer. do reports whether it wrote anything.
func (s *Store) write(ctx context.Context, op string, do func(*tx) (bool, error)) error {
	if s.options.ReadOnly {
		return &belay.Error{Code: belay.CodeInternal, Op: op, Message: "the store was opened to read only"}
	}
	select {
	case s.writing <- struct{}{}:
	case <-ctx.Done():
		return classify(op, context.Cause(ctx))
	}
	defer func() { <-s.writing }()
	if err := errors.Join(s.usable(op), ctx.Err()); err != nil {
		return classify(op, err)
	}
	t := &tx{
		conn: s.writer, store: s, ctx: context.WithoutCancel(ctx),
		found: make(map[belay.ExecutionID]*machine.Execution),
	}
	err := t.run(do)
	switch {
	case errors.Is(err, errCommit) && breaks(err):
		return &belay.Error{
			Code: belay.CodeUnavailable, Op: op, Message: "the commit may have been written or not",
			Err: s.failed(op, err),
		}
	case err != nil:
		return s.failed(op, err)
	}
	s.trim(t)
	return nil
}

// errCommit marks an error of the COMMIT statement itself.
var errCommit = errors.New("the transaction was not acknowledged")

// run begins the transaction, and commits it if do wrote anything. No transaction is open when run
// returns or panics.
func (t *tx) run(do func(*tx) (bool, error)) (err error) {
	open := true
	defer func() {
		if open {
			t.store.cache.drop()
			err = errors.Join(err, t.rollback())
		}
	}()
	if err := t.begin(); err != nil {
		return err
	}
	wrote, err := do(t)
	switch {
	case err != nil:
		return err
	case !wrote:
		open = false
		return t.rollback()
	}
	n, err := t.store.gen.raise(t)
	if err != nil {
		return err
	}
	if _, err := t.exec(t.ctx, "COMMIT"); err != nil {
		if n != 0 {
			t.store.gen.due.Store(true)
		}
		return fmt.Errorf("%w: %w", errCommit, err)
	}
	open = false
	t.store.gen.note(n)
	t.store.cache.add(t.written)
	return nil
}

// begin starts the transaction and reads the clock in it.
func (t *tx) begin() error {
	if _, err := t.exec(t.ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := t.query(t.ctx, selectMark, func(r columns) error {
		t.epoch, t.mark, t.beat = belay.Token(r.int(0)), machine.Time(r.int(1)),
			time.Duration(r.int(2))*time.Microsecond
		return nil
	})
	t.now = t.store.Now()
	t.store.seen.Epoch(t.epoch)
	return firstOf(err, t.store.cache.dropIfStale(t))
}

// selectEpoch reads the epoch (the number above which all new tokens are) from a schema that has
// the column floor.
const selectEpoch = "max(floor, epoch << 32)"

const selectMark = `
SELECT ` + selectEpoch + `,
       (SELECT life_at FROM servers ORDER BY life_at DESC LIMIT 1),
       (SELECT beat FROM servers ORDER BY mark_at DESC LIMIT 1)
FROM meta`

// writeMark writes the time of the commit in the server's row. If the commit writes sessions, the
// time is also a mark of life (a time that shows that sessions can be renewed). If the changes set
// no interval between marks (Beat is 0), the stored interval does not change.
func (t *tx) writeMark(c *machine.Changes) error {
	beat, life := c.Beat, machine.Time(0)
	if beat == 0 {
		beat = t.beat
	}
	if c.Vital() {
		life = t.now
	}
	t.args.blob(t.store.options.Server[:]).int(int64(t.now)).int(beat.Microseconds()).intOrNull(int64(life))
	_, err := t.exec(t.ctx, `
INSERT INTO servers (id, mark_at, beat, life_at)
VALUES (?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET mark_at = excluded.mark_at, beat = excluded.beat, life_at = coalesce(excluded.life_at, life_at)`)
	return err
}

// rollback rolls the transaction back. SQLite may have done that already.
func (t *tx) rollback() error {
	_, err := t.exec(t.ctx, "ROLLBACK")
	var driver *sqlite.Error
	if errors.As(err, &driver) && driver.Code() == sqlite3.SQLITE_ERROR {
		return nil // SQLite had already rolled back
	}
	return err
}

// failed returns the error of a transaction. If the error breaks the store, failed remembers that.
func (s *Store) failed(op string, err error) error {
	_ = s.damaged(err)
	if !breaks(err) {
		return classify(op, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
	return broken(op, err)
}
