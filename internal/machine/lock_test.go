package machine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// owned submits an external execution and locks it.
func (s *stage) owned(owner string, with ...func(*belay.Submission)) belay.Lease {
	s.t.Helper()
	id := s.submit(append(with, external)...)
	r := s.do(s.lock(belay.WorkerID(s.id()), id, func(r *belay.LockRequest) { r.Owner = owner }))
	return leaseOf(&r.Claims[0].Execution)
}

// Rule: if an execution has an owner, a Lock command is refused, and the error names the owner, its
// token, and the time after which to try again.
func TestARefusedLockNamesTheOwner(t *testing.T) {
	s := newStage(t)
	l := s.owned("ann")
	s.pass(5 * time.Second)
	err := s.refused(s.lock(belay.WorkerID(s.id()), l.Execution), belay.CodeLeaseHeld)
	if h := err.Holder; h.Owner != "ann" || h.Worker != l.Worker || h.Token != l.Token ||
		h.ExpiresIn != 10*time.Second || err.RetryAfter != h.ExpiresIn {
		t.Errorf("%+v, owned by %+v", err, h)
	}
	s.stall(time.Minute) // no owner could renew its lock while no server wrote, so the lock is extended by the gap
	_, r := s.batch(s.lock(belay.WorkerID(s.id()), l.Execution))
	if !errors.As(r[0].Err, &err) || err.Holder == nil {
		t.Fatalf("after a stall: %v", r[0].Err)
	}
	if err.Holder.ExpiresIn < 10*time.Second {
		t.Errorf("after a stall it expires in %s", err.Holder.ExpiresIn)
	}
}

// Rule: an execution can be locked only when it is due. The refusal says when the execution will be
// due and why it is not due yet. The refusal for an execution that is paused, or that waits at a
// gate, gives that reason.
func TestALockBeforeItsTimeIsRefused(t *testing.T) {
	s := newStage(t)
	l := s.owned("ann")
	s.do(s.settle(l, belay.OutcomeFailed, failing))
	err := s.refused(s.lock(belay.WorkerID(s.id()), l.Execution), belay.CodeConflict)
	if err.RetryAfter != 1125*time.Millisecond || !strings.Contains(err.Message, "1.125s") ||
		!strings.Contains(err.Message, "attempt 1 of 3 failed: no") {
		t.Errorf("%v, again in %s", err, err.RetryAfter)
	}
	s.pass(err.RetryAfter)
	s.do(s.lock(belay.WorkerID(s.id()), l.Execution))

	paused := s.submit(external)
	s.do(s.act(paused, belay.ActionPause))
	if err := s.refused(s.lock(belay.WorkerID(s.id()), paused), belay.CodeConflict); !strings.Contains(err.Message,
		"resume") {
		t.Errorf("paused: %v", err)
	}
	s.do(s.set("target:mail", belay.GateForceOpen))
	gated := s.submit(target("mail"))
	if err := s.refused(s.lock(belay.WorkerID(s.id()), gated), belay.CodeConflict); !strings.Contains(err.Message,
		"target:mail") {
		t.Errorf("behind its breaker: %v", err)
	}
}

// Rule: after a loss the execution cannot be locked before the lock delay is over.
func TestALockWaitsForTheLockDelay(t *testing.T) {
	s := newStage(t)
	l := s.owned("ann", policy(belay.Policy{OnLost: belay.Requeue, LockDelay: within(4 * time.Second)}))
	s.pass(15 * time.Second)
	s.do(&Expire{l.Worker})
	s.do(&Lose{l.Execution, l.Token, l.Worker, false, true, false})
	if err := s.refused(s.lock(belay.WorkerID(s.id()), l.Execution),
		belay.CodeConflict); err.RetryAfter != 4*time.Second {
		t.Errorf("%v, again in %s", err, err.RetryAfter)
	}
	s.pass(4 * time.Second)
	s.do(s.lock(belay.WorkerID(s.id()), l.Execution))
}

