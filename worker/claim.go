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
)

// claims claims until ctx ends. A number is used again until it has won
// something or was given up, and marked as a repeat while its reply is missing.
func (s *session) claims(ctx context.Context) {
	number, slots, repeat := int64(1), 0, false
	b := backoff{w: s.w}
	for ctx.Err() == nil {
		if !repeat {
			slots = s.slots(ctx)
		}
		reply, err := s.claim(ctx, belay.ClaimRequest{Worker: s.id, Number: number, Slots: slots, Wait: claimWait, Repeat: repeat})
		switch {
		case err == nil && ctx.Err() != nil:
			repeat = len(reply.Assignments) > 0 // came too late: given up below
		case err == nil:
			b.n, repeat = 0, false
			if len(reply.Assignments) > 0 {
				s.won(number, reply.Assignments)
				number++
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
			s.w.o.Log.Error("a claim was refused; its number is given up", "worker", s.id, "number", number, "error", err)
			s.gaveUp(number)
			number, repeat = number+1, false
			b.wait(ctx)
		default:
			repeat = true
			b.wait(ctx)
		}
	}
	if repeat {
		s.gaveUp(number)
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
