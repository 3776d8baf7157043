package postgres

import (
	"context"
	"errors"

	"github.com/belaydev/belay/internal/machine"
	"github.com/jackc/pgx/v5"
)

// Join does the work of Commit inside a transaction of the application, which the application
// commits or rolls back. Join writes no mark of life (a time that shows that the server can write)
// and ends no expired session. When the transaction is committed, a notification informs all
// servers. If Join returns an error, it has undone its part of the transaction, unless the
// connection has ended.
//
// The rows that Join locks stay locked until the transaction ends. The transaction should have the
// isolation level READ COMMITTED: with a stricter level, rows that other transactions have added
// since the transaction began cause an error.
func (s *Store) Join(ctx context.Context, tx pgx.Tx, need machine.Need,
	decide func(*machine.Rows) *machine.Changes) error {
	const op = "join a transaction"
	if err := s.usable(); err != nil {
		return err
	}
	c := &conn{pg: tx.Conn().PgConn(), guest: true}
	var m mode
	for n := 1; ; n++ {
		err := s.join(ctx, c, m, need, decide)
		if err == nil {
			return nil
		}
		if c.pg.IsClosed() {
			return classify(op, err)
		}
		if back := c.ask(ctx, s.options.Patience, "ROLLBACK TO SAVEPOINT belay"); back != nil {
			return classify(op, errors.Join(err, back))
		}
		err = s.outdated(ctx, c, err)
		if n == attempts || !m.learn(err) && !(repeatable(err) && n < 4) {
			return classify(op, err)
		}
	}
}

// Join is Store.Join without a store.
func Join(ctx context.Context, tx pgx.Tx, need machine.Need, decide func(*machine.Rows) *machine.Changes) error {
	s, err := newStore(Options{}.withDefaults())
	if err != nil {
		return err
	}
	return s.Join(ctx, tx, need, decide)
}

func (s *Store) join(ctx context.Context, c *conn, m mode, need machine.Need,
	decide func(*machine.Rows) *machine.Changes) error {
	if err := c.ask(ctx, s.options.Patience, "SAVEPOINT belay"); err != nil {
		return err
	}
	t := s.begin(c, m, need)
	if err := t.load(ctx, need); err != nil {
		return err
	}
	changes := decide(t.rows)
	if changes == nil || changes.Empty() {
		return nil
	}
	all := *changes
	all.Grace, all.Leap = 0, 0 // only batches of servers extend sessions and deadlines
	p := t.pipe()
	p.stream(ctx)
	if err := t.write(p, &all); err != nil {
		p.stop()
		return err
	}
	var outbox outgoing
	outbox.note(t.rows, &all)
	// A server ignores hints with its own id. The id joined belongs to no server, so that all servers
	// use this hint, including this one.
	same := func(text string) string { return text }
	if len(all.States) > 0 {
		texts(p.add(notifyStates, nil), stateTexts(joined, stateHints(t.rows, &all)), same)
	}
	texts(p.add(notify, nil), outbox.payloads(joined), same)
	p.add("RELEASE SAVEPOINT belay", nil)
	return p.run(ctx)
}