// Rule: the id in a Lock command names one lease. While that lease is valid, a repeated command gets
// the same lease again and renews it. A command with the same id and another execution, owner or TTL
// is refused.
func TestALocksIDNamesOneLock(t *testing.T) {
	s := newStage(t)
	first := s.lock(belay.WorkerID(s.id()), s.submit(external))
	won := s.do(first)
	s.pass(10 * time.Second)
	again := *first
	again.Secret = belay.Secret{99}
	r := s.do(&again)
	if !r.Replayed || leaseOf(&r.Claims[0].Execution) != leaseOf(&won.Claims[0].Execution) ||
		r.Session.TTL != first.TTL {
		t.Errorf("asked again: %+v, was %+v", r, won)
	}
	s.pass(10 * time.Second) // the repetition has renewed the lock, so it is still valid then
	other := *first
	other.Execution = s.submit(external)
	s.refused(&other, belay.CodeIdempotencyMismatch)
	longer := *first
	longer.TTL = within(time.Hour)
	s.refused(&longer, belay.CodeIdempotencyMismatch)
	stranger := *first
	stranger.Owner = "bob"
	s.refused(&stranger, belay.CodeIdempotencyMismatch)
	_, both := s.batch(s.lock(belay.WorkerID(s.id()), other.Execution), s.lock(belay.WorkerID(s.id()), other.Execution))
	if both[0].Err != nil || belay.CodeOf(both[1].Err) != belay.CodeLeaseHeld {
		t.Errorf("two in one batch: %v, %v", both[0].Err, both[1].Err)
	}
}

// Rule: Renew needs the secret of the lease but not its token. With a wrong secret it is refused. The
// reply reports the requests to this run and to no other run.
func TestALockIsRenewedByItsSecret(t *testing.T) {
	s := newStage(t)
	l := s.owned("ann")
	seq := s.row(l.Execution).Seq
	s.do(s.signal(l.Execution, "s"))
	s.do(s.act(l.Execution, belay.ActionPause))
	s.do(s.act(l.Execution, belay.ActionPreempt))
	s.do(&Drain{l.Worker})
	s.pass(10 * time.Second)
	byIt := l
	byIt.Token = 0
	b := s.do(&Renew{Lease: byIt}).Heartbeat
	if b.ExpiresIn != 15*time.Second || len(b.Pause) != 1 || len(b.Preempt) != 1 || len(b.Signals) != 1 ||
		b.Signals[0].SignalSeq != seq+1 || !b.Drain || len(b.Revoked) != 0 {
		t.Errorf("the reply is %+v", b)
	}
	if e := s.row(l.Execution); e.ProgressAt != s.now.Add(-10*time.Second) {
		t.Errorf("the heartbeat moved the last progress to %d", e.ProgressAt)
	}
	wrong := byIt
	wrong.Secret[1]++
	s.refused(&Renew{Lease: wrong}, belay.CodeLeaseLost, belay.CauseExpired)
	wrong.Token = l.Token
	s.refused(&Renew{Lease: wrong}, belay.CodeLeaseLost, belay.CauseExpired)
	s.do(s.act(l.Execution, belay.ActionCancel))
	if c := s.do(&Renew{Lease: l}).Heartbeat.Cancel; len(c) != 1 || c[0].Within != grace || c[0].Token != l.Token {
		t.Errorf("the requests to cancel are %+v", c)
	}
}

// Rule: a worker may renew one of its runs with the run's lease. This renews the worker's whole
// session, and releases or revokes no run.
func TestRenewingOneRunOfAWorker(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	a, b := s.run(w), s.run(w)
	s.pass(10 * time.Second)
	if r := s.do(&Renew{Lease: a}); len(r.Follow) != 0 {
		t.Errorf("it reconciles: %+v", r)
	}
	s.pass(10 * time.Second)
	s.do(s.save(b, belay.KindStep, "a")) // accepted, because renewing the run a has renewed the whole session
}

