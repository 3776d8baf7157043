package postgres

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// A connection pooler, such as pgbouncer, may stand between a server and its database. The pooler
// must use a separate session of the database for each connection, because prepared statements,
// notifications and time limits belong to a session. A pooler refuses or drops most settings in the
// request for a connection, so the store makes its settings when it is connected. Then the store
// reads the settings again in another transaction, because a pooler in transaction mode may run the
// two transactions in different sessions.

var errShared = &belay.Error{
	Code: belay.CodeInvalid, Op: "open",
	Message: "a pooler in front of the database shares sessions, such as pgbouncer in transaction mode, but " +
		"Belay's prepared statements, notifications and time limits each need a session of their own; " +
		"set pool_mode = session there, or give the address of the database itself",
}

const (
	setSession = `
SELECT set_config(w.name, w.value, false)
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY w (name, value, n)
ORDER BY w.n`
	checkSession = `
SELECT pg_backend_pid()::bigint, count(*) FILTER (WHERE current_setting(w.name) <> w.value)
FROM unnest($1::text[], $2::text[]) w (name, value)`
	leaveTrace = "SELECT set_config('belay.trace', $1::text, false)"
	lookTrace  = "SELECT pg_backend_pid()::bigint, coalesce(current_setting('belay.trace', true), '')"
)

// connectAs connects and makes settings for the session. It leaves out settings that the database's
// URL already makes.
func connectAs(ctx context.Context, config *pgconn.Config, want map[string]string) (*conn, error) {
	c, err := connect(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := c.set(ctx, want); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// set makes settings for the session, and checks in another transaction that they are still in
// effect.
func (c *conn) set(ctx context.Context, want map[string]string) error {
	names := slices.Sorted(maps.Keys(want))
	values := make([]string, len(names))
	for i, n := range names {
		values[i] = want[n]
	}
	same := func(text string) string { return text }
	bind := func(s *step) {
		s.once = true
		texts(s, names, same)
		texts(s, values, same)
	}
	p, made := c.pipe(), []string(nil)
	bind(p.add(setSession, func(r columns) error {
		made = append(made, r.text(0)) // the setting in the database's own format, such as 1s for 1000
		return nil
	}))
	if err := p.run(ctx); err != nil {
		return fmt.Errorf("make the settings of the session: %w", err)
	}
	lost := int64(0)
	values = made
	p = c.pipe()
	bind(p.add(checkSession, func(r columns) error {
		c.backend, lost = uint32(r.int(0)), r.int(1)
		return nil
	}))
	if err := p.run(ctx); err != nil {
		return fmt.Errorf("look for the settings of the session: %w", err)
	}
	if lost > 0 {
		return errShared
	}
	return nil
}

// pooled reports whether the connection goes through a pooler. A pooler reports an invented process
// number to its clients instead of the number of the database's process.
func (c *conn) pooled() bool { return c.backend != c.pg.PID() }

// sessionTrace identifies a session of the database: backend is the number of its process in the
// database, and trace is the text that the function unshared stored in the session. The trace is
// empty if unshared stored none there.
type sessionTrace struct {
	backend uint32
	trace   string
}

// look begins a transaction and reads the trace of its session.
func (c *conn) look(ctx context.Context) (t sessionTrace, err error) {
	p := c.pipe()
	p.add("BEGIN", nil).once = true
	p.add(lookTrace, func(r columns) error {
		t = sessionTrace{uint32(r.int(0)), r.text(1)}
		return nil
	}).once = true
	err = p.run(ctx)
	var reply *pgconn.PgError
	if errors.As(err, &reply) && reply.Code == "08P01" { // the pooler allows no transactions, only single statements
		err = errShared
	}
	return t, err
}

// unshared refuses a pooler that shares sessions. The first connection leaves a trace in its session,
// and then a second connection begins a transaction. Sessions are shared if the second connection
// finds the trace, or if the first connection does not find the trace again.
func unshared(ctx context.Context, config *pgconn.Config, want map[string]string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	first, err := connectAs(ctx, config, want)
	if err != nil {
		return err
	}
	defer first.close()
	if !first.pooled() {
		return nil
	}
	second, err := connectAs(ctx, config, want)
	if err != nil {
		return err
	}
	defer second.close()
	trace := rand.Text()
	p := first.pipe()
	s := p.add(leaveTrace, nil)
	s.once = true
	s.string(trace)
	if err := p.run(ctx); err != nil {
		return err
	}
	other, err := second.look(ctx)
	if err != nil {
		return err
	}
	mine, err := first.look(ctx)
	if err != nil {
		return err
	}
	if other.trace == trace || other.backend == mine.backend || mine.trace != trace {
		return errShared
	}
	return nil
}

// open opens a database for migrations. It sets the limit of waits for locks after the connection
// is made, because a pooler may refuse a setting in the request for a connection.
func open(config *pgx.ConnConfig, lockTimeout string) *sql.DB {
	return stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "SELECT set_config('lock_timeout', $1, false)", lockTimeout)
		return err
	}))
}

// pooler returns the code and the text of an error with which a pooler refuses a connection.
func pooler(reply *pgconn.PgError) (belay.Code, string) {
	if strings.Contains(reply.Message, "startup parameter") {
		return belay.CodeInvalid, "a pooler in front of the database, such as pgbouncer, does not take a setting of " +
			"the address; " +
			"leave it out there, or name it in the pooler's ignore_startup_parameters"
	}
	return belay.CodeUnavailable, "a pooler in front of the database, such as pgbouncer, refuses the connection"
}
