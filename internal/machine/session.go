package machine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/belaydev/belay"
)

// Open opens a worker's session. A second Open under the same id renews the session if it has not
// ended.
type Open struct{ belay.WorkerSpec }

// Need asks the store for the session.
func (c *Open) Need(n *Need) { n.Workers = append(n.Workers, c.ID) }

func (c *Open) apply(w *world) (Reply, error) {
	const op = "open worker"
	if err := c.check(op); err != nil {
		return Reply{}, err
	}
	if x := w.workers[c.ID]; x != nil {
		if x.Spec.External {
			return Reply{}, refuseExternal(op, x)
		}
		if !sameSpec(&x.Spec, withSessionDefaults(c.WorkerSpec)) {
			return Reply{}, refuse(belay.CodeIdempotencyMismatch, op,
				"session %s was opened with another body; open one with a new id", c.ID)
		}
		if x.State.Ended() || x.ExpiresAt.over(w.Now) {
			return Reply{}, lostSession(op, x)
		}
		w.renew(x)
		return Reply{Session: x.session(), Replayed: true}, nil
	}
	x := &Worker{ID: c.ID, Spec: withSessionDefaults(c.WorkerSpec), State: belay.WorkerOpen, OpenedAt: w.Now, New: true}
	w.workers[x.ID] = x
	w.renew(x)
	return Reply{Session: x.session()}, nil
}

// sameSpec reports whether two specs of a session are equal in their stored form.
func sameSpec(have *belay.WorkerSpec, said belay.WorkerSpec) bool {
	a, err := json.Marshal(have)
	if err != nil {
		return false
	}
	b, err := json.Marshal(said)
	return err == nil && bytes.Equal(a, b)
}

// session returns the reply to Open: the terms of the first Open, also for a repetition.
func (w *Worker) session() belay.Session {
	s := belay.Session{ID: w.ID, TTL: w.Spec.TTL, Heartbeat: w.Spec.Heartbeat}
	if s.Heartbeat > s.TTL/3 {
		s.Warning = fmt.Sprintf("a heartbeat every %s with a TTL of %s tolerates fewer than two losses in a row; "+
			"the TTL should be three heartbeats or more",
			s.Heartbeat.D(), s.TTL.D())
	}
	return s
}

func (c *Open) check(op string) error {
	if c.ID.IsZero() {
		return refuse(belay.CodeInvalid, op, "the session has no id")
	}
	if c.External {
		return refuse(belay.CodeInvalid, op, "an owner from outside locks an execution; that opens its session")
	}
	if err := checkName(op, "the worker's name", c.Name, true); err != nil {
		return err
	}
	if err := checkName(op, "the worker's version", c.Version, false); err != nil {
		return err
	}
	for _, q := range c.Queues {
		if err := checkName(op, "a queue", q, true); err != nil {
			return err
		}
	}
	for _, r := range c.Workflows {
		if err := checkName(op, "a workflow", r.Workflow, true); err != nil {
			return err
		}
		if err := checkName(op, "a workflow's version", r.Version, false); err != nil {
			return err
		}
	}
	if c.Capacity < 0 {
		return refuse(belay.CodeInvalid, op, "the capacity is negative")
	}
	if err := checkTTL(op, c.TTL); err != nil {
		return err
	}
	if c.Heartbeat > belay.MaxTTL {
		return refuse(belay.CodeInvalid, op, "a heartbeat every %s is too rare; the longest TTL is %s", c.Heartbeat.D(),
			belay.MaxTTL.D())
	}
	if c.Heartbeat != 0 && c.Heartbeat < belay.MinHeartbeat {
		return refuse(belay.CodeInvalid, op, "a heartbeat every %s is too often; the least is %s", c.Heartbeat.D(),
			belay.MinHeartbeat.D())
	}
	if s := withSessionDefaults(c.WorkerSpec); s.Heartbeat >= s.TTL {
		return refuse(belay.CodeInvalid, op, "a heartbeat every %s cannot keep a TTL of %s alive", s.Heartbeat.D(),
			s.TTL.D())
	}
	if err := checkName(op, "the address for health probes", c.Health, false); err != nil {
		return err
	}
	return checkLabels(op, "labels", c.Labels)
}

// checkTTL refuses a TTL outside the limits. 0 is allowed and means the default.
func checkTTL(op string, ttl belay.Duration) error {
	switch {
	case ttl != 0 && ttl < belay.MinTTL:
		return refuse(belay.CodeInvalid, op, "a TTL of %s is too short; the least is %s", ttl.D(), belay.MinTTL.D())
	case ttl > belay.MaxTTL:
		return refuse(belay.CodeInvalid, op, "a TTL of %s is too long; the longest is %s", ttl.D(), belay.MaxTTL.D())
	}
	return nil
}

