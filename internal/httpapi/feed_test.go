package httpapi

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
)

// scripted answers the reads of a feed with prepared answers, one after the other; a read without a
// prepared answer waits.
type scripted struct {
	belay.Client
	events     chan func() ([]belay.Event, error)
	executions chan func() (belay.Execution, error)
	asked      chan belay.EventQuery // the queries, if the test reads them
}

func script() *scripted {
	return &scripted{
		events:     make(chan func() ([]belay.Event, error), 8),
		executions: make(chan func() (belay.Execution, error), 8),
		asked:      make(chan belay.EventQuery, 8),
	}
}

func (s *scripted) Events(ctx context.Context, q belay.EventQuery) ([]belay.Event, error) {
	select {
	case s.asked <- q:
	default:
	}
	select {
	case answer := <-s.events:
		return answer()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *scripted) Execution(context.Context, belay.ExecutionID) (belay.Execution, error) {
	return (<-s.executions)()
}

// next waits for frames after a seq, or for the error that ends the feed.
func (fd *feed) next(ctx context.Context, g *group, seq int64) ([]frame, error) {
	for {
		frames, next, _, err := fd.after(seq, g)
		if err != nil || len(frames) > 0 {
			return frames, err
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// When a feed fails, all of its watchers get the error. The next watcher gets a new feed, even if
// the earlier watchers have not left the failed feed yet.
func TestFeedThatFailedIsNotJoined(t *testing.T) {
	b := script()
	f := feeds{backend: b, open: make(map[feedKey]*feed)}
	b.events <- func() ([]belay.Event, error) { return nil, errors.New("a damaged row") }
	old, g, leave := f.watch(feedKey{}, 0)
	defer leave()
	if _, err := old.next(t.Context(), g, 0); err == nil {
		t.Fatal("the first watcher got no error")
	}
	b.events <- func() ([]belay.Event, error) { return []belay.Event{{Seq: 1, Kind: "submitted"}}, nil }
	fd, g, leaveNew := f.watch(feedKey{}, 0)
	defer leaveNew()
	if frames, err := fd.next(t.Context(), g, 0); err != nil || len(frames) != 1 {
		t.Errorf("%d frames, %v, for the watcher after the failure", len(frames), err)
	}
}

// If the store is unavailable for a moment, no stream ends, no matter whether the read of the
// events or the read of the execution fails.
func TestFeedRidesOutAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := &belay.Error{Code: belay.CodeUnavailable, Message: "away"}
		b := script()
		last := func() ([]belay.Event, error) { return []belay.Event{{Seq: 1, Kind: "cancelled", Final: true}}, nil }
		b.events <- func() ([]belay.Event, error) { return nil, away }
		b.events <- last
		b.events <- last
		b.executions <- func() (belay.Execution, error) { return belay.Execution{}, away }
		b.executions <- func() (belay.Execution, error) { return belay.Execution{State: belay.Cancelled, Seq: 1}, nil }
		f := feeds{backend: b, open: make(map[feedKey]*feed)}
		fd, g, leave := f.watch(feedKey{}, 0)
		defer leave()
		if frames, err := fd.next(t.Context(), g, 0); err != nil || len(frames) != 1 || frames[0].end == nil {
			t.Errorf("frames %+v, %v; want the last event and the end", frames, err)
		}
	})
}

// However many watchers an execution has, all are woken well within a second, the time in which
// guarantee G6 promises that they see an event.
func TestManyWatchersAreWokenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := script()
		f := feeds{backend: b, open: make(map[feedKey]*feed)}
		var fd *feed
		groups := make(map[*group]bool)
		var left []func()
		for range 20_000 {
			joined, g, leave := f.watch(feedKey{}, 0)
			fd, groups[g] = joined, true
			left = append(left, leave)
		}
		defer func() {
			for _, leave := range left {
				leave()
			}
		}()
		var waits []<-chan struct{}
		for g := range groups {
			_, next, _, _ := fd.after(0, g)
			waits = append(waits, next)
		}
		began := time.Now()
		b.events <- func() ([]belay.Event, error) { return []belay.Event{{Seq: 1, Kind: "submitted"}}, nil }
		for _, next := range waits {
			<-next
		}
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("%d groups were woken in %s", len(waits), took)
		}
	})
}

// A feed with data reads few events at a time, because a history may have a thousand checkpoints of
// a megabyte.
func TestFeedOfDataReadsLittleAtATime(t *testing.T) {
	b := script()
	f := feeds{backend: b, open: make(map[feedKey]*feed)}
	_, _, leave := f.watch(feedKey{data: true}, 0)
	defer leave()
	if q := <-b.asked; q.Limit <= 0 || q.Limit > 32 {
		t.Errorf("it asked for %d events with their data", q.Limit)
	}
}
