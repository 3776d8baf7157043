package machine

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Each deadline acts at its time and not a microsecond earlier, and CheckAt of the row is this
// time.
func TestDeadlinesActAtTheirMoment(t *testing.T) {
	const d, cg = 10 * time.Minute, 2 * time.Second
	p := belay.Policy{CancelGrace: belay.Duration(cg)}
	with := func(change func(*belay.Policy)) belay.Policy {
		p := p
		change(&p)
		return p
	}
	for name, c := range map[string]struct {
		set  func(*subject)
		at   time.Duration
		want string
	}{
		"cancel": {func(x *subject) {
			x.running(p)
			x.do(x.act(x.id, belay.ActionCancel))
		}, cg, "cancelled"},
		"total, running": {func(x *subject) {
			x.running(with(func(p *belay.Policy) { p.Timeout = belay.Duration(d) }))
		}, d + cg, "failed"},
		"total, waiting": {func(x *subject) {
			x.waiting(with(func(p *belay.Policy) { p.Timeout = belay.Duration(d) }), 0)
		}, d, "failed"},
		"run": {func(x *subject) {
			x.running(with(func(p *belay.Policy) { p.RunTimeout = belay.Duration(d) }))
		}, d + cg, "pending(retry later)"},
		"idle": {func(x *subject) {
			x.running(with(func(p *belay.Policy) { p.IdleTimeout = belay.Duration(d) }))
		}, d, "pending(retry later)"},
		"scheduled": {func(x *subject) { x.scheduled(p) }, belay.DefaultScheduled.D(), "pending(released)"},
		"scheduled, set": {func(x *subject) {
			x.scheduled(with(func(p *belay.Policy) { p.ScheduledTimeout = belay.Duration(d) }))
		}, d, "pending(released)"},
		"start": {func(x *subject) {
			x.submitted(with(func(p *belay.Policy) { p.StartTimeout = belay.Duration(d) }))
		}, d, "failed"},
		"start, delayed": {func(x *subject) {
			x.submitted(with(func(p *belay.Policy) {
				p.StartTimeout = belay.Duration(d)
			}), func(s *belay.Submission) { s.DueAt = x.now.Add(hour).Time() })
		}, hour + d, "failed"},
	} {
		t.Log(name)
		x := &subject{stage: newStage(t)}
		x.owner, x.other = x.worker("owner", ttl(24*hour)), x.worker("other", ttl(24*hour))
		c.set(x)
		at := x.now.Add(c.at)
		if got := x.row(x.id).CheckAt; got != at {
			t.Errorf("%s: looked at again in %s, want %s", name, got.Sub(x.now), c.at)
		}
		x.to(at - 1)
		if changes, _ := x.batch(&Tick{Execution: x.id}); !changes.Empty() {
			t.Errorf("%s: acts early: %+v", name, changes)
		}
		x.to(at)
		x.do(&Tick{Execution: x.id})
		x.is(x.id, c.want)
		if changes, _ := x.batch(&Tick{Execution: x.id}); !changes.Empty() {
			t.Errorf("%s: a second look changes %+v", name, changes)
		}
		for _, run := range x.records[x.id].runs {
			if run.Outcome == belay.OutcomeReleased && run.Class != 0 {
				t.Errorf("%s: a run that was only taken back has error %s", name, run.Class)
			}
		}
	}
}