// Rule: an external owner may also lock an ordinary execution. While the owner has the lock, no
// worker can claim the execution; after the owner has released the execution, workers can claim it.
func TestAnOrdinaryExecutionOwnedFromOutside(t *testing.T) {
	s := newStage(t)
	w, id := s.worker("w"), s.submit()
	l := leaseOf(&s.do(s.lock(belay.WorkerID(s.id()), id)).Claims[0].Execution)
	if r := s.do(s.claims(w, 1)); len(r.Claims) != 0 {
		t.Fatalf("a worker claimed %+v", r.Claims)
	}
	s.do(s.beat(w)) // the heartbeat names no run, because the worker has none
	s.do(s.save(l, belay.KindStep, "a"))
	s.do(s.settle(l, belay.OutcomeSuspended))
	s.is(id, "waiting(signal)")
	if r := reason(s.row(id)); r.Text != "suspended by out" {
		t.Errorf("reason %+v", r)
	}
	l = leaseOf(&s.do(s.lock(belay.WorkerID(s.id()), id)).Claims[0].Execution)
	s.do(s.settle(l, belay.OutcomeReleased))
	if next := s.win(w); next.Token <= l.Token {
		t.Errorf("token %d follows %d", next.Token, l.Token)
	}
}

// Rule: an external execution stays external through signals, retries and losses, and its
// attempts and losses are limited as usual.
func TestAnExternalExecutionStaysExternal(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.owned("ann", policy(belay.Policy{
		OnLost: belay.Requeue, Timeout: within(time.Minute), StartTimeout: within(20 * time.Second),
	}))
	none := func(after string) {
		t.Helper()
		if r := s.do(s.claims(w, 1)); len(r.Claims) != 0 || !s.row(l.Execution).External ||
			s.row(l.Execution).Ready() != 0 {
			t.Fatalf("after %s a worker gets %+v", after, r.Claims)
		}
	}
	s.do(s.settle(l, belay.OutcomeSuspended, func(x *belay.Settlement) { x.Wait = time.Second }))
	s.pass(2 * time.Second)
	none("its timer")
	s.do(s.signal(l.Execution, "s"))
	none("a signal")
	l = leaseOf(&s.do(s.lock(belay.WorkerID(s.id()), l.Execution)).Claims[0].Execution)
	s.do(s.settle(l, belay.OutcomeFailed, failing))
	s.pass(2 * time.Second)
	none("a failure")
	l = leaseOf(&s.do(s.lock(belay.WorkerID(s.id()), l.Execution)).Claims[0].Execution)
	s.pass(8 * time.Second)
	s.do(s.beat(w))
	s.pass(7 * time.Second)
	s.do(&Expire{l.Worker})
	s.do(&Lose{l.Execution, l.Token, l.Worker, false, true, false})
	s.do(s.beat(w))
	none("a loss")
	s.is(l.Execution, "pending(lost outside)")
	s.to(s.row(l.Execution).CheckAt)
	s.do(&Tick{Execution: l.Execution})
	s.is(l.Execution, "failed")
}

// Rule: invalid lock requests are refused.
func TestALockIsChecked(t *testing.T) {
	s := newStage(t)
	id := s.submit(external)
	for what, with := range map[string]func(*belay.LockRequest){
		"no id":      func(r *belay.LockRequest) { r.ID = belay.WorkerID{} },
		"no owner":   func(r *belay.LockRequest) { r.Owner = "" },
		"long owner": func(r *belay.LockRequest) { r.Owner = strings.Repeat("x", belay.MaxName+1) },
		"short TTL":  func(r *belay.LockRequest) { r.TTL = within(time.Millisecond) },
		"below zero": func(r *belay.LockRequest) { r.TTL = -1 },
	} {
		if err := s.refused(s.lock(belay.WorkerID(s.id()), id, with), belay.CodeInvalid); err.Message == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	r := s.do(s.lock(belay.WorkerID(s.id()), id, func(r *belay.LockRequest) { r.TTL = 0 }))
	if r.Session.TTL != belay.DefaultLockTTL || r.Session.Heartbeat != belay.DefaultLockTTL/3 {
		t.Errorf("terms %+v", r.Session)
	}
	s.refused(&Open{belay.WorkerSpec{ID: belay.WorkerID(s.id()), Name: "w", External: true}}, belay.CodeInvalid)
}
