package machine

import (
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Guarantee G6 (losses are detected in time): a heartbeat at or after expires_at is refused and
// ends the session, whether or not the reaper has run; a microsecond earlier it is accepted.
func TestLateHeartbeat(t *testing.T) {
	s := newStage(t)
	early, late := s.worker("early", ttl(5*time.Second)), s.worker("late", ttl(5*time.Second))
	l := s.run(late)
	s.pass(5*time.Second - time.Microsecond)
	s.do(s.beat(early))
	s.pass(time.Microsecond)
	if err := s.refused(s.claims(late, 1), belay.CodeLeaseLost); !strings.Contains(err.Message,
		"no heartbeat within its TTL of 5s") {
		t.Errorf("the refusal %q does not say what is wrong", err.Message)
	}
	changes, r := s.batch(s.beat(late, l))
	if belay.CodeOf(r[0].Err) != belay.CodeLeaseLost || len(changes.Workers) != 1 {
		t.Fatalf("answered %v, wrote %d sessions", r[0].Err, len(changes.Workers))
	}
	x := s.workers[late]
	if x.State != belay.WorkerLost || x.EndedAt != s.now || !strings.Contains(x.Why, "5s") {
		t.Errorf("%+v", *x)
	}
	if err := s.refused(s.beat(late, l), belay.CodeLeaseLost, belay.CauseExpired); !strings.Contains(err.Message,
		x.Why) {
		t.Errorf("the refusal %q does not say how the session ended", err.Message)
	}
	s.refused(&Expire{late}, belay.CodeConflict)
	s.do(&Lose{l.Execution, l.Token, late, false, true, false})
	s.is(l.Execution, "pending(lost)")
}

// Guarantee G11 (draining loses nothing): a draining worker wins no claims, and the reply to its
// heartbeat tells it to drain. Its runs may finish, an execution that is scheduled to it is taken
// back, and runs that remain when its session ends are released: they are due at once, and no
// attempt is counted.
func TestADrainingWorkerClaimsNothing(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w)
	scheduled := s.submit()
	token := s.do(&Schedule{Execution: scheduled, Worker: w, Secret: belay.Secret{1}}).Execution.Token
	r := s.do(&Drain{w})
	s.refused(&Accept{w, scheduled, token, 1}, belay.CodeConflict)
	s.follow(r)
	s.is(scheduled, "pending(released)")
	if r := s.do(s.claims(w, 5)); len(r.Claims) != 0 {
		t.Errorf("a drained worker won %v", won(r))
	}
	s.do(s.save(l, belay.KindStep, "goes on"))
	if r := s.do(s.beat(w, l)); !r.Heartbeat.Drain || len(r.Heartbeat.Revoked) != 0 {
		t.Errorf("heartbeat %+v", r.Heartbeat)
	}
	s.do(&End{Worker: w})
	if x := s.workers[w]; x.State != belay.WorkerDrained {
		t.Errorf("ended as %s", x.State)
	}
	s.do(&Lose{l.Execution, l.Token, w, false, true, false})
	s.is(l.Execution, "pending(released)")
	if e := s.row(l.Execution); e.Attempts+e.Losses != 0 || e.DueAt != s.now {
		t.Errorf("charged: %+v", *e)
	}
}

// Heartbeats of a draining worker also take back the execution scheduled to it, in case the
// follow-ups of Drain were lost.
func TestHeartbeatsRepeatTheFollowUpsOfADrain(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	id := s.submit()
	s.do(&Schedule{Execution: id, Worker: w, Secret: belay.Secret{1}})
	if r := s.do(s.beat(w)); len(r.Follow) != 0 {
		t.Errorf("taken back from a worker that may accept: %+v", r.Follow)
	}
	s.do(&Drain{w})
	s.follow(s.do(s.beat(w)))
	s.is(id, "pending(released)")
}

// When a worker closes its session, its runs are released. When its process is proven dead or its
// session expires, its runs are lost.
func TestTheEndOfASessionDecidesBetweenReleaseAndLoss(t *testing.T) {
	for _, c := range []struct {
		end   func(*stage, belay.WorkerID)
		state belay.WorkerState
		want  string
	}{
		{func(s *stage, w belay.WorkerID) { s.do(&End{Worker: w}) }, belay.WorkerClosed, "pending(released)"},
		{func(s *stage, w belay.WorkerID) {
			s.do(&End{Worker: w, Dead: "pid 7 is gone"})
		}, belay.WorkerLost, "pending(lost)"},
		{func(s *stage, w belay.WorkerID) {
			s.to(s.workers[w].ExpiresAt)
			s.do(&Expire{w})
		}, belay.WorkerLost, "pending(lost)"},
	} {
		s := newStage(t)
		l := s.run(s.worker("w"))
		c.end(s, l.Worker)
		if x := s.workers[l.Worker]; x.State != c.state || x.Why == "" {
			t.Errorf("%+v", *x)
		}
		s.do(&Lose{l.Execution, l.Token, l.Worker, false, true, false})
		s.is(l.Execution, c.want)
		if e := s.row(l.Execution); c.state == belay.WorkerLost &&
			!strings.Contains(e.ReasonText, s.workers[l.Worker].Why) {
			t.Errorf("the reason %q does not say how", e.ReasonText)
		}
	}
}

