package sqlite

import (
	"context"
	"sync"
	"sync/atomic"
)

// log keeps the write-ahead log short. SQLite could do this by itself, but it would do so in the
// middle of a commit and would not report a failure.
type log struct {
	limit   int64 // maximum number of pages
	commits int   // number of commits since the store last read the size of the log
	mover   *conn
	moving  sync.WaitGroup
	busy    atomic.Bool // a separate connection is moving the log into the database
}

// logPages is the number of pages at which the content of the log is moved into the database. At
// logMost times that number the writer waits for the move. The size of the log is read after every
// logEvery commits.
const (
	logPages = 4096
	logMost  = 4
	logEvery = 8
)

// trim moves the content of the log into the database if the log has grown. A separate connection,
// the mover, does this while the writer continues. If the log still grows, the writer moves it
// before its next commit, because SQLite can reuse the log only after its whole content was moved.
// Commits in the log are safe in any case; after a failed move the next commit is refused.
func (s *Store) trim(t *tx) {
	if s.log.commits++; s.log.commits < logEvery {
		return
	}
	s.log.commits = 0
	pages, _, err := t.checkpoint(t.ctx, "NOOP")
	switch {
	case err != nil || pages < s.log.limit:
	case pages >= logMost*s.log.limit:
		s.log.moving.Wait()
		_, _, err = t.checkpoint(t.ctx, "PASSIVE")
		s.gen.due.Store(true)
	case s.log.busy.CompareAndSwap(false, true):
		s.log.moving.Go(func() { s.move(t.ctx) })
	}
	if err != nil {
		_ = s.failed("checkpoint", err)
	}
}

// move moves the content of the log into the database in up to three passes: the second and the
// third pass move the pages that were written during the pass before.
func (s *Store) move(ctx context.Context) {
	defer s.log.busy.Store(false)
	s.gen.due.Store(true) // a commit during the move may stay in the log
	defer s.gen.due.Store(true)
	for range 3 {
		pages, moved, err := s.log.mover.checkpoint(ctx, "PASSIVE")
		if err != nil {
			_ = s.failed("checkpoint", err)
			return
		}
		if pages == moved {
			return
		}
	}
}

// checkpoint returns the number of pages in the log and how many of them are in the database.
func (c *conn) checkpoint(ctx context.Context, mode string) (pages, moved int64, err error) {
	err = c.query(ctx, "PRAGMA wal_checkpoint("+mode+")", func(r columns) error {
		pages, moved = r.int(1), r.int(2)
		return nil
	})
	return pages, moved, err
}
