package worker

import (
	"context"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/retry"
)

const (
	// claimWait is how long a claim waits for work in the store.
	claimWait = 20 * time.Second
	// claimReplyDelay is how much longer than claimWait a worker waits for the reply to a claim.
	claimReplyDelay = 10 * time.Second
	// fullPause is how long a worker without free slots waits for a slot before it sends a claim
	// for 0 slots. The reply to such a claim has only Attention, the request to send a heartbeat.
	fullPause = 50 * time.Millisecond
	// The pause between two heartbeats that Attention in replies to claims has requested is as long as the first of the
	// two took, within these limits. So a worker that gets very many signals spends at most half of its time on such
	// heartbeats, and a worker whose run waits for one child after the other does not wait for a timer.
	leastAttentionPause, attentionPause = time.Millisecond, 10 * time.Millisecond
	// yieldPause is the pause after such a heartbeat. It lets runs that the reply has ended give their slots back
	// before the next claim counts the free slots.
	yieldPause = 50 * time.Microsecond
	// claimRefusals is the number of consecutive errors after which the worker stops repeating a
	// claim and uses the next number. Until then the store counts the executions that the claim may
	// have won as running, although no worker runs them.
	claimRefusals = 3
	// manySlots stands for no limit: it is larger than the number of slots of any worker.
	manySlots = 1 << 20
)

// claims sends claims until ctx ends. It repeats a claim with the same number until a reply arrives
// or it gives the number up, and marks these claims as repeats. An empty reply to a repeat does not
// end the number, because an earlier try may still be under way in the server and win executions:
// claims gives the number up, so that these executions are released. If every try of a claim failed,
// claims gives the number up, and the next claim requests a single execution. Each claim that wins
// executions then doubles the number that the next claim may request. So if one execution makes
// every reply that contains it fail, this execution is soon claimed alone, and the others can run.
func (s *session) claims(ctx context.Context) {
	number, slots, repeat := int64(1), 0, false
	refused, most := 0, manySlots
	delays := retry.NewDelays(s.w.o.IDs)
	for ctx.Err() == nil {
		if !repeat {
			slots = min(s.slots(ctx), most)
		}
		reached, turned := s.mailbox.reach()
		reply, err := s.claim(ctx, belay.ClaimRequest{
			Worker: s.id, Number: number, Slots: slots, Wait: claimWait, Repeat: repeat, Messages: reached,
		}, turned)
		switch {
		case err == nil && ctx.Err() != nil:
			repeat = repeat || len(reply.Assignments) > 0 // the worker stops, and gives up the claim after this loop
		case err == nil:
			switch {
			case len(reply.Assignments) > 0:
				s.won(number, reply.Assignments)
				number++
				most = min(2*most, manySlots)
			case repeat:
				s.gaveUp(number)
				number++
			}
			repeat, refused = false, 0
			delays.Reset()
			if reply.Attention {
				s.heartbeatNow(ctx)
			}
		case belay.CodeOf(err) == belay.CodeLeaseLost:
			s.lose(err)
			return
		case slots == 0:
			if s.free() > 0 {
				break // this claim was cancelled because a slot is free; it won no execution
			}
			delays.Wait(ctx, err)
		case isClosed(turned):
			// This claim was cancelled because messages begin to reach the worker, or end to. A repetition could
			// overtake it in the server, and would then wait for other executions than those that this claim wins.
			s.gaveUp(number)
			number, repeat = number+1, false
		case belay.CodeOf(err) == belay.CodeConflict:
			s.w.o.Log.Error("the server refused a claim; the worker abandons the claim", "worker", s.id,
				"number", number, "error", err)
			s.gaveUp(number)
			number, repeat = number+1, false
			delays.Wait(ctx, err)
		case !mayPass(err) && refused >= claimRefusals-1:
			s.w.o.Log.Error("every try of a claim failed; the worker abandons the claim and the executions that it won",
				"worker", s.id, "number", number, "error", err)
			s.gaveUp(number)
			number, repeat, refused, most = number+1, false, 0, 1
			delays.Wait(ctx, err)
		default:
			if repeat = true; !mayPass(err) {
				refused++
			}
			delays.Wait(ctx, err)
		}
	}
	if repeat {
		s.gaveUp(number)
	}
}

// mayPass reports whether a claim that failed with err may succeed when it is repeated, because the executions that it
// won cannot have caused err.
func mayPass(err error) bool {
	code := belay.CodeOf(err)
	return code == belay.CodeUnauthorized || code == belay.CodeForbidden || retry.Transient(err)
}

// slots returns the number of free slots. If no slot is free, it first waits for fullPause.
func (s *session) slots(ctx context.Context) int {
	if n := s.free(); n > 0 {
		return n
	}
	timer := time.NewTimer(fullPause)
	defer timer.Stop()
	for {
		select {
		case <-s.w.freed:
			if n := s.free(); n > 0 {
				return n
			}
			continue // the slot that was freed is already used again
		case <-timer.C:
		case <-ctx.Done():
		}
		return s.free()
	}
}

// claim sends one claim. A claim for 0 slots is cancelled as soon as a slot is free, and every claim when messages
// begin to reach the worker, or end to.
func (s *session) claim(ctx context.Context, r belay.ClaimRequest, turned <-chan struct{}) (belay.ClaimReply, error) {
	ctx, cancel := context.WithTimeout(ctx, claimWait+claimReplyDelay)
	defer cancel()
	if s.w.o.Broker == "" {
		turned = nil
	}
	if r.Slots == 0 || turned != nil {
		freed := s.w.freed
		if r.Slots > 0 {
			freed = nil
		}
		watched := make(chan struct{})
		defer func() { cancel(); <-watched }()
		go func() {
			defer close(watched)
			for r.Slots > 0 || s.free() == 0 {
				select {
				case <-freed:
					continue
				case <-turned:
				case <-ctx.Done():
					return
				}
				break
			}
			cancel()
		}()
	}
	return s.w.b.Claim(ctx, r)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// heartbeatNow sends a heartbeat and waits for its reply. If the last heartbeat that it has sent was a moment ago, it
// first pauses.
func (s *session) heartbeatNow(ctx context.Context) {
	retry.Sleep(ctx, time.Until(s.attendAfter))
	sent, done := time.Now(), make(chan struct{})
	select {
	case s.now <- done:
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
		now := time.Now()
		s.attendAfter = now.Add(min(max(now.Sub(sent), leastAttentionPause), attentionPause))
		retry.Sleep(ctx, yieldPause)
	case <-ctx.Done():
	}
}

// heartbeatSoon sends a heartbeat without waiting for its reply.
func (s *session) heartbeatSoon() {
	select {
	case s.soon <- struct{}{}:
	default:
	}
}
