package sqlite

import (
	"context"
	"errors"
	"os"

	"github.com/belaydev/belay"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Readers of a database in WAL mode share memory with the writer through a file in the same folder.
// If the folder is read-only, that file cannot be created, and no process can write the database
// either. A database without a log can then be read as an immutable file.
const immutable = "&immutable=1"

// cannotShare reports whether a database could not be read because the file with the shared memory
// could not be created.
func cannotShare(err error) bool {
	var driver *sqlite.Error
	if !errors.As(err, &driver) {
		return false
	}
	switch driver.Code() {
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY_CANTINIT, sqlite3.SQLITE_READONLY_DIRECTORY,
		sqlite3.SQLITE_READONLY_RECOVERY:
		return true
	}
	return false
}

// hasNoLog reports whether the log of the database at path is empty or missing.
func hasNoLog(path string) bool {
	for _, suffix := range []string{"-wal", "-journal"} {
		if info, err := os.Stat(path + suffix); err == nil && info.Size() > 0 {
			return false
		}
	}
	return true
}

// readable returns the data source with which the database at path can be read: the given data
// source, or, if the database's folder is read-only and the database has no log, this data source
// with the setting immutable.
func readable(ctx context.Context, path, source string) (string, error) {
	err := tryRead(ctx, source)
	switch {
	case err == nil || !cannotShare(err):
		return source, nil // the call that uses the source reports any other error
	case hasNoLog(path):
		return source + immutable, nil
	}
	return "", &belay.Error{Code: belay.CodeUnavailable, Op: "open", Err: err,
		Message: "a crash left a log beside the database, and its folder can only be read here: " +
			"the next engine moves the log; or copy the whole folder to where you can write, and read it there"}
}

func tryRead(ctx context.Context, source string) error {
	c, err := connectTo(ctx, source)
	if err != nil {
		return err
	}
	return firstOf(c.query(ctx, "SELECT count(*) FROM sqlite_schema", ignore), c.close())
}
