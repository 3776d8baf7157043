package postgres

import (
	"context"
	"errors"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/jackc/pgx/v5"
)

// Join does what Commit does inside a transaction of somebody else, who commits
// it or not. It leaves no mark of life and judges no session by time; what it
// wrote is told to all servers by a notification in that transaction. After an
// error the transaction is as it was before, unless its connection has ended.
//
// The rows that it locks stay locked until that transaction ends. It should be
// of isolation READ COMMITTED: in a stricter one, what others have added since it
// began is refused instead of found.
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
	all.Grace, all.Leap = 0, 0 // they are for a batch that judges a session
	p := t.pipe()
	p.stream(ctx)
	if err := t.write(p, &all); err != nil {
		p.stop()
		return err
	}
	var news telling
	news.note(t.rows, &all)
	// nobody's own: this server is told too
	texts(p.add(notify, nil), news.payloads(belay.OpID{}), func(text string) string { return text })
	p.add("RELEASE SAVEPOINT belay", nil)
	return p.run(ctx)
}
