package machine

import (
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// lose lets the worker's session expire and takes back the execution of the lease.
func (s *stage) lose(l belay.Lease) {
	s.t.Helper()
	s.to(s.workers[l.Worker].ExpiresAt)
	s.do(&Expire{l.Worker})
	s.do(&Lose{l.Execution, l.Token, l.Worker, false, true, false})
}

// Guarantee G8 (retries obey the policy): losses in a row are counted. A checkpoint resets the
// count; log output, progress and a release do not. At the limit the execution fails with a dead
// letter.
func TestLossesInARowAreCountedUntilACheckpoint(t *testing.T) {
	s := newStage(t)
	id := s.submit(policy(belay.Policy{MaxLosses: 3}))
	lose := func(want int, first ...func(belay.Lease)) {
		t.Helper()
		l := s.win(s.worker("w"))
		for _, f := range first {
			f(l)
		}
		s.lose(l)
		if got := s.row(id).Losses; got != want {
			t.Fatalf("%d losses, want %d", got, want)
		}
	}
	lose(1)
	lose(2)
	lose(1, func(l belay.Lease) { s.do(s.save(l, belay.KindStep, "a")) })
	lose(2, func(l belay.Lease) {
		s.do(&Append{Chunk: belay.Chunk{Lease: l, Name: "log", Data: []byte("x")}})
		s.do(&Progress{id, l.Token, s.now})
	})
	s.do(s.settle(s.win(s.worker("w")), belay.OutcomeReleased)) // a release is neither a loss nor progress
	lose(3)
	s.is(id, "failed")
	if e, d := s.row(id), s.records[id].letters; e.Class != belay.ClassLost || len(d) != 1 || d[0].Reason != "lost" ||
		d[0].Token != e.Token {
		t.Errorf("%+v, letters %+v", *e, d)
	}
	if e := s.row(id); !strings.HasPrefix(e.Message,
		"lost 3 times in a row without a new checkpoint; the last: worker w was lost") {
		t.Errorf("message %q", e.Message)
	}
	if e := s.row(id); e.Attempts != 0 {
		t.Errorf("losses were charged as %d attempts", e.Attempts)
	}
}

// A failed run also resets the count of losses in a row, because it shows that its worker was
// alive.
func TestAFailureResetsTheLossCount(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"), policy(belay.Policy{MaxLosses: 2, MaxAttempts: 9}))
	s.lose(l)
	w := s.worker("w", ttl(hour))
	s.do(s.settle(s.win(w), belay.OutcomeFailed))
	if got := s.row(l.Execution).Losses; got != 0 {
		t.Errorf("%d losses after a failure", got)
	}
}

// During the lock delay after a loss no worker may claim the execution, because the delay protects
// external services that cannot check a token.
func TestLockDelayAfterALoss(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"), policy(belay.Policy{LockDelay: belay.Duration(time.Minute)}))
	s.lose(l)
	w := s.worker("w2", ttl(hour))
	s.pass(time.Minute - time.Microsecond)
	if r := s.do(s.claims(w, 1)); len(r.Claims) != 0 {
		t.Fatal("claimed within the lock delay")
	}
	s.pass(time.Microsecond)
	s.win(w)
}

// Rule: a run is lost only if its session has ended, and only the run with the named token is lost.
func TestOnlyRunsOfEndedSessionsAreLost(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w)
	s.to(s.workers[w].ExpiresAt.Add(time.Hour))
	// the session has expired but has not ended yet
	s.refused(&Lose{l.Execution, l.Token, w, false, true, false}, belay.CodeConflict)
	s.do(&Expire{w})
	s.refused(&Lose{l.Execution, l.Token - 1, w, false, true, false}, belay.CodeConflict)
	s.refused(&Lose{l.Execution, l.Token, s.worker("other"), false, true, false}, belay.CodeConflict)
	s.do(&Lose{l.Execution, l.Token, w, false, true, false})
	s.refused(&Lose{l.Execution, l.Token, w, false, true, false}, belay.CodeConflict)
	s.is(l.Execution, "pending(lost)")
}

// A run whose session's row is gone counts as lost.
func TestARunOfAMissingSessionIsLost(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	delete(s.workers, l.Worker)
	if _, r, _ := s.fold(&Release{l.Execution, l.Token, l.Worker, 0}); belay.CodeOf(r[0].Err) != belay.CodeConflict {
		t.Errorf("released without a session: %v", r[0].Err)
	}
	if _, r, err := s.fold(&Lose{l.Execution, l.Token, l.Worker, false, true, false}); err != nil || r[0].Err != nil {
		t.Fatal(err, r[0].Err)
	}
	s.is(l.Execution, "pending(lost)")
}

