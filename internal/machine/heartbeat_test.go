package machine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
)

func held(l belay.Lease) belay.Held { return belay.Held{Execution: l.Execution, Token: l.Token} }

// A heartbeat renews all leases of a session in one row, and reports for each named run the
// requests to its owner.
func TestAHeartbeatReportsRequestsToOwners(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(9*time.Second))
	plain, cancelled, paused, preempted, signalled := s.run(w), s.run(w), s.run(w), s.run(w), s.run(w)
	s.do(s.act(cancelled.Execution, belay.ActionCancel))
	s.do(s.act(paused.Execution, belay.ActionPause))
	s.do(s.act(preempted.Execution, belay.ActionPreempt))
	seq := s.do(s.signal(signalled.Execution, "go")).Seq
	s.pass(3 * time.Second)
	changes, r := s.batch(s.beat(w, plain, cancelled, paused, preempted, signalled))
	want := belay.HeartbeatReply{
		ExpiresIn: 9 * time.Second,
		Cancel:    []belay.Cancelling{{Held: held(cancelled), Within: 7 * time.Second}},
		Pause:     []belay.Held{held(paused)},
		Preempt:   []belay.Held{held(preempted)},
		Signals:   []belay.Signalled{{Held: held(signalled), SignalSeq: seq}},
	}
	if d := cmp.Diff(want, r[0].Heartbeat); d != "" {
		t.Error(d)
	}
	if len(changes.Workers) != 1 || len(changes.Executions) != 0 || len(r[0].Follow) != 0 {
		t.Errorf("wrote %d sessions and %d executions, follow %v", len(changes.Workers), len(changes.Executions),
			r[0].Follow)
	}
	if got := s.workers[w].ExpiresAt; got != s.now.Add(9*time.Second) {
		t.Errorf("expires at %d", got)
	}
	s.pass(8 * time.Second)
	if r := s.do(s.beat(w, cancelled)); r.Heartbeat.Cancel[0].Within != 0 {
		t.Errorf("a cancel that is over leaves %s", r.Heartbeat.Cancel[0].Within)
	}
}

// A run that the worker names and does not own is revoked, with the token that the worker named.
func TestAHeartbeatRevokesRunsThatTheWorkerDoesNotOwn(t *testing.T) {
	s := newStage(t)
	w, other := s.worker("w"), s.worker("other")
	stolen, ended, foreign := s.run(w), s.run(w), s.run(other)
	s.do(s.act(stolen.Execution, belay.ActionSteal))
	s.do(s.settle(ended, belay.OutcomeSucceeded))
	again := s.win(w) // the stolen execution, won again by the same worker, which has not learned about the loss
	unknown := belay.Lease{Execution: belay.ExecutionID(s.id()), Token: 3}
	for _, holds := range [][]belay.Lease{
		{stolen, again, ended, foreign, unknown},
		{again, stolen, unknown, foreign, ended},
	} {
		r := s.do(s.beat(w, holds...))
		var want []belay.Held
		for _, l := range holds {
			if l != again {
				want = append(want, held(l))
			}
		}
		if d := cmp.Diff(want, r.Heartbeat.Revoked); d != "" {
			t.Error(d)
		}
		if len(r.Follow) != 0 {
			t.Errorf("a run named with its token is released: %+v", r.Follow)
		}
	}
}

// A run that the worker owns but does not name is released only after the worker has given up the
// claim that won the run. A run that is named with another token counts as not named.
func TestAHeartbeatReleasesRunsThatItDoesNotName(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	seen, lost, flying := s.run(w), s.run(w), s.run(w)
	beat := s.beat(w, seen)
	beat.ClaimSeen = 2
	r := s.do(beat)
	want := []Command{&Release{lost.Execution, lost.Token, w, 0}}
	if d := cmp.Diff(want, r.Follow); d != "" {
		t.Error(d)
	}
	s.follow(r)
	s.is(lost.Execution, "pending(released)")
	s.is(flying.Execution, "running")
	if e := s.row(lost.Execution); e.Attempts != 0 || e.Losses != 0 {
		t.Errorf("a lost reply was charged: %+v", *e)
	}
	stale := seen
	stale.Token--
	if r := s.do(s.beat(w, stale, flying)); len(r.Follow) != 1 || len(r.Heartbeat.Revoked) != 1 {
		t.Errorf("named with an old token: %+v", r)
	}
	// ClaimFloor never falls, so a claim that the worker has given up stays given up.
	beat = s.beat(w)
	beat.ClaimSeen = 0
	s.do(beat)
	if got := s.workers[w].ClaimFloor; got != 3 {
		t.Errorf("claims given up to %d, want 3", got)
	}
}

