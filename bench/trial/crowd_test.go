package trial

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// service simulates a system: it accepts executions while at most s.most of them are unfinished,
// and ends s.rate executions a second.
type service struct {
	crowd      *Crowd
	rate, most int
	mu         sync.Mutex
	open       []int
	during     atomic.Int64 // how many calls came from producers that had to wait
	quiet      [Submitters]time.Time
}

func (s *service) submit(_ context.Context, producer, first, rows int) (int, time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.quiet[producer]) {
		s.during.Add(1)
	}
	if len(s.open) > s.most {
		s.quiet[producer] = time.Now().Add(time.Second)
		return 0, time.Second, nil
	}
	for i := range rows {
		s.open = append(s.open, first+i)
	}
	return rows, 0, nil
}

func (s *service) work(ctx context.Context) {
	for tick := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil; <-tick.C {
		s.mu.Lock()
		n := min(len(s.open), s.rate/100)
		for _, i := range s.open[:n] {
			s.crowd.Begin(i)
		}
		s.open = s.open[n:]
		s.mu.Unlock()
		s.crowd.End(n)
	}
}

// Rule: a crowd finds the best rate, submits at ten times that rate, and counts the accepted,
// refused and dropped executions. Producers wait as long as the answers say.
func TestACrowdOffersTenTimesTheBest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{rate: 1000, most: 3000}
		s.crowd = NewCrowd(s.submit)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { s.work(ctx) })
		got, err := s.crowd.Run(ctx, Request{For: 4 * time.Second})
		stop()
		all.Wait()
		if err != nil {
			t.Fatal(err)
		}
		within := func(what string, v, least, most float64) {
			t.Helper()
			if v < least || v > most {
				t.Errorf("%s is %v, want %v to %v", what, v, least, most)
			}
		}
		v := got.Values
		within("the best rate", v["best_per_s"], 950, 1050)
		within("the offered rate", v["offered_per_s"], 9500, 10500)
		within("the kept rate", v["kept"], .95, 1.05)
		within("the accepted rate", v["accepted_per_s"], 950, 1400)
		within("the refused share", v["refused"], .85, .95)
		within("the wait", got.Times.P50, 1000, 5000)
		if s.during.Load() > 0 {
			t.Errorf("%d calls of producers that had to wait", s.during.Load())
		}
	})
}

// Rule: a producer submits without waiting for answers, until 300 of its calls (the calls of three
// seconds) have no answer.
func TestProducersDoNotWaitForAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		answer := make(chan struct{})
		c := NewCrowd(func(_ context.Context, _, _, rows int) (int, time.Duration, error) {
			calls.Add(1)
			<-answer
			return rows, 0, nil
		})
		if err := c.flood(t.Context(), 1000*Submitters, 10*time.Second); err != nil {
			t.Error(err)
		}
		if got := calls.Load(); got != maxUnanswered*Submitters {
			t.Errorf("%d calls, want %d", got, maxUnanswered*Submitters)
		}
		close(answer)
		c.calls.Wait()
		if want := int64(1000 * Submitters * 10); c.offered.Load() != want || c.Accepted() != want*3/10 {
			t.Errorf("%d offered, %d accepted", c.offered.Load(), c.Accepted())
		}
	})
}