func withSessionDefaults(s belay.WorkerSpec) belay.WorkerSpec {
	if s.TTL == 0 && s.Heartbeat != 0 {
		s.TTL = min(max(3*s.Heartbeat, belay.MinTTL), belay.MaxTTL)
	}
	setDefault(&s.TTL, belay.DefaultTTL)
	setDefault(&s.Heartbeat, s.TTL/3)
	if len(s.Queues) == 0 {
		s.Queues = []string{"default"}
	}
	return s
}

func (w *world) renew(x *Worker) {
	x.HeartbeatAt, x.ExpiresAt = w.Now, w.Now.Add(x.ttl())
	w.changedWorker(x)
}

// session finds a session that is alive. An expired session is refused here; Expire ends it.
func (w *world) session(op string, id belay.WorkerID) (*Worker, error) {
	return w.sessionAt(op, id, w.Now)
}

// sessionAt finds a session that has not ended and had not expired at the moment at.
func (w *world) sessionAt(op string, id belay.WorkerID, at Time) (*Worker, error) {
	x := w.workers[id]
	if x == nil {
		err := refuse(belay.CodeLeaseLost, op, "there is no session %s; open one", id)
		err.Cause = belay.CauseExpired
		return nil, err
	}
	if x.State.Ended() || x.ExpiresAt.over(at) {
		return nil, lostSession(op, x)
	}
	return x, nil
}

func lostSession(op string, x *Worker) error {
	why := x.Why
	if !x.State.Ended() || why == "" {
		why = "no heartbeat within its TTL of " + x.ttl().String()
	}
	err := refuse(belay.CodeLeaseLost, op, "the session of worker %s is over: %s", x.Spec.Name, why)
	err.Cause = belay.CauseExpired
	return err
}

// Heartbeat renews a session and compares the runs that the worker names with the runs that it owns
// in the store. A heartbeat that comes too late is refused and ends the session; no other refusal
// changes a row. A heartbeat counts from the time at which the server received it, because a wait
// in the server's queue is not the worker's fault.
type Heartbeat struct {
	belay.Heartbeat
	// Waited is how long ago the server received the heartbeat.
	Waited time.Duration
}

// Need asks the store for the session and the executions that it owns.
func (c *Heartbeat) Need(n *Need) {
	n.Workers = append(n.Workers, c.Worker)
	n.Held = append(n.Held, c.Worker)
}

func (c *Heartbeat) apply(w *world) (Reply, error) {
	if x := w.workers[c.Worker]; x != nil && x.Spec.External {
		return Reply{}, refuseExternal("heartbeat", x)
	}
	x, err := w.sessionAt("heartbeat", c.Worker, w.Now.Add(-c.Waited))
	if err != nil {
		if x := w.workers[c.Worker]; x != nil && !x.State.Ended() {
			w.endSession(x, belay.WorkerLost, expiredText(x))
		}
		return Reply{}, err
	}
	x.ClaimFloor = max(x.ClaimFloor, c.ClaimSeen)
	w.renew(x)
	r := Reply{Heartbeat: belay.HeartbeatReply{ExpiresIn: x.ttl(), Drain: x.State == belay.WorkerDraining}}
	x.Current, x.Told = c.current(w, x), true
	c.reconcile(w, x, &r)
	return r, nil
}

// reconcile compares the runs that the worker names with the runs that it owns. A run that the
// worker owns and does not name is released if the worker will never run it. A run that the worker
// names and does not own is revoked. An execution that is scheduled to the worker is offered again, since its
// message may be lost. A delayed heartbeat does not name runs that the worker has
// claimed since; these runs stay.
func (c *Heartbeat) reconcile(w *world, x *Worker, r *Reply) {
	// a worker may name two runs of one execution, until it learns that it lost the first
	named := make(map[belay.RunID]belay.Held, len(c.Holds))
	for _, h := range c.Holds {
		h.Steps = nil // the reply names runs, not their steps
		named[belay.RunID{Execution: h.Execution, Token: h.Token}] = h
	}
	owned := make(map[belay.RunID]bool, len(c.Holds))
	for _, e := range w.held(x.ID) {
		id := belay.RunID{Execution: e.ID, Token: e.Token}
		h, ok := named[id]
		switch {
		case ok && e.State == belay.Running:
			owned[id] = true
			c.reportRun(w, e, h, r)
		case e.State == belay.Running && e.ClaimNo > c.ClaimSeen:
		case e.State == belay.Running && e.ClaimNo < 0:
			if -e.ClaimNo <= c.AcceptSeen {
				r.Follow = append(r.Follow, &Release{e.ID, e.Token, x.ID, c.AcceptSeen})
			}
		case unclaimed(e, x) != "":
			r.Follow = append(r.Follow, &Release{e.ID, e.Token, x.ID, 0})
		case e.State == belay.Scheduled && len(r.Heartbeat.Offers) < belay.MaxOffers:
			r.Heartbeat.Offers = append(r.Heartbeat.Offers, belay.Held{Execution: e.ID, Token: e.Token})
		}
	}
	for _, h := range c.Holds {
		if !owned[belay.RunID{Execution: h.Execution, Token: h.Token}] {
			h.Steps = nil
			r.Heartbeat.Revoked = append(r.Heartbeat.Revoked, h)
		}
	}
}

