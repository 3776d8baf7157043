package machine

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// The extension of sessions is written to the rows, not kept in memory. If three marks of life are
// missing (times that servers store at short intervals to show that they can write), the first
// batch that reads sessions or writes a mark extends every session by the gap; each session then
// lives at least for its TTL from now. The next batch extends nothing.
func TestSessionsAreExtendedAfterAStall(t *testing.T) {
	for name, first := range map[string]func(*stage, belay.WorkerID) Command{
		"expire":    func(_ *stage, w belay.WorkerID) Command { return &Expire{w} },
		"heartbeat": func(s *stage, w belay.WorkerID) Command { return s.beat(w) },
		"mark":      func(*stage, belay.WorkerID) Command { return &Mark{} },
		"refusal":   func(_ *stage, w belay.WorkerID) Command { return &Drain{Worker: w} },
		"opening": func(s *stage, _ belay.WorkerID) Command {
			return &Open{WorkerSpec: belay.WorkerSpec{ID: belay.WorkerID(s.id()), Name: "new"}}
		},
	} {
		s := newStage(t)
		short, long := s.worker("short", ttl(6*time.Second)), s.worker("long", ttl(hour))
		gone := s.worker("gone")
		s.do(&End{Worker: gone})
		l := s.run(short)
		longEnd := s.workers[long].ExpiresAt
		s.stall(time.Minute)
		c := first(s, short)
		changes, _ := s.batch(c)
		if changes.Grace != time.Minute {
			t.Fatalf("%s: grace of %s", name, changes.Grace)
		}
		if got := s.workers[short].ExpiresAt; got < s.now.Add(6*time.Second) {
			t.Errorf("%s: the short session ends in %s", name, got.Sub(s.now))
		}
		if got := s.workers[long].ExpiresAt; got != longEnd.Add(time.Minute) {
			t.Errorf("%s: the long session ends in %s", name, got.Sub(s.now))
		}
		if x := s.workers[gone]; x.State != belay.WorkerClosed {
			t.Errorf("%s: the ended session is %s", name, x.State)
		}
		s.refused(&Expire{short}, belay.CodeConflict)
		s.do(s.save(l, belay.KindStep, "the owner is still the owner"))
		if changes, _ := s.batch(s.beat(long)); changes.Grace != 0 {
			t.Errorf("%s: grace is given twice: %s", name, changes.Grace)
		}
		s.pass(6 * time.Second)
		s.do(&Expire{short})
	}
}

// A batch that reads no session and writes no mark extends nothing and need not lock the sessions.
// The next batch still finds the gap.
func TestABatchWithoutSessionsExtendsNothing(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(6*time.Second))
	s.stall(time.Minute)
	for range 3 {
		if changes, r := s.batch(s.submission()); changes.Grace != 0 || r[0].Err != nil {
			t.Errorf("a submission gives back %s: %v", changes.Grace, r[0].Err)
		}
	}
	if changes, _ := s.batch(s.submission(), &Mark{}); changes.Grace != time.Minute {
		t.Errorf("a mark beside it gives back %s", changes.Grace)
	}
	s.refused(&Expire{w}, belay.CodeConflict)
}

// Sessions are not extended while the newest mark of life (the time at which a server last showed
// that it runs) is not older than three of the intervals at which servers write marks.
func TestSessionsAreNotExtendedWhileMarksAreFresh(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(5*time.Second))
	s.stall(3 * s.markInterval())
	changes, r := s.batch(&Expire{w})
	if changes.Grace != 0 || r[0].Err != nil || s.workers[w].State != belay.WorkerLost {
		t.Errorf("grace %s, %v, %s", changes.Grace, r[0].Err, s.workers[w].State)
	}
	w = s.worker("w2", ttl(5*time.Second))
	s.stall(3*s.markInterval() + time.Microsecond)
	if changes, r := s.batch(&Expire{w}); changes.Grace == 0 || r[0].Err == nil {
		t.Errorf("grace %s, %v", changes.Grace, r[0].Err)
	}
}

func (s *stage) markInterval() time.Duration { return s.keeper.beat }

// If a single worker stops its heartbeats while other workers continue, it is lost when its session
// expires, and not later.
func TestASingleSilentWorkerIsLost(t *testing.T) {
	s := newStage(t)
	silent, lively := s.worker("silent"), s.worker("lively")
	end := s.workers[silent].ExpiresAt
	for s.now.Add(5*time.Second) < end {
		s.pass(5 * time.Second)
		s.do(s.beat(lively))
		s.refused(&Expire{silent}, belay.CodeConflict)
	}
	s.to(end - 1)
	s.refused(&Expire{silent}, belay.CodeConflict)
	s.to(end)
	s.do(&Expire{silent})
	s.refused(&Expire{lively}, belay.CodeConflict)
}

// If no server has stored a mark of life (a time that shows that it runs) yet, or if the clock was
// set back, the rules see no gap and extend no session.
func TestSessionsAreNotExtendedWithoutAGap(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	for _, mark := range []Time{0, s.now, s.now.Add(hour)} {
		s.mark = mark
		if changes, _ := s.batch(s.beat(w)); changes.Grace != 0 {
			t.Errorf("mark %d: grace %s", mark, changes.Grace)
		}
	}
}

// A Mark command writes the mark of life (the present time) and nothing else.
func TestMarkWritesNothingElse(t *testing.T) {
	s := newStage(t)
	changes, _ := s.batch(&Mark{})
	if changes.Empty() {
		t.Error("a mark writes nothing")
	}
	changes.Mark = false
	if !changes.Empty() {
		t.Errorf("a mark writes more: %+v", changes)
	}
}
