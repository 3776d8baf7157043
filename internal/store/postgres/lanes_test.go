package postgres

import (
	"context"
	"testing"
	"time"
)

// A failed read of the ready lanes (groups of executions that the same workers may claim) is not
// reused: the next call reads again.
func TestAFailedLookIsNotReused(t *testing.T) {
	s := testStore(t, Options{Writers: 1, Readers: 1, LongLook: time.Nanosecond})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.ReadyLanes(ctx); err == nil {
		t.Fatal("a look in a context that has ended did not fail")
	}
	if !s.laneCache.again.IsZero() {
		t.Errorf("its result is reused for %s", time.Until(s.laneCache.again))
	}
	if _, err := s.ReadyLanes(t.Context()); err != nil || s.laneCache.again.IsZero() {
		t.Errorf("the result of a long look is not reused (%v)", err)
	}
}
