package sqlite

import (
	"context"
	"errors"
	"os"

	"github.com/belaydev/belay"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Who reads a database in WAL mode shares memory with who writes it, in a file beside
// it. Where that file cannot be made, since the folder can only be read, nobody writes
// either: a database without a log can then be read as it is.
const unshared = "&immutable=1"

// cannotShare reports whether a database could not be read for want of that file.
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

// alone reports whether the database at a path has nothing in a log.
func alone(path string) bool {
	for _, suffix := range []string{"-wal", "-journal"} {
		if info, err := os.Stat(path + suffix); err == nil && info.Size() > 0 {
			return false
		}
	}
	return true
}

// readable gives the data source by which the database at a path can be read: the one
// it gets, or that of a database which nobody can write.
func readable(ctx context.Context, path, source string) (string, error) {
	err := tryRead(ctx, source)
	switch {
	case err == nil || !cannotShare(err):
		return source, nil // another error is better told by what comes next
	case alone(path):
		return source + unshared, nil
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
