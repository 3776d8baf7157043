package belay

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite" // the driver with which loneCommit opens its database

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/bench/trial"
)

// loneCommit returns a function that commits one row of 300 bytes to the same disk as the store,
// with the same durability, and a function that closes its connection.
func loneCommit(ctx context.Context, r trial.Request) (commit func(context.Context) error, end func(), err error) {
	const table = "CREATE TABLE lone (id bigint PRIMARY KEY, body text)"
	body := strings.Repeat("x", 300)
	n := 0
	if strings.HasPrefix(r.URL, "sqlite:") {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(r.Dir, "lone.db")+
			"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
		if err != nil {
			return nil, nil, err
		}
		db.SetMaxOpenConns(1)
		_, err = db.ExecContext(ctx, table)
		return func(ctx context.Context) error {
			n++
			_, err := db.ExecContext(ctx, "INSERT INTO lone VALUES (?, ?)", n, body)
			return err
		}, func() { _ = db.Close() }, err
	}
	c, err := pgx.Connect(ctx, r.URL)
	if err != nil {
		return nil, nil, err
	}
	_, err = c.Exec(ctx, table)
	return func(ctx context.Context) error {
		n++
		_, err := c.Exec(ctx, "INSERT INTO lone VALUES ($1, $2)", n, body)
		return err
	}, func() { _ = c.Close(context.WithoutCancel(ctx)) }, err
}

// dbCounter reads from PostgreSQL how many transactions of the whole server have written, and how
// many transactions one database has carried out.
type dbCounter struct {
	conn *pgx.Conn // connected to another database, so that its own transactions do not count
	name string
}

// dbCounts is one reading of a dbCounter.
type dbCounts struct {
	writes       int64 // transactions that wrote, of the whole server
	transactions int64 // all transactions of the database, from the statistics, which are some seconds old
}

func watch(ctx context.Context, store string) (*dbCounter, error) {
	u, err := url.Parse(store)
	if err != nil {
		return nil, err
	}
	o := &dbCounter{name: strings.TrimPrefix(u.Path, "/")}
	u.Path = "/postgres"
	o.conn, err = pgx.Connect(ctx, u.String())
	return o, err
}

func (o *dbCounter) close(ctx context.Context) { _ = o.conn.Close(context.WithoutCancel(ctx)) }

func (o *dbCounter) read(ctx context.Context) (m dbCounts, err error) {
	err = o.conn.QueryRow(ctx, `
		SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint, xact_commit + xact_rollback
		FROM pg_stat_database
		WHERE datname = $1`, o.name).Scan(&m.writes, &m.transactions)
	if err != nil {
		return m, fmt.Errorf("read the statistics of %s: %w", o.name, err)
	}
	return m, nil
}

// losses counts the sessions that a store on PostgreSQL has declared lost, and the runs that ended
// because their lease was lost.
func losses(ctx context.Context, store string) (sessions, leases float64, err error) {
	c, err := pgx.Connect(ctx, store)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	err = c.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM workers WHERE state = $1), (SELECT count(*) FROM runs WHERE outcome = $2)`,
		int16(belay.WorkerLost), int16(belay.OutcomeLost)).Scan(&sessions, &leases)
	if err != nil {
		return 0, 0, fmt.Errorf("count lost sessions: %w", err)
	}
	return sessions, leases, nil
}
