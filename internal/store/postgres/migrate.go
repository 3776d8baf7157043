package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/belaydev/belay"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migration is one step of the schema.
type Migration struct {
	Version int64
	Name    string
	SQL     string
}

// Migrate brings a database to the newest schema and answers what it ran. Those
// who migrate one database at the same time take turns.
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
	db := stdlib.OpenDB(*config)
	defer func() { err = errors.Join(err, db.Close()) }()
	return do(db)
}

// turn is the advisory lock of whoever migrates.
const turn = "SELECT pg_advisory_lock(hashtextextended('belay migrate', 0))"

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
	if _, err := locker.ExecContext(ctx, turn); err != nil {
		return nil, fmt.Errorf("lock the migration: %w", err)
	}
	defer func() {
		_, unlock := locker.ExecContext(context.WithoutCancel(ctx), strings.Replace(turn, "_lock", "_unlock", 1))
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
	if _, err := p.Up(ctx); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	return left, nil
}

// pending are the migrations that the database has not seen. A schema that is
// newer than what is known here is refused.
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
		return nil, tooNew(have, want)
	}
	var left []Migration
	for _, m := range all {
		if m.Version > have {
			left = append(left, m)
		}
	}
	return left, nil
}

// known are all migrations, oldest first.
func known() ([]Migration, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	all := make([]Migration, len(names))
	for i, name := range names {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		v, err := goose.NumericComponent(name)
		if err != nil {
			return nil, err
		}
		all[i] = Migration{Version: v, Name: strings.TrimPrefix(name, "migrations/"), SQL: string(text)}
	}
	return all, nil
}

// version is the schema that the database has, 0 if it is empty.
func version(ctx context.Context, db *sql.DB) (have int64, err error) {
	var there bool
	if err := db.QueryRowContext(ctx, "SELECT to_regclass('goose_db_version') IS NOT NULL").Scan(&there); err != nil || !there {
		return 0, err
	}
	err = db.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM goose_db_version").Scan(&have)
	return have, err
}

func tooNew(have, want int64) error {
	return &belay.Error{Code: belay.CodeInternal, Op: "open", Message: fmt.Sprintf(
		"the database has schema %d and this Belay knows up to %d: a newer Belay migrated it; use that one", have, want)}
}
