package dispatch_test

import (
	"math/rand/v2"
	"testing"
	"time"
)

// An execution that arrives while its worker connects starts at once.
func TestWorkersBegin(t *testing.T) {
	t.Parallel()
	s := newSite(t, 0)
	for round := range 10 {
		ran := s.hire(s.options.URL)
		for range 4 {
			<-time.After(time.Duration(rand.IntN(15)) * time.Millisecond)
			id, began := s.submit(), time.Now()
			select {
			case <-ran:
			case <-time.After(2 * time.Second):
				x, _ := s.engine.Detail(t.Context(), id)
				t.Fatalf("round %d: not run after %s; it is %s: %+v; %+v", round, time.Since(began), x.State, x.Reason,
					s.post.Counters())
			}
		}
		all, _ := s.engine.Workers(t.Context())
		for _, w := range all {
			if !w.State.Ended() {
				_ = s.engine.Drain(t.Context(), w.ID)
			}
		}
		s.await("the end", func() bool {
			all, _ := s.engine.Workers(t.Context())
			for _, w := range all {
				if !w.State.Ended() {
					return false
				}
			}
			return true
		})
	}
}
