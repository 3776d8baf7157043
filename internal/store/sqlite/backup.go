package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"

	"modernc.org/sqlite"
)

// Backup copies the present content of the database at path to a new file, and checks the copy for
// damage. Users of the database are not delayed, but the write-ahead log grows until the copy is
// complete. The copy is one file without a log, readable by its owner only, and fsynced; its
// directory entry is not fsynced. After an error no copy is left. Backup calls progress, if set,
// with the number of pages that were copied.
func Backup(ctx context.Context, path, to string, progress func(done, total int)) (Snapshot, error) {
	source, err := readable(ctx, path, sourceOf(path, true))
	if err != nil {
		return Snapshot{}, classify("back up "+path, err)
	}
	s, err := duplicate(ctx, path, source, to, progress)
	return s, classify("back up "+path, err)
}

// duplicate copies the database of the data source to a new file. path is the path of the database.
func duplicate(ctx context.Context, path, source, to string, progress func(done, total int)) (s Snapshot, err error) {
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return s, err
	}
	err = f.Close() // before SQLite opens the file: a later close of this descriptor would drop SQLite's locks
	if err == nil {
		err = copyPages(ctx, path, source, to, progress)
	}
	if err == nil {
		err = syncFile(to)
	}
	if err == nil {
		s, err = inspect(ctx, to)
	}
	if err != nil {
		err = firstOf(err, os.Remove(to))
	}
	return s, err
}

// copyPages copies the database from one snapshot, which it keeps until the end. Without the
// snapshot, every commit of another connection would make the copy begin again.
func copyPages(ctx context.Context, path, source, to string, progress func(done, total int)) (err error) {
	c, err := connectTo(ctx, source)
	if err != nil {
		return err
	}
	defer func() { err = firstOf(err, c.close()) }()
	n := recorded(path)
	if _, err := c.exec(ctx, "BEGIN"); err != nil {
		return err
	}
	if _, err := c.schema(ctx); err != nil { // the snapshot begins with this read
		return err
	}
	if err := c.checkNumber(ctx, path, n); err != nil {
		return err
	}
	from, ok := c.Conn.(interface {
		NewBackup(string) (*sqlite.Backup, error)
	})
	if !ok {
		return errors.New("the driver cannot copy a database")
	}
	b, err := from.NewBackup(fileURL(to) + "?_synchronous=FULL&_journal_mode=OFF")
	if err != nil {
		return err
	}
	if err := step(ctx, b, progress); err != nil {
		_ = b.Finish() // step has already returned the error of the copy
		return err
	}
	made, err := b.Commit()
	if err != nil {
		return err
	}
	// In this journal mode the file needs no log beside it.
	d := &conn{Conn: made, statements: make(map[string]driver.Stmt)}
	return firstOf(d.query(ctx, "PRAGMA journal_mode = DELETE", ignore), d.close())
}

// step copies a few pages at a time, so that a cancelled context can stop the copy.
func step(ctx context.Context, b *sqlite.Backup, progress func(done, total int)) error {
	for more := true; more; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		var err error
		if more, err = b.Step(256); err != nil {
			return fmt.Errorf("copy the database: %w", describe(err))
		}
		if progress != nil {
			progress(b.PageCount()-b.Remaining(), b.PageCount())
		}
	}
	return nil
}

// syncFile fsyncs a file. No connection of this process may have the file open, because closing the
// file here would drop the locks of that connection.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
