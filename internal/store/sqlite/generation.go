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

// generation detects that a database has lost its write-ahead log. SQLite accepts a database
// without its log as complete: the commits since the log was last moved into the database would be
// missing, and SQLite would report nothing.
//
// The first commit after the database was opened, and the first after each move of the log, raises
// a number in the database (its user_version). Before that commit is acknowledged, the number is
// also written to a file beside the database. So the number in the database is smaller than the
// number in the file only if commits are missing. The file is removed when the database is closed
// and its log is empty.
type generation struct {
	path string
	due  atomic.Bool // the next commit raises the number
	file *os.File    // nil until the first number is written
}

// generationFile is the suffix of the file's name after the name of the database.
const generationFile = "-generation"

// raise raises the number within a transaction and returns the new number, 0 if this commit need
// not raise it.
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

// once runs a statement that this connection will not run again, and closes it.
func (c *conn) once(ctx context.Context, text string) (int64, error) {
	n, err := c.exec(ctx, text)
	if s := c.statements[text]; s != nil {
		delete(c.statements, text)
		err = errors.Join(err, s.Close())
	}
	return n, err
}

// note writes the number of a commit to the file. If the write fails, the next commit writes its
// number instead. The commit itself does not depend on the file: only the detection of a lost log
// does.
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

// close removes the file if the closed database has no content left in its log.
func (g *generation) close() error {
	if g.file == nil {
		return nil
	}
	err := g.file.Close()
	g.file = nil
	if info, serr := os.Stat(strings.TrimSuffix(g.path, generationFile) + "-wal"); serr == nil && info.Size() > 0 {
		return err // the log is left, because another process reads the database
	}
	return errors.Join(err, remove(g.path))
}

// acceptLoss makes the database at path count as complete although commits may be missing.
func acceptLoss(path string) error { return remove(path + generationFile) }

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// recorded reads the number in the file beside the database at path, 0 if there is none.
func recorded(path string) int64 {
	text, err := os.ReadFile(path + generationFile)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0 // the file is incomplete, since its write was interrupted
	}
	return n
}

// checkNumber refuses the database of a connection if commits are missing in it.
func (c *conn) checkNumber(ctx context.Context, path string, recorded int64) error {
	if recorded == 0 {
		return nil
	}
	n, err := c.generation(ctx)
	if err == nil && n < recorded {
		err = commitsMissing(path)
	}
	return err
}

// checkBeforeWriting refuses the database at path if commits are missing in it, before anything is
// written to it.
func checkBeforeWriting(ctx context.Context, path string) (err error) {
	n := recorded(path)
	if n == 0 {
		return nil
	}
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return commitsMissing(path)
	}
	c, err := connectTo(ctx, fileURL(path)+"?mode=rw&_busy_timeout=5000&_synchronous=FULL")
	if err != nil {
		return err
	}
	defer func() { err = firstOf(err, c.close()) }()
	return c.checkNumber(ctx, path, n)
}

func commitsMissing(path string) error {
	dir, name := filepath.Split(path)
	return &belay.Error{Code: belay.CodeInternal, Op: "open", Message: fmt.Sprintf(
		"the database is damaged: writes that were acknowledged are missing, since its log %s-wal was removed or "+
			"belongs to another database, or %s is an older copy. Put the log back, or restore a backup "+
			"(belay restore --force). To go on without those writes: belay restore --epoch --data %s; to begin "+
			"with an empty database: remove %s and all files whose names begin with that name",
		name, name, filepath.Clean(dir), name)}
}