// The timeout of an execution starts with its first run, not while it is queued, and a retry does
// not restart it.
func TestTotalTimeoutStartsWithTheFirstRun(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(24*hour))
	id := s.submit(policy(belay.Policy{Timeout: belay.Duration(hour), MaxAttempts: 9}))
	if s.row(id).CheckAt != 0 {
		t.Error("the timeout counts in the queue")
	}
	s.pass(5 * hour)
	end := s.now.Add(hour)
	for range 3 {
		s.do(s.settle(s.win(w), belay.OutcomeFailed))
		if got := s.row(id).CheckAt; got != end {
			t.Errorf("ends at %d, want %d", got, end)
		}
		if v := View(s.records[id].history()); v.Deadline != end.Time() {
			t.Errorf("deadline %s", v.Deadline)
		}
		s.pass(10 * time.Minute)
	}
	l := s.win(w)
	if v := View(s.records[id].history()); v.Deadline != end.Time() {
		t.Errorf("deadline while running %s, want %s", v.Deadline, end.Time())
	}
	s.do(s.settle(l, belay.OutcomeReleased))
	s.to(end)
	s.do(&Tick{Execution: id})
	s.is(id, "failed")
	s.do(s.act(id, belay.ActionRetry))
	if s.row(id).CheckAt != 0 {
		t.Error("the timeout counts on into the next generation")
	}
}

// A run that lasts longer than its timeout counts as a failed attempt of class timeout. If it was
// the last attempt, the execution fails.
func TestRunTimeoutSpendsTheBudget(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(24*hour))
	id := s.submit(policy(belay.Policy{RunTimeout: belay.Duration(time.Minute), MaxAttempts: 2}))
	for range 2 {
		s.win(w)
		s.to(s.row(id).CheckAt)
		s.do(&Tick{Execution: id, Jitter: 0.999})
		if e := s.row(id); !e.State.Terminal() {
			if wait := e.DueAt.Sub(s.now); wait < time.Second || wait > 1250*time.Millisecond {
				t.Errorf("retried in %s", wait)
			}
			s.to(e.DueAt)
		}
	}
	s.is(id, "failed")
	if e := s.row(id); e.Class != belay.ClassTimeout || e.Attempts != 2 ||
		s.records[id].letters[0].Reason != "timeout" {
		t.Errorf("%+v", *e)
	}
}

// Progress restarts the idle timeout.
func TestIdleTimeoutCountsFromTheLastProgress(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w", ttl(24*hour)), policy(belay.Policy{IdleTimeout: belay.Duration(time.Minute)}))
	for range 3 {
		s.pass(50 * time.Second)
		s.do(s.save(l, belay.KindStep, "a"))
		s.pass(50 * time.Second)
		s.do(&Tick{Execution: l.Execution})
		s.do(&Progress{l.Execution, l.Token, s.now})
	}
	s.is(l.Execution, "running")
	s.do(&Progress{l.Execution, l.Token + 1, s.now}) // the progress of another run changes nothing
	s.tickAt(l.Execution, time.Minute)
	s.is(l.Execution, "pending(retry later)")
}

// Rule: an owner that only sends heartbeats makes no progress, whether it is a worker or a program with
// a lock. When the idle timeout is over, its run has timed out and its checkpoints are refused.
// Checkpoints and output are progress.
func TestHeartbeatsAloneAreNoProgress(t *testing.T) {
	s := newStage(t)
	idle := policy(belay.Policy{IdleTimeout: belay.Duration(time.Minute)})
	w := s.worker("w", ttl(24*hour))
	run := s.run(w, idle)
	lock := leaseOf(&s.do(s.lock(belay.WorkerID(s.id()), s.submit(idle))).Claims[0].Execution)
	beats := func(seconds int) {
		for range seconds {
			s.pass(time.Second)
			for _, l := range []belay.Lease{run, lock} {
				s.do(&Renew{Lease: l})
				s.follow(s.do(&Tick{Execution: l.Execution}))
			}
			s.follow(s.do(s.beat(w, run)))
		}
	}
	beats(50)
	for _, l := range []belay.Lease{run, lock} {
		s.do(s.save(l, belay.KindState, "state"))
	}
	beats(50)
	for n, l := range []belay.Lease{run, lock} {
		s.do(&Append{Chunk: belay.Chunk{Lease: l, Name: "log", N: int64(n), Data: []byte("x")}})
	}
	beats(59)
	s.is(run.Execution, "running")
	s.is(lock.Execution, "running")
	s.pass(time.Second)
	for _, l := range []belay.Lease{run, lock} {
		s.follow(s.do(&Tick{Execution: l.Execution}))
		s.is(l.Execution, "pending(retry later)")
		s.refused(s.save(l, belay.KindState, "state"), belay.CodeLeaseLost, belay.CauseExpired)
		s.refused(&Renew{Lease: l}, belay.CodeLeaseLost, belay.CauseExpired)
	}
	if x := s.workers[lock.Worker]; !x.State.Ended() {
		t.Errorf("the session of the lock is %s", x.State)
	}
}

