package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/belaydev/belay"
)

// generation tells a database that has all of its commits from one whose log is gone.
// SQLite takes a database without its log for a whole one: what was committed since
// the log was last moved into it would be missing, and nothing would tell.
//
// The first commit after the database was opened, and the first after each move of the
// log, raises a number in the database (its user_version). Then, before it is
// acknowledged, the number is written to a file beside it. So the database is never
// behind the file, unless commits are gone. The file is removed when the database is
// closed in order and its log is empty.
type generation struct {
	path string
	due  atomic.Bool // the next commit raises the number
	file *os.File    // nil until the first number is written
}

// generationFile is added to the name of a database.
const generationFile = "-generation"

// raise raises the number within a transaction and gives it, 0 if it is not due.
func (g *generation) raise(t *tx) (n int64, err error) {
	if !g.due.CompareAndSwap(true, false) {
		return 0, nil
	}
	if n, err = t.generation(t.ctx); err == nil {
		n++
		_, err = t.once(t.ctx, fmt.Sprintf("PRAGMA user_version = %d", n))
	}
	if err != nil {
		g.due.Store(true)
	}
	return n, err
}

// generation reads the number of a database.
func (c *conn) generation(ctx context.Context) (n int64, err error) {
	err = c.query(ctx, "PRAGMA user_version", number(&n))
	return n, err
}

// once runs a statement that will not be run again.
func (c *conn) once(ctx context.Context, text string) (int64, error) {
	n, err := c.exec(ctx, text)
	if s := c.statements[text]; s != nil {
		delete(c.statements, text)
		err = errors.Join(err, s.Close())
	}
	return n, err
}

// note writes the number of a commit that is on the disk. Where it cannot be written the
// next commit tries again: what is at stake is that a loss would be noticed.
func (g *generation) note(n int64) {
	if n == 0 {
		return
	}
	if err := g.write(n); err != nil {
		g.due.Store(true)
	}
}

func (g *generation) write(n int64) error {
	if g.file == nil {
		f, err := os.OpenFile(g.path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		if err := syncFolder(filepath.Dir(g.path)); err != nil {
			return errors.Join(err, f.Close())
		}
		g.file = f
	}
	if _, err := g.file.WriteAt(fmt.Appendf(nil, "%019d\n", n), 0); err != nil {
		return err
	}
	return g.file.Sync()
}

// close forgets the number if the database, which is closed, needs no log.
func (g *generation) close() error {
	if g.file == nil {
		return nil
	}
	err := g.file.Close()
	g.file = nil
	if info, serr := os.Stat(strings.TrimSuffix(g.path, generationFile) + "-wal"); serr == nil && info.Size() > 0 {
		return err // somebody else reads it
	}
	return errors.Join(err, remove(g.path))
}

// forget makes the database at a path count as it is.
func forget(path string) error { return remove(path + generationFile) }

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// noted is the number beside the database at a path, 0 if there is none to go by.
func noted(path string) int64 {
	text, err := os.ReadFile(path + generationFile)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0 // of a write that was cut off
	}
	return n
}

// whole refuses the database of a connection if commits are missing in it.
func (c *conn) whole(ctx context.Context, path string, noted int64) error {
	if noted == 0 {
		return nil
	}
	n, err := c.generation(ctx)
	if err == nil && n < noted {
		err = bereft(path)
	}
	return err
}

// complete refuses the database at a path if commits are missing in it, before anything
// is written to it.
func complete(ctx context.Context, path string) (err error) {
	n := noted(path)
	if n == 0 {
		return nil
	}
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return bereft(path)
	}
	c, err := connectTo(ctx, fileURL(path)+"?mode=rw&_busy_timeout=5000&_synchronous=FULL")
	if err != nil {
		return err
	}
	defer func() { err = firstOf(err, c.close()) }()
	return c.whole(ctx, path, n)
}

func bereft(path string) error {
	dir, name := filepath.Split(path)
	return &belay.Error{Code: belay.CodeInternal, Op: "open", Message: fmt.Sprintf(
		"the database is damaged: writes that were acknowledged are missing, since %s-wal, its log, was removed or is "+
			"another's, or %s is an older copy. Put the log back, or restore a backup (belay restore --force). "+
			"To go on without those writes: belay restore --epoch --data %s; to begin anew: remove %s and all "+
			"files whose names begin so", name, name, filepath.Clean(dir), name)}
}
