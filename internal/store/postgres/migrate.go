package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migration is one step of the schema.
type Migration = store.Migration

// Migrate brings a database to the newest schema and answers what it ran. Those
// who migrate one database at the same time take turns. Servers that are at work
// on it go on.
func Migrate(ctx context.Context, url string) ([]Migration, error) {
	var ran []Migration
	err := withDatabase(url, func(db *sql.DB) (err error) {
		ran, err = migrate(ctx, db)
		return err
	})
	return ran, classify("migrate", err)
}

// Pending gives the migrations that Migrate would run, and changes nothing.
func Pending(ctx context.Context, url string) ([]Migration, error) {
	var left []Migration
	err := withDatabase(url, func(db *sql.DB) (err error) {
		left, err = pending(ctx, db)
		return err
	})
	return left, classify("migrate", err)
}

func withDatabase(url string, do func(*sql.DB) error) (err error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return errURL
	}
	db := open(config, "60000") // a migration says so if somebody holds a table for longer
	defer func() { err = errors.Join(err, db.Close()) }()
	return do(db)
}

func migrate(ctx context.Context, db *sql.DB) (ran []Migration, err error) {
	left, err := pending(ctx, db)
	if err != nil || len(left) == 0 {
		return nil, err
	}
	locker, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, locker.Close()) }()
	if err := takeTurn(ctx, locker); err != nil {
		return nil, fmt.Errorf("lock the migration: %w", err)
	}
	defer func() {
		_, unlock := locker.ExecContext(context.WithoutCancel(ctx), endTurn)
		err = errors.Join(err, unlock)
	}()
	if left, err = pending(ctx, db); err != nil || len(left) == 0 {
		return nil, err
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files)
	if err != nil {
		return nil, err
	}
	if err := up(ctx, p); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	return left, nil
}

// The advisory lock of whoever migrates. It is tried for again and again: one who
// waits for it in a statement would be waited for by an index that is being built
// beside the servers.
const (
	tryTurn = "SELECT pg_try_advisory_lock(hashtextextended('belay migrate', 0))"
	endTurn = "SELECT pg_advisory_unlock(hashtextextended('belay migrate', 0))"
)

func takeTurn(ctx context.Context, c *sql.Conn) error {
	for {
		var mine bool
		if err := c.QueryRowContext(ctx, tryTurn).Scan(&mine); err != nil || mine {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// holdUp is how long a migration tries to get at tables that somebody holds.
const holdUp = 2 * time.Minute

// up carries out what is pending. A migration that would make servers wait for it
// gives up soon and is tried again.
func up(ctx context.Context, p *goose.Provider) error {
	for began := time.Now(); ; {
		_, err := p.Up(ctx)
		var reply *pgconn.PgError
		if !errors.As(err, &reply) || reply.Code != "55P03" {
			return err
		}
		if time.Since(began) > holdUp {
			return &belay.Error{Code: belay.CodeUnavailable, Op: "migrate", Message: fmt.Sprintf(
				"somebody, a dump perhaps, holds a table for more than %s; migrate again when that is over", holdUp),
				Err: err}
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// pending are the migrations that the database has not seen: none if its schema
// is newer than what is known here and lets those who know no more go on.
func pending(ctx context.Context, db *sql.DB) ([]Migration, error) {
	all, err := known()
	if err != nil {
		return nil, err
	}
	have, err := version(ctx, db)
	if err != nil {
		return nil, err
	}
	if want := all[len(all)-1].Version; have > want {
		return nil, goOn(ctx, db, have, want)
	}
	return store.After(have, all), nil
}

// known are all migrations, oldest first.
func known() ([]Migration, error) { return store.Migrations(migrations) }

// version is the schema that the database has, 0 if it is empty.
func version(ctx context.Context, db *sql.DB) (have int64, err error) {
	var there bool
	if err := db.QueryRowContext(ctx, "SELECT to_regclass('goose_db_version') IS NOT NULL").Scan(&there); err != nil ||
		!there {
		return 0, err
	}
	err = db.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM goose_db_version").Scan(&have)
	return have, err
}

// goOn refuses a newer schema, unless that says that who knows only this much may
// work on it.
func goOn(ctx context.Context, db *sql.DB, have, known int64) error {
	var oldest int64
	err := db.QueryRowContext(ctx, "SELECT oldest FROM meta").Scan(&oldest)
	var reply *pgconn.PgError
	switch {
	// it does not say in a way known here
	case errors.As(err, &reply) && (reply.Code == "42P01" || reply.Code == "42703"):
		return tooNew(have, known)
	case err != nil:
		return err
	case known < oldest:
		return tooNew(have, known)
	}
	return nil
}

func tooNew(have, want int64) error {
	return &belay.Error{Code: belay.CodeInternal, Op: "open", Message: fmt.Sprintf(
		"the database has schema %d and this Belay knows up to %d: a newer Belay migrated it; use that one", have,
		want)}
}

// changed are the errors of a statement that names what is not there, or is not as it
// was when the statement was prepared.
var changed = []string{"42P01", "42703", "42804", "0A000"}

// outdated gives the reason of an error on a connection where it is a migration: one to
// a schema that this server does not know enough for has taken away what the statement
// names.
func (s *Store) outdated(ctx context.Context, c *conn, err error) error {
	var reply *pgconn.PgError
	if !errors.As(err, &reply) || !slices.Contains(changed, reply.Code) || c.pg.IsClosed() {
		return err
	}
	oldest := int64(0)
	p := c.pipe()
	if c.pg.TxStatus() == 'E' {
		p.add("ROLLBACK", nil)
	}
	p.add("SELECT oldest FROM meta", func(r columns) error {
		oldest = r.int(0)
		return nil
	})
	if p.run(ctx) != nil || oldest <= s.known {
		return err
	}
	return tooOld(s.known, oldest)
}

// tooOld refuses the writes of a server that runs while the database is migrated
// to what it must not write.
func tooOld(known, oldest int64) error {
	return &belay.Error{Code: belay.CodeUnavailable, Op: "commit", Message: fmt.Sprintf(
		"the database was migrated, and who writes it must know schema %d now; this Belay knows up to %d: replace "+
			"it by the newer one", oldest, known)}
}