// If the grace period of a cancel and other deadlines have passed, the cancel has priority: the
// execution ends as cancelled.
func TestCancelComesBeforeOtherDeadlines(t *testing.T) {
	s := newStage(t)
	d := belay.Duration(time.Second)
	l := s.run(s.worker("w", ttl(hour)), policy(belay.Policy{
		RunTimeout: d, IdleTimeout: d, Timeout: d, CancelGrace: d,
	}))
	s.do(s.act(l.Execution, belay.ActionCancel))
	s.tickAt(l.Execution, time.Minute)
	s.is(l.Execution, "cancelled")
	if r := s.records[l.Execution].runs[0]; r.Outcome != belay.OutcomeCancelled {
		t.Errorf("the run ended as %s", r.Outcome)
	}
}

// A Tick corrects a CheckAt that an older version of the rules wrote.
func TestTickRepairsCheckAt(t *testing.T) {
	s := newStage(t)
	id := s.submit()
	wrong := copied(s.row(id))
	wrong.CheckAt = s.now
	_ = s.change(id, func(r *record) error { r.execution = wrong; return nil })
	s.do(&Tick{Execution: id})
	if got := s.row(id).CheckAt; got != 0 {
		t.Errorf("looked at again at %d", got)
	}
}

// The history has an event for each timeout, even if no run has ended with it.
func TestTimeoutsAreExplainedInHistory(t *testing.T) {
	s := newStage(t)
	id := s.submit(policy(belay.Policy{StartTimeout: belay.Duration(time.Minute)}))
	s.tickAt(id, time.Minute)
	events := Events(s.records[id].history(), 0, 100)
	last := events[len(events)-1]
	if last.Kind != "start_timeout" || !last.Final || last.Actor != System ||
		last.Text != "Execution timeout: worker did not pick up task within timeout: no worker started it within 1m0s" {
		t.Errorf("%+v", last)
	}
}

// A run whose session was closed is released without counting an attempt (guarantee G11), even if a
// deadline of the run passes before the run is taken back.
func TestARunWhoseSessionEndedDoesNotTimeOut(t *testing.T) {
	for name, p := range map[string]belay.Policy{
		"run": {RunTimeout: belay.Duration(time.Minute)}, "idle": {IdleTimeout: belay.Duration(time.Minute)},
		"total": {Timeout: belay.Duration(time.Minute)},
	} {
		s := newStage(t)
		w := s.worker("w", ttl(hour))
		l := s.run(w, policy(p))
		s.do(&End{Worker: w})
		s.to(s.row(l.Execution).CheckAt)
		s.do(&Tick{Execution: l.Execution})
		s.is(l.Execution, "pending(released)")
		if e := s.row(l.Execution); e.Attempts != 0 || e.Losses != 0 {
			t.Errorf("%s: %d attempts, %d losses", name, e.Attempts, e.Losses)
		}
		if name == "total" {
			s.do(&Tick{Execution: l.Execution})
			s.is(l.Execution, "failed")
		}
	}
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w, policy(belay.Policy{RunTimeout: belay.Duration(time.Second)}))
	s.to(s.workers[w].ExpiresAt.Add(time.Minute))
	s.do(&Expire{w})
	s.do(&Tick{Execution: l.Execution})
	s.is(l.Execution, "pending(lost)")
}
