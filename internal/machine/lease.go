package machine

import (
	"fmt"

	"github.com/belaydev/belay"
)

// owner returns the execution of a valid lease, and refuses any other lease. Every write of an
// owner is checked here first (guarantees G1 and G2).
func (w *world) owner(op string, l belay.Lease) (*Execution, error) { return w.ownerAt(op, l, w.Now) }

// ownerAt is like owner, but the session must not have expired at the moment at.
func (w *world) ownerAt(op string, l belay.Lease, at Time) (*Execution, error) {
	e := w.execs[l.Execution]
	op += " " + l.Execution.String()
	if e == nil {
		return nil, refuse(belay.CodeNotFound, op, "there is no execution %s", l.Execution)
	}
	if cause, text := w.lost(e, l, at); cause != "" {
		err := refuse(belay.CodeLeaseLost, op, "%s", text)
		err.Cause = cause
		return nil, err
	}
	return e, nil
}

// lost returns the cause for which the lease is not valid, empty if the lease is valid.
func (w *world) lost(e *Execution, l belay.Lease, at Time) (belay.Cause, string) {
	current := e.Token == l.Token && e.Worker == l.Worker && e.Secret == l.Secret
	newer := e.Token > l.Token
	if l.Token == 0 { // the lease names no token; its secret identifies it
		newer = e.Worker != l.Worker && (e.State == belay.Running || e.State == belay.Scheduled)
	}
	switch {
	case e.State == belay.Cancelled:
		return belay.CauseCancelled, "the execution was cancelled"
	case e.State.Terminal():
		return belay.CauseFinished, fmt.Sprintf("the execution has ended: %s", e.State)
	case newer:
		return belay.CauseReassigned, fmt.Sprintf("a newer claim owns the execution: token %d, not %d", e.Token,
			l.Token)
	case e.State == belay.Running && !current && l.Token == 0:
		return belay.CauseExpired, "the lease is not the present one"
	case e.State != belay.Running || !current:
		return belay.CauseExpired, fmt.Sprintf("no owner has token %d any more; the execution is %s", l.Token, e.State)
	case e.CancelBy.over(w.Now):
		return belay.CauseCancelled, "the execution was cancelled and the grace to end it is over"
	case !w.alive(l.Worker, at):
		return belay.CauseExpired, fmt.Sprintf("the session of worker %s is over", l.Worker)
	}
	return "", ""
}

// Owns refuses a lease that does not own the execution. Owns checks only the execution's row, not
// the session. This is enough for a read: as long as the row names the owner, no other owner has
// written, even if the session has expired.
func Owns(e *Execution, l belay.Lease) error {
	w := world{Rows: &Rows{}, workers: map[belay.WorkerID]*Worker{
		l.Worker: {ID: l.Worker, State: belay.WorkerOpen, ExpiresAt: 1},
	}}
	cause, text := w.lost(e, l, 0)
	if cause == "" {
		return nil
	}
	err := refuse(belay.CodeLeaseLost, "resume "+l.Execution.String(), "%s", text)
	err.Cause = cause
	return err
}

// alive reports whether the session may still write: it has not ended and had not expired at the
// moment at.
func (w *world) alive(id belay.WorkerID, at Time) bool {
	x := w.workers[id]
	return x != nil && !x.State.Ended() && !x.ExpiresAt.over(at)
}

// needLease adds the rows by which a lease is checked.
func needLease(n *Need, l belay.Lease) {
	n.Executions = append(n.Executions, l.Execution)
	n.Workers = append(n.Workers, l.Worker)
}

// refuse makes the error of a refused command.
func refuse(code belay.Code, op, format string, args ...any) *belay.Error {
	return &belay.Error{Code: code, Op: op, Message: fmt.Sprintf(format, args...)}
}