// reportRun adds the requests to the owner of a run to the reply. If the run has an idle timeout and
// the heartbeat says when the run last made progress, reportRun adds a follow-up command that writes
// this time. A heartbeat that does not say it is no progress.
func (c *Heartbeat) reportRun(w *world, e *Execution, h belay.Held, r *Reply) {
	w.addRequests(e, h, &r.Heartbeat)
	if idle := e.policy().IdleTimeout.D(); idle > 0 && h.Idle > 0 {
		if at := w.Now.Add(-h.Idle); at.Sub(e.ProgressAt) > min(idle/4, time.Second) {
			r.Follow = append(r.Follow, &Progress{e.ID, e.Token, at})
		}
	}
}

// addRequests adds the requests to a run's owner to the reply: cancel, pause, preempt, and new signals.
func (w *world) addRequests(e *Execution, h belay.Held, b *belay.HeartbeatReply) {
	if e.CancelBy != 0 {
		b.Cancel = append(b.Cancel, belay.Cancelling{Held: h, Within: max(0, e.CancelBy.Sub(w.Now))})
	}
	if e.PauseRequested {
		b.Pause = append(b.Pause, h)
	}
	if e.Preempting {
		b.Preempt = append(b.Preempt, h)
	}
	if e.SignalSeq != 0 {
		b.Signals = append(b.Signals, belay.Signalled{Held: h, SignalSeq: e.SignalSeq})
	}
}

// Mark writes the server's mark of life (a time that shows that the server runs), if no other
// command of the batch writes it.
type Mark struct{}

// Need adds nothing: the command needs no rows.
func (*Mark) Need(*Need) {}

func (*Mark) apply(w *world) (Reply, error) {
	w.out.Mark = true
	return Reply{}, nil
}

// Drain stops new claims of a worker (guarantee G11) and takes back the executions scheduled to it.
// The worker's next heartbeat takes them back too, if Drain's follow-ups are lost.
type Drain struct{ Worker belay.WorkerID }

// Need asks the store for the session and the executions that it owns.
func (c *Drain) Need(n *Need) {
	n.Workers = append(n.Workers, c.Worker)
	n.Held = append(n.Held, c.Worker)
}

func (c *Drain) apply(w *world) (Reply, error) {
	x, err := w.session("drain", c.Worker)
	if err != nil {
		return Reply{}, err
	}
	if x.State != belay.WorkerDraining {
		x.State, x.Why = belay.WorkerDraining, ""
		w.changedWorker(x)
	}
	return Reply{Follow: w.unscheduled(x)}, nil
}

// End ends a session because the worker closed it, or because another process on the worker's host
// has proven that the worker's process has ended.
type End struct {
	Worker belay.WorkerID
	// Dead, if set, says how the death of the process was proven.
	Dead string
}

// Need asks the store for the session.
func (c *End) Need(n *Need) { n.Workers = append(n.Workers, c.Worker) }

func (c *End) apply(w *world) (Reply, error) {
	x := w.workers[c.Worker]
	switch {
	case x == nil:
		return Reply{}, refuse(belay.CodeNotFound, "end worker", "there is no session %s", c.Worker)
	case x.State.Ended():
		return Reply{Replayed: true}, nil
	case x.Spec.External && c.Dead == "":
		return Reply{}, refuseExternal("end worker", x)
	case c.Dead != "":
		w.endSession(x, belay.WorkerLost, clip(c.Dead, belay.MaxName))
	case x.State == belay.WorkerDraining:
		w.endSession(x, belay.WorkerDrained, "drained")
	default:
		w.endSession(x, belay.WorkerClosed, "closed by its worker")
	}
	return Reply{}, nil
}

// Expire ends a session that has expired.
type Expire struct{ Worker belay.WorkerID }

// Need asks the store for the session.
func (c *Expire) Need(n *Need) { n.Workers = append(n.Workers, c.Worker) }

func (c *Expire) apply(w *world) (Reply, error) {
	x := w.workers[c.Worker]
	if x == nil || x.State.Ended() || !x.ExpiresAt.over(w.Now) {
		return Reply{}, refuse(belay.CodeConflict, "expire", "the time of session %s is not over", c.Worker)
	}
	w.endSession(x, belay.WorkerLost, expiredText(x))
	return Reply{}, nil
}

func expiredText(x *Worker) string {
	return fmt.Sprintf("no heartbeat within its TTL of %s", x.ttl())
}

// endSession ends a session for good. The runs that it owned are handled later: a sweep finds
// executions whose session has ended.
func (w *world) endSession(x *Worker, state belay.WorkerState, why string) {
	x.State, x.EndedAt, x.Why = state, w.Now, why
	w.changedWorker(x)
}
