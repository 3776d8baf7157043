package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// classify gives an error a code: CodeUnavailable if a later try may succeed, CodeInternal if it
// cannot.
func classify(op string, err error) error {
	if err == nil {
		return nil
	}
	var known *belay.Error
	if errors.As(err, &known) {
		return err
	}
	e := &belay.Error{Code: belay.CodeInternal, Op: op, Message: "the database refused", Err: err}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		e.Code, e.Message = belay.CodeUnavailable, "the caller has given up"
		return e
	}
	var driver *sqlite.Error
	if !errors.As(err, &driver) {
		return e
	}
	switch driver.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		e.Code, e.Message = belay.CodeUnavailable, "another process has the database locked"
	case sqlite3.SQLITE_FULL:
		e.Code, e.Message = belay.CodeUnavailable, "the disk is full; make room and try again"
	case sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_NOMEM:
		e.Code, e.Message = belay.CodeUnavailable, "interrupted"
	case sqlite3.SQLITE_IOERR:
		e.Message = "the disk failed"
		if driver.Code() == sqlite3.SQLITE_IOERR_SHMSIZE { // the file with the shared memory cannot grow
			e.Code, e.Message = belay.CodeUnavailable, "the disk is full; make room and try again"
		}
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		e.Message = "the database file is damaged"
	case sqlite3.SQLITE_READONLY:
		e.Message = "the database cannot be written"
		if driver.Code() == sqlite3.SQLITE_READONLY_ROLLBACK || driver.Code() == sqlite3.SQLITE_READONLY_CANTINIT {
			e.Code, e.Message = belay.CodeUnavailable,
				"a crash interrupted a write; the next engine finishes it, and then it can be read"
		}
	case sqlite3.SQLITE_TOOBIG:
		e.Code, e.Message = belay.CodeInvalid, "a value is too large for the database"
	}
	return e
}

// breaks reports whether later writes cannot be trusted: a write or an fsync failed, or the file is
// damaged. An fsync that failed once may report success the next time although the data was lost.
func breaks(err error) bool {
	var driver *sqlite.Error
	if !errors.As(err, &driver) {
		return false
	}
	switch driver.Code() & 0xff {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return true
	case sqlite3.SQLITE_IOERR:
		switch driver.Code() {
		case sqlite3.SQLITE_IOERR_NOMEM, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP,
			sqlite3.SQLITE_IOERR_SHMOPEN:
			return false // shared memory has no data that must survive
		}
		return true
	}
	return false
}

// damaged remembers an error that reports a damaged file.
func (s *Store) damaged(err error) error {
	var driver *sqlite.Error
	if !errors.As(err, &driver) {
		return err
	}
	switch driver.Code() & 0xff {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		s.seen.Damage(classify("read", err))
	}
	return err
}

// broken is the error of every write after the store broke.
func broken(op string, cause error) error {
	return &belay.Error{
		Code: belay.CodeInternal, Op: op,
		Message: "the store is unusable after a failed write; end this process and check the disk",
		Err:     fmt.Errorf("%w: %w", store.ErrBroken, cause),
	}
}
