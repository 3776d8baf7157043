package worker

import (
	"context"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/workflow"
)

// heartbeats sends one every beat, sooner when asked or when the last did not
// get through, until the session is over. While the machine sleeps the timer stands still:
// when it wakes the alarm is over, and what is left of the lease is not waited away.
func (s *session) heartbeats() {
	timer, alarm := time.NewTimer(s.beat), s.w.alarm(s.heartbeatSoon)
	defer timer.Stop()
	defer alarm.Stop()
	alarm.Reset(s.beat + awake)
	b := backoff{w: s.w}
	for {
		var asked chan struct{}
		select {
		case <-s.ctx.Done():
		case <-s.soon:
		case asked = <-s.now:
		case <-timer.C:
		}
		if s.ctx.Err() != nil {
			return
		}
		select { // one heartbeat answers all that ask for one
		case <-s.soon:
		default:
		}
		if asked == nil {
			select {
			case asked = <-s.now:
			default:
			}
		}
		alarm.Reset(s.ttl) // not during this one
		next := s.beat
		if err := s.heartbeat(); err != nil {
			next = min(s.beat, b.next())
			s.w.o.Log.Debug("heartbeat", "worker", s.id, "error", err)
		} else {
			b.n = 0
		}
		if asked != nil {
			close(asked)
		}
		timer.Reset(next)
		alarm.Reset(next + awake)
	}
}

// awake is by how much the alarm comes after the timer, if the machine did not sleep.
const awake = 100 * time.Millisecond

// heartbeat sends one and carries out what its reply says. Revocations come
// before the fence opens, so that what is not ours any more does not thaw.
func (s *session) heartbeat() error {
	h := s.beatNow()
	sent := s.w.o.Clock.Boottime()
	ctx, cancel := context.WithTimeout(s.ctx, s.ttl/2)
	defer cancel()
	reply, err := s.w.b.Heartbeat(ctx, h)
	switch {
	case belay.CodeOf(err) == belay.CodeLeaseLost:
		s.lose(err)
	case err != nil && !unknown(err) && s.w.o.Clock.Boottime()-s.acked >= s.ttl:
		// Whose key is gone is not told that the session is over, and would ask
		// for ever. Opening another tells what is wrong.
		s.lose(&belay.Error{Code: belay.CodeLeaseLost, Cause: belay.CauseExpired, Op: "heartbeat",
			Message: "refused for the whole TTL", Err: err})
	}
	if err != nil {
		return err
	}
	s.acked = sent
	s.obey(&reply)
	ttl := reply.ExpiresIn
	if ttl <= 0 {
		ttl = s.ttl
	}
	s.shared.Fence.Renew(sent, ttl)
	return nil
}

// beatNow is what the worker holds and has seen at one moment.
func (s *session) beatNow() belay.Heartbeat {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := belay.Heartbeat{Worker: s.id, ClaimSeen: s.claimSeen}
	if len(s.held) > 0 {
		h.Holds = make([]belay.Held, len(s.held))
		for i, r := range s.held {
			h.Holds[i] = r.Held()
		}
	}
	return h
}

func (s *session) obey(reply *belay.HeartbeatReply) {
	for _, h := range reply.Revoked {
		if r := s.find(h); r != nil {
			r.Lose(&belay.Error{
				Code: belay.CodeLeaseLost, Cause: belay.CauseReassigned, Op: "heartbeat",
				Message: "the store says that " + h.Execution.String() + " is not this worker's any more",
			})
		}
	}
	for _, c := range reply.Cancel {
		if r := s.find(c.Held); r != nil {
			r.Cancel(&workflow.CancelCause{Within: c.Within})
		}
	}
	s.ask(reply.Pause, belay.OutcomeReleased)
	s.ask(reply.Preempt, belay.OutcomePreempted)
	for _, x := range reply.Signals {
		if r := s.find(x.Held); r != nil {
			r.Told(x.SignalSeq)
		}
	}
	if reply.Drain {
		s.drain.Do(func() { close(s.drained) })
	}
}

func (s *session) ask(held []belay.Held, o belay.Outcome) {
	for _, h := range held {
		if r := s.find(h); r != nil {
			r.Ask(o)
		}
	}
}