// Rule: a worker may send two heartbeats at the same time. If the older heartbeat arrives last, it
// does not release runs that the worker has won since it sent this heartbeat.
func TestAnOvertakenHeartbeatReleasesNothing(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	before := s.run(w)
	overtaken := s.beat(w, before)
	won := s.run(w)
	s.do(s.beat(w, before, won))
	if r := s.do(overtaken); len(r.Follow) != 0 {
		t.Errorf("released: %+v", r.Follow)
	}
	s.is(won.Execution, "running")
}

// A heartbeat reads the runs in their state after the earlier commands of its batch, not in their
// loaded state.
func TestAHeartbeatSeesEarlierChangesOfItsFold(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	ended, stolen, kept := s.run(w), s.run(w), s.run(w)
	next := s.submission()
	claim := s.claims(w, 2)
	_, r := s.batch(s.settle(ended, belay.OutcomeSucceeded), s.act(stolen.Execution, belay.ActionSteal),
		s.act(kept.Execution, belay.ActionPreempt), next, claim, s.beat(w, ended, stolen, kept))
	b := r[5].Heartbeat
	if d := cmp.Diff([]belay.Held{held(ended), held(stolen)}, b.Revoked); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]belay.Held{held(kept)}, b.Preempt); d != "" {
		t.Error(d)
	}
	// The heartbeat gives up the claim before the worker has received the reply to the claim, so
	// the runs that the claim won are released.
	if len(r[4].Claims) != 2 || len(r[5].Follow) != 2 {
		t.Errorf("won %v, follow %+v", won(r[4]), r[5].Follow)
	}
}

// A heartbeat reports how long each run has been idle. The time of the last progress is written
// only for runs with an idle timeout, and not if the stored time differs from it by only half a
// second. The stored time is never in the future, even if a worker reports an absurd idle time.
func TestHeartbeatReportsProgress(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(hour))
	plain, timed := s.run(w), s.run(w, policy(belay.Policy{IdleTimeout: belay.Duration(time.Minute)}))
	s.pass(30 * time.Second)
	beat := func(idle time.Duration) Reply {
		b := s.beat(w, plain, timed)
		for i := range b.Holds {
			b.Holds[i].Idle = idle
		}
		return s.do(b)
	}
	if r := beat(29500 * time.Millisecond); len(r.Follow) != 0 {
		t.Errorf("a difference of half a second is written: %+v", r.Follow)
	}
	if r := beat(0); len(r.Follow) != 0 {
		t.Errorf("a heartbeat that does not report progress counts as progress: %+v", r.Follow)
	}
	r := beat(2 * time.Second)
	if d := cmp.Diff([]Command{&Progress{timed.Execution, timed.Token, s.now.Add(-2 * time.Second)}},
		r.Follow); d != "" {
		t.Error(d)
	}
	seq := s.row(timed.Execution).Seq
	s.pass(time.Second)
	s.follow(r)
	if e := s.row(timed.Execution); e.ProgressAt != s.now.Add(-3*time.Second) || e.Seq != seq ||
		e.CheckAt != e.ProgressAt.Add(time.Minute) {
		t.Errorf("%+v", *e)
	}
	s.follow(r) // progress that is older than the stored progress changes nothing
	for _, idle := range []time.Duration{-hour, -1 << 63, 1<<63 - 1} {
		s.follow(beat(idle))
		if got := s.row(timed.Execution).ProgressAt; got > s.now {
			t.Errorf("idle for %s: progress in the future, %d", idle, got)
		}
	}
	s.do(&Progress{timed.Execution, timed.Token, s.now.Add(time.Second)})
	if got := s.row(timed.Execution).ProgressAt; got > s.now {
		t.Error("progress in the future")
	}
}
