package machine

import (
	"fmt"
	"time"

	"github.com/belaydev/belay"
)

// Lock makes an external owner (a program that is not a worker) the owner of one execution: Lock
// opens a session for the program and claims the execution in the same commit. If the command is
// repeated under the same id, the reply contains the session and the lease that the first command
// created.
type Lock struct {
	belay.LockRequest
	Secret belay.Secret
}

// Need asks the store for the session, the execution with its input, and the session of the present
// owner.
func (c *Lock) Need(n *Need) {
	n.Workers = append(n.Workers, c.ID)
	n.Held = append(n.Held, c.ID)
	n.Executions = append(n.Executions, c.Execution)
	n.Specs = append(n.Specs, c.Execution)
	if c.Reopen {
		n.Letters = append(n.Letters, LetterRef{Execution: c.Execution})
	}
	n.Owners = append(n.Owners, c.Execution)
	n.Entering = append(n.Entering, c.Execution)
}

func (c *Lock) apply(w *world) (Reply, error) {
	op := "lock " + c.Execution.String()
	if err := c.check(op); err != nil {
		return Reply{}, err
	}
	e, err := w.execution(op, c.Execution)
	if err != nil {
		return Reply{}, err
	}
	if x := w.workers[c.ID]; x != nil {
		return c.again(w, op, e, x)
	}
	if err := c.lockable(w, op, e); err != nil {
		return Reply{}, err
	}
	if err := w.mayEnter(op, e); err != nil {
		return Reply{}, err
	}
	if e.State.Terminal() {
		by := &Act{belay.Control{Action: belay.ActionRetry, Actor: c.Owner, Reason: "to own it from outside"}}
		if err := by.reopen(w, e); err != nil {
			return Reply{}, err
		}
	}
	x := &Worker{ID: c.ID, Spec: c.spec(), State: belay.WorkerOpen, OpenedAt: w.Now, New: true}
	w.workers[x.ID] = x
	w.renew(x)
	w.enter(e)
	e.Secret, e.ClaimNo = c.Secret, 0
	w.assign(e, x)
	w.start(e)
	return Reply{Seq: e.Seq, Session: x.session(), Claims: []Claimed{w.claimed(e)}}, nil
}

func (c *Lock) check(op string) error {
	if c.ID.IsZero() {
		return refuse(belay.CodeInvalid, op, "the lock has no id")
	}
	if err := checkName(op, "the owner", c.Owner, true); err != nil {
		return err
	}
	return checkTTL(op, c.TTL)
}

// spec describes the session of the external owner.
func (c *Lock) spec() belay.WorkerSpec {
	s := belay.WorkerSpec{ID: c.ID, Name: c.Owner, Capacity: 1, TTL: c.TTL, External: true}
	setDefault(&s.TTL, belay.DefaultLockTTL)
	s.Heartbeat = s.TTL / 3
	return s
}

// again answers the repetition of a Lock that was granted before, with the terms of the first
// reply. A repeated Lock shows that the owner is alive, so it renews the lock.
func (c *Lock) again(w *world, op string, e *Execution, x *Worker) (Reply, error) {
	if said := c.spec(); !x.Spec.External || x.Spec.Name != said.Name || x.Spec.TTL != said.TTL {
		return Reply{}, refuse(belay.CodeIdempotencyMismatch, op,
			"id %s names the session of %q with a TTL of %s; lock with a new one", c.ID, x.Spec.Name, x.ttl())
	}
	if x.State.Ended() || x.ExpiresAt.over(w.Now) {
		return Reply{}, lostSession(op, x)
	}
	if e.Worker == x.ID {
		if _, err := w.owner(op, belay.Lease{Execution: e.ID, Worker: x.ID, Token: e.Token,
			Secret: e.Secret}); err != nil {
			return Reply{}, err
		}
		w.renew(x)
		return Reply{Seq: e.Seq, Session: x.session(), Claims: []Claimed{w.claimed(e)}, Replayed: true}, nil
	}
	if held := w.held(x.ID); len(held) > 0 {
		return Reply{}, refuse(belay.CodeIdempotencyMismatch, op, "id %s is the lock of %s; lock with a new one", c.ID,
			held[0].ID)
	}
	err := refuse(belay.CodeLeaseLost, op, "the lock %s was taken from %s; lock with a new id", c.ID, c.Owner)
	err.Cause = belay.CauseExpired
	return Reply{}, err
}

// lockable refuses an execution that cannot be locked; the error says when it can be locked, or
// what the caller can do. A waiting execution can be locked, because its external owner decides
// when it continues.
func (c *Lock) lockable(w *world, op string, e *Execution) error {
	switch {
	case e.State == belay.Running, e.State == belay.Scheduled:
		return w.refuseOwned(op, e)
	case e.State.Terminal() && !c.Reopen:
		return refuse(belay.CodeConflict, op, "it has ended: %s; %s", e.State, reopenText(e))
	case e.State.Terminal() && e.overBudget():
		return w.illegal(op, e, spentText(e)+" after a retry")
	case e.State.Terminal():
		return nil
	case e.State == belay.Paused:
		return refuse(belay.CodeConflict, op, "it is paused; resume it to lock it")
	case e.Gate != "":
		return refuse(belay.CodeConflict, op, "its gate keeps it from running: %s", e.WaitsAt())
	case e.State == belay.Pending && !e.DueAt.over(w.Now):
		wait := e.DueAt.Sub(w.Now)
		text := e.ReasonText
		setDefault(&text, "it is not due before")
		err := refuse(belay.CodeConflict, op, "it may be locked in %s: %s", wait.Round(time.Millisecond), text)
		err.RetryAfter = wait
		return err
	}
	return nil
}

