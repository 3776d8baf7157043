package belay

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite" // the driver of the lone commits

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/bench/trial"
)

// loneCommit gives a function that commits one row of 300 bytes to the same disk
// in the same way as the store, and one that ends it.
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

// odometer counts what a PostgreSQL server does in one database.
type odometer struct {
	conn *pgx.Conn // to another database, so as not to count itself
	name string
}

// mileage is what an odometer shows.
type mileage struct {
	writes       int64 // transactions that wrote, of the whole server
	transactions int64 // all, of the database, as the statistics have them: seconds late
}

func watch(ctx context.Context, store string) (*odometer, error) {
	u, err := url.Parse(store)
	if err != nil {
		return nil, err
	}
	o := &odometer{name: strings.TrimPrefix(u.Path, "/")}
	u.Path = "/postgres"
	o.conn, err = pgx.Connect(ctx, u.String())
	return o, err
}

func (o *odometer) close(ctx context.Context) { _ = o.conn.Close(context.WithoutCancel(ctx)) }

func (o *odometer) read(ctx context.Context) (m mileage, err error) {
	err = o.conn.QueryRow(ctx, `
		SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint, xact_commit + xact_rollback
		FROM pg_stat_database
		WHERE datname = $1`, o.name).Scan(&m.writes, &m.transactions)
	if err != nil {
		return m, fmt.Errorf("read the statistics of %s: %w", o.name, err)
	}
	return m, nil
}

// losses counts the sessions that were judged lost in a store on PostgreSQL, and the runs
// that ended because their lease was.
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
		return 0, 0, fmt.Errorf("count what was lost: %w", err)
	}
	return sessions, leases, nil
}
