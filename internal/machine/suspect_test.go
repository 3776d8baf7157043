package machine

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// suspects makes n suspects (executions that were lost several times in a row): workers that own
// all n executions are lost, one after the other, until the executions are suspects.
func (s *stage) suspects(n int) []belay.ExecutionID {
	s.t.Helper()
	ids := make([]belay.ExecutionID, n)
	for i := range ids {
		ids[i] = s.submit(policy(belay.Policy{MaxLosses: 5}))
	}
	for range suspectAfter {
		w := s.worker("w")
		c := s.claims(w, n)
		r := s.do(c)
		if len(r.Claims) != n {
			s.t.Fatalf("the claim won %d of %d", len(r.Claims), n)
		}
		s.to(s.workers[w].ExpiresAt)
		s.do(&Expire{w})
		for i := range r.Claims {
			l := leaseOf(&r.Claims[i].Execution)
			s.do(&Lose{Execution: l.Execution, Token: l.Token, Worker: w})
		}
	}
	for _, id := range ids {
		if e := s.row(id); !e.Suspect() || !e.Lane.IsAlone() {
			s.t.Fatalf("%d losses, lane %d", e.Losses, e.Lane)
		}
	}
	return ids
}

// Rule: a worker that runs nothing claims one suspect (an execution that was lost several times in
// a row) and no other execution with it. A worker that runs other executions claims a suspect only
// after the suspect has waited for [AloneWait].
func TestASuspectIsClaimedAlone(t *testing.T) {
	s := newStage(t)
	suspect := s.suspects(2)
	s.pass(LossDelay(suspectAfter))
	other := s.submit()
	idle := s.worker("idle", ttl(hour))
	r := s.do(s.claims(idle, 10))
	if len(r.Claims) != 1 || r.Claims[0].Execution.ID != suspect[0] || !r.Claims[0].Alone {
		t.Fatalf("an idle worker won %+v", r.Claims)
	}
	r = s.do(s.claims(idle, 10))
	if len(r.Claims) != 1 || r.Claims[0].Execution.ID != other || r.Claims[0].Alone {
		t.Fatalf("a busy worker won %+v", r.Claims)
	}
	s.to(s.row(suspect[1]).DueAt.Add(AloneWait - time.Microsecond))
	if r = s.do(s.claims(idle, 10)); len(r.Claims) != 0 {
		t.Fatalf("a busy worker won %+v", r.Claims)
	}
	s.pass(time.Microsecond)
	s.submit()
	if r = s.do(s.claims(idle, 10)); len(r.Claims) != 1 || r.Claims[0].Execution.ID != suspect[1] ||
		!r.Claims[0].Alone {
		t.Fatalf("after the wait a busy worker won %+v", r.Claims)
	}
}

// Rule: after a checkpoint or a failure an execution that was lost several times in a row is not a
// suspect any more.
func TestProgressClearsASuspect(t *testing.T) {
	for name, progress := range map[string]func(*stage, belay.Lease){
		"checkpoint": func(s *stage, l belay.Lease) { s.do(s.save(l, belay.KindStep, "a")) },
		"failure":    func(s *stage, l belay.Lease) { s.do(s.settle(l, belay.OutcomeFailed)) },
		"retry": func(s *stage, l belay.Lease) {
			s.do(s.settle(l, belay.OutcomeFailed, func(x *belay.Settlement) {
				x.Failure = &belay.Failure{Class: belay.ClassPermanent}
			}))
			s.do(s.act(l.Execution, belay.ActionRetry))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			id := s.suspects(1)[0]
			progress(s, s.win(s.worker("w", ttl(hour))))
			if e := s.row(id); e.Losses != 0 || e.Lane.IsAlone() {
				t.Errorf("%d losses, lane %d", e.Losses, e.Lane)
			}
		})
	}
}

// Rule: if one session loses several suspects (executions that were lost several times in a row),
// the loss counts only for the suspect whose run began last, and only if the worker's last
// heartbeat came before that run was belay.AloneFor old. For every fourth run of a suspect the loss
// counts in any case.
func TestALossIsBlamedOnTheNewestYoungSuspect(t *testing.T) {
	for name, tt := range map[string]struct {
		beside, newest bool
		lasted         time.Duration // from the begin of the run to the last heartbeat
		runs           int           // number of earlier runs
		want           int
	}{
		"the only suspect":                {false, true, time.Minute, 0, 3},
		"the newest, young":               {true, true, belay.AloneFor - time.Microsecond, 0, 3},
		"the newest, but no longer young": {true, true, belay.AloneFor, 0, 2},
		"an older one":                    {true, false, 0, 0, 2},
		"an older one's fourth run":       {true, false, 0, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			id := s.suspects(1)[0]
			for range tt.runs {
				s.do(s.settle(s.win(s.worker("w", ttl(hour))), belay.OutcomeReleased))
			}
			w := s.worker("last", ttl(hour))
			l := s.win(w)
			s.pass(tt.lasted)
			s.do(s.beat(w))
			s.to(s.workers[w].ExpiresAt)
			s.do(&Expire{w})
			s.do(&Lose{Execution: id, Token: l.Token, Worker: w, Beside: tt.beside, Newest: tt.newest})
			if got := s.row(id).Losses; got != tt.want {
				t.Errorf("%d losses, want %d", got, tt.want)
			}
		})
	}
}

// Rule: if a check of deadlines finds the loss of a suspect, the loss does not count, except for every
// fourth run.
func TestALossFoundByATick(t *testing.T) {
	s := newStage(t)
	id := s.submit(policy(belay.Policy{MaxLosses: 5, RunTimeout: within(time.Second)}))
	for range suspectAfter {
		s.lose(s.win(s.worker("w")))
	}
	for _, want := range []int{2, 3} {
		l := s.win(s.worker("w"))
		s.to(max(s.workers[l.Worker].ExpiresAt, s.row(id).CheckAt))
		s.do(&Expire{l.Worker})
		s.do(&Tick{Execution: id})
		if e := s.row(id); e.Losses != want || e.State != belay.Pending {
			t.Errorf("token %d: %s after %d losses, want %d", l.Token, e.State, e.Losses, want)
		}
	}
}

// Rule: on a worker that runs something, suspects (executions that were lost several times in a
// row) that have waited long enough take turns with other due work.
func TestManySuspectsDoNotKeepOthersWaiting(t *testing.T) {
	s := newStage(t)
	w := s.worker("busy", ttl(hour))
	s.submit()
	s.win(w)
	s.suspects(3)
	s.pass(LossDelay(suspectAfter) + AloneWait)
	for range 3 {
		s.submit()
	}
	alone := 0
	for range 4 {
		r := s.do(s.claims(w, 1))
		if len(r.Claims) != 1 {
			t.Fatalf("a claim won %d", len(r.Claims))
		}
		if r.Claims[0].Alone {
			alone++
		}
	}
	if alone != 2 {
		t.Errorf("%d of 4 claims won a suspect, want 2", alone)
	}
}
