package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/belaydev/belay"
	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the database to the newest schema. The caller ensures that only one process at a
// time calls it.
func migrate(ctx context.Context, path string, o Options) (err error) {
	c, err := sqlite.NewConnector(o.dsn(path, false))
	if err != nil {
		return err
	}
	db := sql.OpenDB(c)
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	have, want, err := versions(ctx, db)
	if err != nil || have == want {
		return err
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files)
	if err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// versions returns the schema version of the database (have) and the newest version that this Belay
// knows (want). It refuses a database with a newer version.
func versions(ctx context.Context, db *sql.DB) (have, want int64, err error) {
	if want, err = newest(); err != nil {
		return 0, 0, err
	}
	var there int
	if err := db.QueryRowContext(ctx, hasVersions).Scan(&there); err != nil || there == 0 {
		return 0, want, err
	}
	if err := db.QueryRowContext(ctx, version).Scan(&have); err != nil {
		return 0, 0, err
	}
	if have > want {
		return 0, 0, tooNew(have, want)
	}
	return have, want, nil
}

const (
	hasVersions = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'goose_db_version'"
	version     = "SELECT coalesce(max(version_id), 0) FROM goose_db_version"
)

// newest returns the newest known schema version.
func newest() (int64, error) {
	all, err := known()
	if err != nil {
		return 0, err
	}
	return all[len(all)-1].Version, nil
}

// checkSchema refuses a database whose schema is not the newest known one.
func checkSchema(ctx context.Context, c *conn) error {
	want, err := newest()
	if err != nil {
		return err
	}
	have, err := c.version(ctx)
	switch {
	case err != nil:
		return err
	case have > want:
		return tooNew(have, want)
	case have < want:
		return &belay.Error{Code: belay.CodeUnavailable, Op: "open", Message: fmt.Sprintf(
			"the database has schema %d, older than the %d of this Belay; an engine of this version brings it up "+
				"to date when it starts", have, want)}
	}
	return nil
}

// version returns the schema version of a database, 0 if it has none.
func (c *conn) version(ctx context.Context) (have int64, err error) {
	there := int64(0)
	err = c.query(ctx, hasVersions, number(&there))
	if err == nil && there > 0 {
		err = c.query(ctx, version, number(&have))
	}
	return have, err
}

func tooNew(have, want int64) error {
	return &belay.Error{Code: belay.CodeInternal, Op: "open", Message: fmt.Sprintf(
		"the database has schema %d and this Belay knows up to %d: a newer Belay wrote it; use that one, or a "+
			"copy from before", have, want)}
}
