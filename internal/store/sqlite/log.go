package sqlite

import (
	"context"
	"sync"
	"sync/atomic"
)

// log keeps the write-ahead log short. SQLite would do so by itself, in the
// middle of a commit, and say nothing if that failed.
type log struct {
	limit   int64 // how many pages it may have
	commits int   // since it was last looked at
	mover   *conn
	moving  sync.WaitGroup
	busy    atomic.Bool // the mover is at work
}

// How many pages the log may have before it is moved into the database, how many
// times that before the writer waits, and how many commits pass before it is
// looked at.
const (
	logPages = 4096
	logMost  = 4
	logEvery = 8
)

// trim moves the log into the database if it has grown: beside the writer while
// that is enough, or before its next commit, since the log can only begin anew
// once all of it was moved. What was committed is in the log and stays there;
// after a failure the next commit is refused.
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

// move moves the log, and what was written meanwhile, as long as that is little.
func (s *Store) move(ctx context.Context) {
	defer s.log.busy.Store(false)
	s.gen.due.Store(true) // what is committed beside the move may stay in the log
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

// checkpoint tells how many pages the log has and how many of them are in the
// database.
func (c *conn) checkpoint(ctx context.Context, mode string) (pages, moved int64, err error) {
	err = c.query(ctx, "PRAGMA wal_checkpoint("+mode+")", func(r columns) error {
		pages, moved = r.int(1), r.int(2)
		return nil
	})
	return pages, moved, err
}