// A repeated Open finds the session with the terms of the first Open. An Open with another body
// under the same id is refused.
func TestOpeningASessionAgainFindsIt(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(9*time.Second))
	s.pass(time.Second)
	other := s.workers[w].Spec
	other.TTL = belay.Duration(hour)
	s.refused(&Open{other}, belay.CodeIdempotencyMismatch)
	again := s.workers[w].Spec
	again.Queues, again.Heartbeat = nil, 0 // stand for the defaults, which the first Open has got too
	r := s.do(&Open{again})
	if !r.Replayed || r.Session.TTL.D() != 9*time.Second || r.Session.Heartbeat.D() != 3*time.Second {
		t.Errorf("answered %+v", r)
	}
	if x := s.workers[w]; x.ExpiresAt != s.now.Add(9*time.Second) || x.Spec.TTL.D() != 9*time.Second {
		t.Errorf("%+v", *x)
	}
}

func TestOpenFillsInAndWarns(t *testing.T) {
	for _, c := range []struct {
		ttl, beat, wantTTL, wantBeat time.Duration
		warning                      bool
	}{
		{0, 0, 15 * time.Second, 5 * time.Second, false},
		{30 * time.Second, 15 * time.Second, 30 * time.Second, 15 * time.Second, true},
		{time.Second, 0, time.Second, time.Second / 3, false},
		{0, 2 * time.Second, 6 * time.Second, 2 * time.Second, false},
		{0, 300 * time.Millisecond, time.Second, 300 * time.Millisecond, false},
		{10 * time.Second, 4 * time.Second, 10 * time.Second, 4 * time.Second, true},
	} {
		s := newStage(t)
		r := s.do(&Open{belay.WorkerSpec{
			ID: belay.WorkerID(s.id()), Name: "w", TTL: belay.Duration(c.ttl), Heartbeat: belay.Duration(c.beat),
		}})
		if r.Session.TTL.D() != c.wantTTL || r.Session.Heartbeat.D() != c.wantBeat ||
			(r.Session.Warning != "") != c.warning {
			t.Errorf("ttl %s, heartbeat %s: %+v", c.ttl, c.beat, r.Session)
		}
		if got := s.workers[r.Session.ID].Spec.Queues; len(got) != 1 || got[0] != "default" {
			t.Errorf("queues %v", got)
		}
	}
}

func TestOpenIsRefused(t *testing.T) {
	for name, change := range map[string]func(*belay.WorkerSpec){
		"no id":             func(x *belay.WorkerSpec) { x.ID = belay.WorkerID{} },
		"no name":           func(x *belay.WorkerSpec) { x.Name = "" },
		"an empty queue":    func(x *belay.WorkerSpec) { x.Queues = []string{"a", ""} },
		"an empty workflow": func(x *belay.WorkerSpec) { x.Workflows = []belay.Registration{{}} },
		"a forged version": func(x *belay.WorkerSpec) {
			x.Workflows = []belay.Registration{{Workflow: "a", Version: "\n"}}
		},
		"a forged own version":   func(x *belay.WorkerSpec) { x.Version = "1\n2" },
		"negative capacity":      func(x *belay.WorkerSpec) { x.Capacity = -1 },
		"a TTL too short":        func(x *belay.WorkerSpec) { x.TTL = belay.MinTTL - 1 },
		"a TTL too long":         func(x *belay.WorkerSpec) { x.TTL = 1<<63 - 1 },
		"a negative TTL":         func(x *belay.WorkerSpec) { x.TTL = -1 },
		"a heartbeat too often":  func(x *belay.WorkerSpec) { x.Heartbeat = belay.MinHeartbeat - 1 },
		"a heartbeat as the TTL": func(x *belay.WorkerSpec) { x.TTL, x.Heartbeat = belay.MinTTL, belay.MinTTL },
		"a heartbeat for ever":   func(x *belay.WorkerSpec) { x.Heartbeat = 1<<63 - 1 },
		"too many labels":        func(x *belay.WorkerSpec) { x.Labels = manyLabels() },
	} {
		s := newStage(t)
		spec := belay.WorkerSpec{
			ID: belay.WorkerID(s.id()), Name: "w", Workflows: []belay.Registration{{Workflow: "job"}},
		}
		change(&spec)
		t.Log(name)
		s.refused(&Open{spec}, belay.CodeInvalid)
	}
}
