package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"

	"modernc.org/sqlite"
)

// Backup copies the database at a path, as it is at this moment, to a new file,
// and looks through the copy for damage. Whoever uses the database meanwhile is
// not held up, but the log grows until the copy is made. The copy is one file
// without a log, for its owner only, and fsynced; its name is not. After an error
// there is none. progress, if set, is told how much of the copy is made, in
// pages.
func Backup(ctx context.Context, path, to string, progress func(done, total int)) (Snapshot, error) {
	source, err := readable(ctx, path, sourceOf(path, true))
	if err != nil {
		return Snapshot{}, classify("back up "+path, err)
	}
	s, err := duplicate(ctx, path, source, to, progress)
	return s, classify("back up "+path, err)
}

// duplicate copies the database at a path, named as a data source, to a new file.
func duplicate(ctx context.Context, path, source, to string, progress func(done, total int)) (s Snapshot, err error) {
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return s, err
	}
	err = f.Close() // nobody has it open elsewhere
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

// copyPages holds one snapshot to the end: without it, every commit would make
// the copy begin anew.
func copyPages(ctx context.Context, path, source, to string, progress func(done, total int)) (err error) {
	c, err := connectTo(ctx, source)
	if err != nil {
		return err
	}
	defer func() { err = firstOf(err, c.close()) }()
	n := noted(path)
	if _, err := c.exec(ctx, "BEGIN"); err != nil {
		return err
	}
	if _, err := c.schema(ctx); err != nil { // reads, and so the snapshot begins
		return err
	}
	if err := c.whole(ctx, path, n); err != nil {
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
		_ = b.Finish() // repeats the error
		return err
	}
	made, err := b.Commit()
	if err != nil {
		return err
	}
	// A file that needs no log beside it can be read from anywhere.
	d := &conn{Conn: made, statements: make(map[string]driver.Stmt)}
	return firstOf(d.query(ctx, "PRAGMA journal_mode = DELETE", ignore), d.close())
}

// step copies a little at a time, to be able to stop.
func step(ctx context.Context, b *sqlite.Backup, progress func(done, total int)) error {
	for more := true; more; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		var err error
		if more, err = b.Step(256); err != nil {
			return fmt.Errorf("copy the database: %w", foreign(err))
		}
		if progress != nil {
			progress(b.PageCount()-b.Remaining(), b.PageCount())
		}
	}
	return nil
}

// syncFile makes what a file holds survive power loss. No connection has it
// open: closing it would drop the connection's locks.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
