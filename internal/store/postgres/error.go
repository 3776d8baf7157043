package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store"
	"github.com/jackc/pgx/v5/pgconn"
)

// errURL reports an invalid URL. It does not contain the URL, because the URL may contain a
// password.
var errURL = &belay.Error{
	Code: belay.CodeInvalid, Op: "open",
	Message: "the address of the database is not valid; it looks like postgres://user@host:5432/database",
}

// errClosed refuses calls after Close.
var errClosed = &belay.Error{Code: belay.CodeUnavailable, Message: "the store is closed"}

var (
	// errConnect means that no connection could be made, and errLost means that a connection has
	// ended.
	errConnect = errors.New("cannot connect")
	errLost    = errors.New("the connection ended")
)

// classify gives an error a code: CodeUnavailable if a later try may succeed, CodeInternal if it
// cannot, and CodeInvalid for a value that the database refuses.
func classify(op string, err error) error {
	if err == nil {
		return nil
	}
	var known *belay.Error
	if errors.As(err, &known) {
		return err
	}
	e := &belay.Error{Code: belay.CodeInternal, Op: op, Message: "the database refused", Err: err}
	var reply *pgconn.PgError
	switch {
	case errors.As(err, &reply):
		if e.Code, e.Message = describeState(reply.Code); reply.Code == "08P01" && errors.Is(err, errConnect) {
			e.Code, e.Message = pooler(reply)
		} else if reply.Code == "55P03" {
			e.Err = fmt.Errorf("%w: %w", store.ErrBusy, err)
		}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Code, e.Message = belay.CodeUnavailable, "the caller has given up, or the database did not answer in time"
	case lost(err), errors.Is(err, errConnect):
		e.Code, e.Message = belay.CodeUnavailable, "no connection to the database"
	}
	return e
}

// describeState returns the code and the text for an SQLSTATE. The first two characters of an
// SQLSTATE are its class.
func describeState(state string) (belay.Code, string) {
	switch state {
	case "40001", "40P01", "55P03":
		return belay.CodeUnavailable, "conflict with another transaction on the same rows"
	case "57014":
		return belay.CodeUnavailable, "the database cancelled the statement"
	case "25006":
		return belay.CodeUnavailable, "the database only takes reads: it is a standby, or is set to read only"
	case "3D000":
		return belay.CodeInternal, "there is no such database; create it first"
	case "42501":
		return belay.CodeInternal, "the user may not do that in this database"
	case "26000", "42P05":
		return errShared.Code, errShared.Message
	case "25P03", "25P04", "57P05":
		return belay.CodeUnavailable, "the database ended a transaction that took too long"
	}
	switch state[:min(2, len(state))] {
	case "08", "57", "58":
		return belay.CodeUnavailable, "the database is not reachable, or is stopping or starting"
	case "53":
		return belay.CodeUnavailable, "the database has no room left: disk, memory or connections"
	case "28":
		return belay.CodeInternal, "the database refuses the login of this user"
	case "22", "54":
		return belay.CodeInvalid, "a value that the database does not take"
	case "XX":
		return belay.CodeInternal, "the database is damaged"
	}
	return belay.CodeInternal, "the database refused"
}

// isSlow reports whether a transaction took too long: it reached its time limit, or the database
// ended it because its next statement did not arrive in time.
func isSlow(err error) bool {
	var reply *pgconn.PgError
	if errors.As(err, &reply) {
		return reply.Code == "25P03" || reply.Code == "57014"
	}
	return errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errConnect)
}

// tooSlow is the error of a transaction that took too long. Nothing of it was written.
func tooSlow(op string, err error) error {
	return &belay.Error{
		Code: belay.CodeUnavailable, Op: op, Message: "the database did not take it in time; nothing was written",
		Err: fmt.Errorf("%w: %w", store.ErrSlow, err),
	}
}

// damaged remembers an error that reports damaged data in a table or an index.
func (s *Store) damaged(err error) error {
	var reply *pgconn.PgError
	if errors.As(err, &reply) && (reply.Code == "XX001" || reply.Code == "XX002") {
		s.seen.Damage(classify("read", err))
	}
	return err
}

// repeatable reports whether the transaction may succeed if it is repeated: it conflicted with
// another transaction, and nothing of it was written.
func repeatable(err error) bool {
	if errors.Is(err, errTaken) {
		return true
	}
	var reply *pgconn.PgError
	if !errors.As(err, &reply) {
		return false
	}
	switch reply.Code {
	case "40001", "40P01":
		return true
	case "23505": // another server added the same key first; the next attempt loads it
		return true
	}
	return false
}

// lost reports whether the connection has ended.
func lost(err error) bool { return errors.Is(err, errLost) }

// answered reports whether the error is an answer of the server.
func answered(err error) bool {
	var reply *pgconn.PgError
	return errors.As(err, &reply)
}