// Release succeeds only for a run whose claim the worker has given up. A run that began with Accept
// has no claim and is never released in this way.
func TestOnlyRunsOfClaimsThatWereGivenUpAreReleased(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w)
	s.refused(&Release{l.Execution, l.Token, w, 0}, belay.CodeConflict)
	s.do(s.beat(w))
	s.refused(&Release{l.Execution, l.Token + 1, w, 0}, belay.CodeConflict)
	s.do(&Release{l.Execution, l.Token, w, 0})
	s.is(l.Execution, "pending(released)")

	r := s.do(&Schedule{Execution: l.Execution, Worker: w, Secret: belay.Secret{1}})
	// refused, because the worker may still accept the execution
	s.refused(&Release{l.Execution, r.Execution.Token, w, 0}, belay.CodeConflict)
	s.do(&Accept{w, l.Execution, r.Execution.Token, 1})
	s.refused(&Release{l.Execution, r.Execution.Token, w, 0}, belay.CodeConflict)
	if r := s.do(s.beat(w)); len(r.Follow) != 0 {
		t.Errorf("a heartbeat gives up an accepted run: %+v", r.Follow)
	}
}

// RabbitMQ repeats a message, and the worker accepts it again under a new number: a heartbeat that gives up the former
// accept does not release the run, because the worker may have the reply to the new one.
func TestRepeatedAcceptsHaveTheHigherNumber(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	r := s.do(&Schedule{Execution: s.submit(), Worker: w, Secret: belay.Secret{1}})
	id, token := r.Execution.ID, r.Execution.Token
	lease := leaseOf(&s.do(&Accept{w, id, token, 1}).Claims[0].Execution)
	beat := func(seen int64) Reply {
		h := s.beat(w)
		h.AcceptSeen = seen
		return s.do(h)
	}
	early := beat(1) // its follow-up comes after the second accept
	for _, number := range []int64{3, 2} {
		again := s.do(&Accept{w, id, token, number})
		if l := leaseOf(&again.Claims[0].Execution); !again.Replayed || l != lease {
			t.Errorf("accept %d got %v, want %v", number, l, lease)
		}
	}
	for _, f := range append(early.Follow, beat(2).Follow...) {
		s.refused(f, belay.CodeConflict)
	}
	if s.row(id).State != belay.Running {
		t.Errorf("the execution is %s", s.row(id).State)
	}
	s.follow(beat(3))
	if s.row(id).State != belay.Pending {
		t.Errorf("the execution is %s after all accepts were given up", s.row(id).State)
	}
}

// A run that began with an accept is released once its worker has named a higher accept and not the run:
// the reply to the accept was lost. Nothing is charged. A heartbeat that was sent before releases nothing.
func TestAcceptsAreNumbered(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	accept := func(number int64) (belay.Lease, *Accept) {
		r := s.do(&Schedule{Execution: s.submit(), Worker: w, Secret: belay.Secret{byte(number)}})
		a := &Accept{w, r.Execution.ID, r.Execution.Token, number}
		return leaseOf(&s.do(a).Claims[0].Execution), a
	}
	beat := func(seen int64, holds ...belay.Lease) Reply {
		h := s.beat(w, holds...)
		h.AcceptSeen = seen
		return s.do(h)
	}
	first, repeat := accept(1)
	second, _ := accept(2)
	named, _ := accept(3)
	if r := beat(0, named); len(r.Follow) != 0 {
		t.Errorf("a heartbeat that has seen no accept released %v", r.Follow)
	}
	r := beat(1, named)
	if len(r.Follow) != 1 {
		t.Fatalf("a heartbeat that has seen the first accept released %v", r.Follow)
	}
	s.refused(&Release{second.Execution, second.Token, w, 1}, belay.CodeConflict)
	s.follow(r)
	e := s.row(first.Execution)
	if e.State != belay.Pending || e.DueAt != s.now || e.Attempts != 0 || e.Losses != 0 {
		t.Errorf("the execution is %+v", e)
	}
	s.refused(repeat, belay.CodeConflict) // the accept comes too late: the message is out of date
	if r = beat(3, named); len(r.Follow) != 1 {
		t.Fatalf("a heartbeat that has seen all accepts released %v", r.Follow)
	}
	s.follow(r)
	if s.row(second.Execution).State != belay.Pending || s.row(named.Execution).State != belay.Running {
		t.Error("the wrong run was released")
	}
	s.refused(&Accept{w, named.Execution, named.Token, 0}, belay.CodeInvalid)
}
