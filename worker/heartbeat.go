package worker

import (
	"context"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/retry"
	"github.com/belaydev/belay/internal/run"
	"github.com/belaydev/belay/workflow"
)

// heartbeats sends a heartbeat at each interval until the session is over. It sends a heartbeat
// earlier on request, or after the last heartbeat failed. If the machine sleeps past the time of
// the next heartbeat, the heartbeat is sent soon after the machine wakes: a timer would not count
// the time of the sleep, but an alarm (package host) counts it.
func (s *session) heartbeats() {
	timer, alarm := time.NewTimer(s.beat), s.w.alarm(s.heartbeatSoon)
	look, last := stopped(), time.Now()
	defer timer.Stop()
	defer look.Stop()
	defer alarm.Stop()
	alarm.Reset(s.beat + alarmDelay)
	delays := retry.NewDelays(s.w.o.IDs)
	for {
		var asked chan struct{}
		select {
		case <-s.ctx.Done():
		case <-s.soon:
		case asked = <-s.now:
		case <-timer.C:
		case <-s.look:
			look.Reset(run.TellAfter)
			continue
		case <-look.C:
			tell, next := s.lookAtSteps(last)
			if next > 0 {
				look.Reset(next)
			}
			if !tell {
				continue
			}
		}
		if s.ctx.Err() != nil {
			return
		}
		select { // all pending requests are served by one heartbeat
		case <-s.soon:
		default:
		}
		if asked == nil {
			select {
			case asked = <-s.now:
			default:
			}
		}
		alarm.Reset(s.ttl) // the alarm must not request a heartbeat while this heartbeat waits for its reply
		next := s.beat
		last = time.Now()
		if err := s.heartbeat(); err != nil {
			next = min(s.beat, delays.Next(err))
			s.w.o.Log.Debug("heartbeat", "worker", s.id, "error", err)
		} else {
			delays.Reset()
		}
		if asked != nil {
			close(asked)
		}
		timer.Reset(next)
		alarm.Reset(next + alarmDelay)
	}
}

// tellPause is the least time between two heartbeats for the sake of current steps, and tellCost is the least time for
// each run that the heartbeat names, since the server reads the row of each. So the steps of a worker with 10 runs
// appear after a second or two, and a worker with 1000 runs sends no more heartbeats than usual.
const (
	tellPause = time.Second
	tellCost  = 10 * time.Millisecond
)

// report asks for a look at the current steps. The runs call it whenever a step begins; it costs one atomic operation
// unless no look is due.
func (s *session) report() {
	if !s.looking.Swap(true) {
		s.look <- struct{}{} // has room: only the first caller sends, until the goroutine of heartbeats has looked
	}
}

// lookAtSteps decides whether a heartbeat should name the current steps now, before the next one is due. next is the
// time until the next look; 0 if none is needed until report asks for one. last is when the last heartbeat was sent.
func (s *session) lookAtSteps(last time.Time) (tell bool, next time.Duration) {
	s.looking.Store(false) // a step that begins from here on asks for another look
	runs := s.runs()
	due := false
	for _, r := range runs {
		untold, left := r.Untold()
		due = due || untold
		if left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	if next > 0 {
		next = max(next, run.TellAfter/2) // so that one look finds the steps of many runs
	}
	if due {
		pause := max(tellPause, time.Duration(len(runs))*tellCost)
		wait := pause - time.Since(last)
		if tell = wait <= 0; tell {
			wait = pause // the heartbeat does not name the steps that have just begun
		}
		next = wait
	}
	if next > 0 && s.looking.Swap(true) {
		next = 0 // report has asked for a look meanwhile
	}
	return tell, next
}

// stopped returns a timer that does not run.
func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// alarmDelay is how much later than the timer the alarm is due. So the alarm fires before the timer
// only if the machine slept.
const alarmDelay = 100 * time.Millisecond

// heartbeat sends a heartbeat and processes the reply. It ends the revoked runs before it renews
// the fence, so that a run that the worker does not own any more never continues.
func (s *session) heartbeat() error {
	h := s.beatNow()
	sent := s.w.o.Clock.Boottime()
	ctx, cancel := context.WithTimeout(s.ctx, s.ttl/2)
	defer cancel()
	reply, err := s.w.b.Heartbeat(ctx, h)
	if run.Refused(err) && slices.ContainsFunc(h.Holds, func(h belay.Held) bool { return h.Steps != nil }) {
		s.shared.Quiet()
		reply, err = s.w.b.Heartbeat(ctx, s.beatNow())
	}
	switch {
	case belay.CodeOf(err) == belay.CodeLeaseLost:
		s.lose(err)
	case err != nil && !unknown(err) && s.w.o.Clock.Boottime()-s.acked >= s.ttl:
		// If a server refuses the worker's API key, its reply does not show whether the session is
		// over, and the worker would send heartbeats for ever. So the worker gives the session up
		// and tries to open another session; the server refuses this request too, and Run returns
		// the error.
		s.lose(&belay.Error{Code: belay.CodeLeaseLost, Cause: belay.CauseExpired, Op: "heartbeat",
			Message: "the server refused every heartbeat for the whole TTL", Err: err})
	}
	if err != nil {
		return err
	}
	s.acked = sent
	s.carryOut(&reply)
	ttl := reply.ExpiresIn
	if ttl <= 0 {
		ttl = s.ttl
	}
	s.shared.Fence.Renew(sent, ttl)
	return nil
}

// beatNow returns a heartbeat with the runs that the worker has now, and the newest claim and accept whose
// replies it has received.
func (s *session) beatNow() belay.Heartbeat {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := belay.Heartbeat{Worker: s.id, ClaimSeen: s.claimSeen, AcceptSeen: s.acceptSeen}
	if len(s.held) > 0 {
		h.Holds = make([]belay.Held, len(s.held))
		for i, r := range s.held {
			h.Holds[i] = r.Held()
		}
	}
	return h
}

// carryOut passes the requests and the news in the reply to a heartbeat on to the runs.
func (s *session) carryOut(reply *belay.HeartbeatReply) {
	for _, h := range reply.Revoked {
		if r := s.find(h); r != nil {
			r.Lose(&belay.Error{
				Code: belay.CodeLeaseLost, Cause: belay.CauseReassigned, Op: "heartbeat",
				Message: "the store says that " + h.Execution.String() + " does not belong to this worker any more",
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
			r.SignalsUpTo(x.SignalSeq)
		}
	}
	for _, h := range reply.Offers {
		s.mailbox.offer(h)
	}
	if reply.Drain {
		s.drain.Do(func() { close(s.drained) })
	}
}

// ask makes runs end with the outcome o at their next step or wait.
func (s *session) ask(held []belay.Held, o belay.Outcome) {
	for _, h := range held {
		if r := s.find(h); r != nil {
			r.Ask(o)
		}
	}
}
