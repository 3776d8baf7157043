package worker

import (
	"context"
	"time"

	"github.com/belaydev/belay"
)

const (
	// claimWait is how long a claim waits for work in the store.
	claimWait = 20 * time.Second
	// claimPatience is how much longer its reply may take.
	claimPatience = 10 * time.Second
	// fullPause is how long a full worker waits for a free slot before it
	// opens a claim only to hear of what its heartbeat would be told.
	fullPause = 50 * time.Millisecond
	// attentionPause keeps a store that always wants attention from making a
	// busy loop of it.
	attentionPause = 10 * time.Millisecond
	// claimRefusals is how often the answer to a claim is refused before its number is
	// given up: what it won would be running with nobody running it.
	claimRefusals = 3
	// manySlots is more than any worker has.
	manySlots = 1 << 20
)

// claims claims until ctx ends. A number is used again until it has won
// something or was given up, and marked as a repeat while its reply is missing. After
// one that was given up it claims one execution, then twice as many each time: so what
// cannot be answered leaves the others alone.
func (s *session) claims(ctx context.Context) {
	number, slots, repeat := int64(1), 0, false
	refused, most := 0, manySlots
	b := backoff{w: s.w}
	for ctx.Err() == nil {
		if !repeat {
			slots = min(s.slots(ctx), most)
		}
		reply, err := s.claim(ctx, belay.ClaimRequest{
			Worker: s.id, Number: number, Slots: slots, Wait: claimWait, Repeat: repeat,
		})
		switch {
		case err == nil && ctx.Err() != nil:
			repeat = len(reply.Assignments) > 0 // came too late: given up below
		case err == nil:
			b.n, repeat, refused = 0, false, 0
			if len(reply.Assignments) > 0 {
				s.won(number, reply.Assignments)
				number++
				most = min(2*most, manySlots)
			}
			if reply.Attention {
				s.heartbeatNow(ctx)
			}
		case belay.CodeOf(err) == belay.CodeLeaseLost:
			s.lose(err)
			return
		case slots == 0:
			if !s.w.full() {
				break // ended to make room for a real one; nothing was won
			}
			b.wait(ctx)
		case belay.CodeOf(err) == belay.CodeConflict:
			s.w.o.Log.Error("a claim was refused; its number is given up", "worker", s.id, "number", number, "error",
				err)
			s.gaveUp(number)
			number, repeat = number+1, false
			b.wait(ctx)
		case !passes(err) && refused >= claimRefusals-1:
			s.w.o.Log.Error("the answer to a claim was refused each time; its number is given up, and what it won",
				"worker", s.id, "number", number, "error", err)
			s.gaveUp(number)
			number, repeat, refused, most = number+1, false, 0, 1
			b.wait(ctx)
		default:
			if repeat = true; !passes(err) {
				refused++
			}
			b.wait(ctx)
		}
	}
	if repeat {
		s.gaveUp(number)
	}
}

// passes reports whether an error says nothing about what a claim won: asked again the
// claim may be answered.
func passes(err error) bool {
	switch belay.CodeOf(err) {
	case belay.CodeUnavailable, belay.CodeRateLimited, belay.CodeUnauthorized, belay.CodeForbidden:
		return true
	default:
		return false
	}
}

// slots are the free ones. A full worker waits a moment for one.
func (s *session) slots(ctx context.Context) int {
	if n := s.w.free(); n > 0 {
		return n
	}
	timer := time.NewTimer(fullPause)
	defer timer.Stop()
	for {
		select {
		case <-s.w.freed:
			if n := s.w.free(); n > 0 {
				return n
			}
			continue // it was freed and taken long ago
		case <-timer.C:
		case <-ctx.Done():
		}
		return s.w.free()
	}
}

// claim makes one claim. One without slots ends as soon as a slot is free.
func (s *session) claim(ctx context.Context, r belay.ClaimRequest) (belay.ClaimReply, error) {
	ctx, cancel := context.WithTimeout(ctx, claimWait+claimPatience)
	defer cancel()
	if r.Slots == 0 {
		watched := make(chan struct{})
		defer func() { cancel(); <-watched }()
		go func() {
			defer close(watched)
			for s.w.full() {
				select {
				case <-s.w.freed:
				case <-ctx.Done():
					return
				}
			}
			cancel()
		}()
	}
	return s.w.b.Claim(ctx, r)
}

// heartbeatNow sends a heartbeat and waits for its end.
func (s *session) heartbeatNow(ctx context.Context) {
	done := make(chan struct{})
	select {
	case s.now <- done:
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
		pause(ctx, attentionPause)
	case <-ctx.Done():
	}
}

// heartbeatSoon sends a heartbeat without waiting for it.
func (s *session) heartbeatSoon() {
	select {
	case s.soon <- struct{}{}:
	default:
	}
}
