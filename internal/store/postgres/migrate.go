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

// Migrate brings a database to the newest schema and returns the migrations that it ran. Processes
// that migrate one database at the same time take turns. Servers that use the database continue.
func Migrate(ctx context.Context, url string) ([]Migration, error) {
	var ran []Migration
	err := withDatabase(url, func(db *sql.DB) (err error) {
		ran, err = migrate(ctx, db)
		return err
	})
	return ran, classify("migrate", err)
}

// Pending returns the migrations that Migrate would run, and changes nothing.
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
	db := open(config, "60000") // a migration that waits longer for a locked table fails with an error
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

// The advisory lock of a migration. A process tries repeatedly to take the lock, and does not wait
// for it inside a statement. A migration that builds an index CONCURRENTLY waits for the end of all
// statements, so it would wait for a statement that itself waits for the migration's lock.
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

// migrationPatience is how long a migration tries to lock tables that other transactions use.
const migrationPatience = 2 * time.Minute

// up runs the pending migrations. A migration that cannot lock its tables at once fails soon, so
// that servers do not wait for it, and up tries it again.
func up(ctx context.Context, p *goose.Provider) error {
	for began := time.Now(); ; {
		_, err := p.Up(ctx)
		var reply *pgconn.PgError
		if !errors.As(err, &reply) || reply.Code != "55P03" {
			return err
		}
		if time.Since(began) > migrationPatience {
			return &belay.Error{Code: belay.CodeUnavailable, Op: "migrate", Message: fmt.Sprintf(
				"another transaction, perhaps a dump, has locked a table for more than %s; "+
					"migrate again when it has ended", migrationPatience),
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

// pending returns the migrations that the database does not have. It returns none if the schema is
// newer than this version of Belay but allows this version's servers to use it.
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
		return nil, allowsOlder(ctx, db, have, want)
	}
	return store.After(have, all), nil
}

// known returns all migrations, oldest first.
func known() ([]Migration, error) { return store.Migrations(migrations) }

// version is the schema version of the database, 0 if it is empty.
func version(ctx context.Context, db *sql.DB) (have int64, err error) {
	var there bool
	if err := db.QueryRowContext(ctx, "SELECT to_regclass('goose_db_version') IS NOT NULL").Scan(&there); err != nil ||
		!there {
		return 0, err
	}
	err = db.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM goose_db_version").Scan(&have)
	return have, err
}

// allowsOlder refuses a newer schema, unless the schema allows servers that know only the versions
// up to known.
func allowsOlder(ctx context.Context, db *sql.DB, have, known int64) error {
	var oldest int64
	err := db.QueryRowContext(ctx, "SELECT oldest FROM meta").Scan(&oldest)
	var reply *pgconn.PgError
	switch {
	// the schema has no column oldest
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

// changed are the SQLSTATEs of the errors of a statement that names a table or column which does
// not exist, or which has changed since the statement was prepared.
var changed = []string{"42P01", "42703", "42804", "0A000"}

// outdated replaces the error of a statement by the error that this server is too old, if a
// migration has removed or changed a table or column of the statement and the new schema does not
// allow this server.
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

// tooOld refuses the writes of a server after a migration to a schema that it may not write.
func tooOld(known, oldest int64) error {
	return &belay.Error{Code: belay.CodeUnavailable, Op: "commit", Message: fmt.Sprintf(
		"the database was migrated: its servers must know schema %d now, and this Belay knows up to %d; replace "+
			"it by the newer one", oldest, known)}
}
