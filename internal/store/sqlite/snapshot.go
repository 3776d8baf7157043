package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Snapshot describes the content of a database.
type Snapshot struct {
	Bytes      int64
	Schema     int64
	Epoch      belay.Token
	Executions int64
	Events     int64        // sum of the events in all histories
	Owned      int64        // executions that a worker owns
	Sessions   int64        // sessions that have not ended
	Mark       machine.Time // the time of the newest commit
}

// Inspect checks a database that no process uses for damage, and describes its content. It changes
// nothing. The error has CodeNotFound if there is no file, CodeInvalid if it is not a database of
// Belay, and CodeInternal if it is damaged or newer than this Belay.
func Inspect(ctx context.Context, path string) (Snapshot, error) {
	s, err := inspect(ctx, path)
	return s, classify("check "+path, err)
}

// unusedSource returns the data source for a database that no process uses. Unless a crash left a
// log beside it, the database is read without a lock and without creating files.
func unusedSource(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", &belay.Error{Code: belay.CodeNotFound, Op: "open", Message: "there is no file " + path}
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", &belay.Error{
			Code: belay.CodeInvalid, Op: "open", Message: path + " is not a file; name that of a backup, or belay.db",
		}
	}
	source := sourceOf(path, true)
	for _, suffix := range []string{"-wal", "-journal"} {
		if _, err := os.Stat(path + suffix); err == nil {
			return source, nil
		}
	}
	return source + "&immutable=1", nil
}

// sourceOf returns the data source of a database for a connection outside of a Store.
func sourceOf(path string, reading bool) string {
	return Options{BusyTimeout: 5 * time.Second}.dsn(path, reading)
}

func fileURL(path string) string { return "file:" + (&url.URL{Path: path}).EscapedPath() }

func connectTo(ctx context.Context, source string) (*conn, error) {
	c, err := sqlite.NewConnector(source)
	if err != nil {
		return nil, err
	}
	opened, err := connect(ctx, c)
	return opened, describe(err)
}

func inspect(ctx context.Context, path string) (s Snapshot, err error) {
	source, err := unusedSource(path)
	if err != nil {
		return s, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return s, err
	}
	s.Bytes = info.Size()
	c, err := connectTo(ctx, source)
	if err != nil {
		return s, err
	}
	defer func() { err = firstOf(err, c.close()) }()
	if s.Schema, err = c.schema(ctx); err != nil {
		return s, err
	}
	var damage []string
	err = c.query(ctx, "PRAGMA integrity_check(20)", func(r columns) error {
		if line := r.text(0); line != "ok" {
			damage = append(damage, line)
		}
		return nil
	})
	if err == nil && len(damage) > 0 {
		err = &belay.Error{
			Code: belay.CodeInternal, Op: "check", Message: "the database is damaged: " + strings.Join(damage, "; "),
		}
	}
	if err != nil {
		return s, describe(err)
	}
	if s.Epoch, _, err = c.epoch(ctx); err != nil {
		return s, err
	}
	err = c.query(ctx, selectSnapshot, func(r columns) error {
		s.Executions, s.Events, s.Owned = r.int(0), r.int(1), r.int(2)
		s.Sessions, s.Mark = r.int(3), machine.Time(r.int(4))
		return nil
	})
	return s, err
}

const selectSnapshot = `
SELECT e.n, e.events, e.owned,
       (SELECT count(*) FROM workers WHERE ended_at IS NULL),
       (SELECT max(mark_at) FROM servers)
FROM (SELECT count(*) AS n, sum(seq) AS events, count(worker) AS owned FROM executions) e`

// schema returns the version of the database's schema. It refuses a schema that is not Belay's, or
// that is newer than the newest known one.
func (c *conn) schema(ctx context.Context) (have int64, err error) {
	want, err := newest()
	if err != nil {
		return 0, err
	}
	tables := int64(0)
	err = c.query(ctx, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('goose_db_version', "+
		"'meta', 'executions', 'runs', 'workers')",
		number(&tables))
	if err == nil && tables == 5 {
		err = c.query(ctx, version, number(&have))
	}
	switch {
	case err != nil:
		return 0, describe(err)
	case have == 0:
		return 0, &belay.Error{Code: belay.CodeInvalid, Op: "open", Message: "this is a database, but none of Belay's"}
	case have > want:
		return 0, tooNew(have, want)
	}
	return have, nil
}

// describe replaces SQLite's error about a damaged or foreign file by a clear error.
func describe(err error) error {
	var driver *sqlite.Error
	if !errors.As(err, &driver) {
		return err
	}
	switch driver.Code() & 0xff {
	case sqlite3.SQLITE_NOTADB:
		return &belay.Error{
			Code: belay.CodeInvalid, Op: "open", Message: "this is no database, or its beginning is damaged",
		}
	case sqlite3.SQLITE_CORRUPT:
		return &belay.Error{
			Code: belay.CodeInternal, Op: "read", Message: "the database is damaged: it cannot be read to its end",
		}
	}
	return err
}