func reopenText(e *Execution) string {
	switch {
	case e.State == belay.Succeeded:
		return "fork it to run a copy"
	case !e.Parent.IsZero():
		return "it is a child: retry its root"
	}
	return "lock it with reopen to run it again"
}

// refuseOwned refuses a lock because the execution has an owner, and names the owner.
func (w *world) refuseOwned(op string, e *Execution) error {
	h := &belay.Holder{Owner: e.Worker.String(), Worker: e.Worker, Token: e.Token}
	if x := w.holder(e); x != nil {
		h.Owner, h.ExpiresIn = x.Spec.Name, max(0, w.expires(x).Sub(w.Now))
	}
	err := refuse(belay.CodeLeaseHeld, op, "%s owns it with token %d; without a heartbeat its lease expires in %s",
		h.Owner, h.Token, h.ExpiresIn.Round(time.Millisecond))
	err.Holder, err.RetryAfter = h, max(h.ExpiresIn, 100*time.Millisecond)
	return err
}

// holder returns the session that owns an execution, nil if the row of the session was not loaded.
// The row may have been read without a lock, so its times may be old.
func (w *world) holder(e *Execution) *Worker {
	if x := w.workers[e.Worker]; x != nil {
		return x
	}
	for _, x := range w.Owners {
		if x.ID == e.Worker {
			return x
		}
	}
	return nil
}

// expires is when a session expires, including the time by which this batch extends it.
func (w *world) expires(x *Worker) Time {
	if w.workers[x.ID] == x || w.out.Grace == 0 || x.State.Ended() {
		return x.ExpiresAt
	}
	return max(x.ExpiresAt.Add(w.out.Grace), w.Now.Add(x.ttl()))
}

// Renew is a heartbeat for one run: it renews the session that owns the lease. Unlike Heartbeat,
// Renew compares no lists of runs. Renew does not count as progress of the run, because an owner
// that is stuck may still send it. If the lease has no token, its secret identifies it. The new TTL
// is counted from the time at which the server received the Renew.
type Renew struct {
	belay.Lease
	// Waited is how long ago the server received the request.
	Waited time.Duration
}

// Need asks the store for the execution and the session.
func (c *Renew) Need(n *Need) { needLease(n, c.Lease) }

func (c *Renew) apply(w *world) (Reply, error) {
	const op = "renew"
	l := c.Lease
	e := w.execs[l.Execution]
	current := e != nil && e.Worker == l.Worker && e.Secret == l.Secret
	if current && l.Token == 0 {
		l.Token = e.Token
	}
	received := w.Now.Add(-c.Waited)
	e, err := w.ownerAt(op, l, received)
	if err != nil {
		if x := w.workers[l.Worker]; current && x != nil && !x.State.Ended() && x.ExpiresAt.over(received) {
			w.endSession(x, belay.WorkerLost, expiredText(x))
		}
		return Reply{}, err
	}
	x := w.workers[l.Worker]
	w.renew(x)
	r := Reply{Heartbeat: belay.HeartbeatReply{ExpiresIn: x.ttl(), Drain: x.State == belay.WorkerDraining}}
	w.addRequests(e, belay.Held{Execution: e.ID, Token: e.Token}, &r.Heartbeat)
	return r, nil
}

// Vacate ends the session of an external owner whose run was ended by another command. Vacate is
// a follow-up of that end; if Vacate is lost, the session expires.
type Vacate struct {
	Worker belay.WorkerID
	Why    string
}

// Need asks the store for the session and the executions that it owns.
func (c *Vacate) Need(n *Need) {
	n.Workers = append(n.Workers, c.Worker)
	n.Held = append(n.Held, c.Worker)
}

func (c *Vacate) apply(w *world) (Reply, error) {
	const op = "vacate"
	x := w.workers[c.Worker]
	switch {
	case x == nil:
		return Reply{}, refuse(belay.CodeNotFound, op, "there is no session %s", c.Worker)
	case x.State.Ended():
		return Reply{Replayed: true}, nil
	case !x.Spec.External || len(w.held(x.ID)) > 0:
		return Reply{}, refuse(belay.CodeConflict, op, "the session %s is in use", c.Worker)
	}
	w.endSession(x, belay.WorkerClosed, clip(c.Why, belay.MaxName))
	return Reply{}, nil
}

// vacate returns a Vacate for the session of an external owner if a command has just taken the
// execution from that owner. was is the execution's row before the command.
func (w *world) vacate(was Execution, e *Execution, why string) []Command {
	x := w.holder(&was)
	if was.Worker.IsZero() || e.Worker == was.Worker || x == nil || !x.Spec.External {
		return nil
	}
	return []Command{&Vacate{x.ID, why}}
}

// refuseExternal refuses a worker's call on the session of an external owner.
func refuseExternal(op string, x *Worker) error {
	return refuse(belay.CodeConflict, op,
		"session %s is the lock of %s: it is renewed by its lease and ends with its run", x.ID, x.Spec.Name)
}

// lostOwner describes the owner that was lost, for the message of the failure.
func lostOwner(x *Worker, id belay.WorkerID) string {
	switch {
	case x == nil:
		return fmt.Sprintf("worker %s was lost: its session is gone", id)
	case x.Spec.External:
		return fmt.Sprintf("its owner from outside, %s, was lost: %s", x.Spec.Name, x.Why)
	}
	return fmt.Sprintf("worker %s was lost: %s", x.Spec.Name, x.Why)
}
