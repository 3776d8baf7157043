package postgres

import (
	"context"
	"testing"
	"time"
)

// A look for the ready lanes that failed says nothing of them: the next one looks anew.
func TestALookThatFailedIsNotRemembered(t *testing.T) {
	s := testStore(t, Options{Writers: 1, Readers: 1, LongLook: time.Nanosecond})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.ReadyLanes(ctx); err == nil {
		t.Fatal("a look in a context that has ended did not fail")
	}
	if !s.leaps.again.IsZero() {
		t.Errorf("its answer is given again for %s", time.Until(s.leaps.again))
	}
	if _, err := s.ReadyLanes(t.Context()); err != nil || s.leaps.again.IsZero() {
		t.Errorf("a long look is not remembered (%v)", err)
	}
}
