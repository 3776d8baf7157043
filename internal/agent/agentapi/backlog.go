package agentapi

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

const (
	// After the duration rescan, the backlog reads the list of open jobs from the store again, to
	// find jobs that other servers have stored. If a read takes longer than rescan/scanShare, the
	// next read follows only after scanShare times the duration of that read.
	rescan    = 10 * time.Second
	scanShare = 20
	// recount is the time after which the backlog reads the number of slots from the store again.
	recount = time.Second
)

// backlog is the set of jobs that have not ended. The store decides whether a job has ended: the
// backlog only remembers the ids of jobs that were open at some time, and reads the states of these
// jobs from the store whenever it counts. So a count costs one read for each open job, and not a
// scan of the whole table.
type backlog struct {
	b   belay.Client
	now func() time.Time
	own int // the slots of this server

	mu      sync.Mutex
	open    map[belay.ExecutionID]struct{}
	taken   int // number of places reserved for jobs that are being stored
	scanned time.Time
	every   time.Duration
	slots   int
	counted time.Time
}

// counts are the numbers of running jobs, waiting jobs and slots.
type counts struct{ active, queued, slots int }

func (c counts) total() int { return c.active + c.queued }

// place reserves a place in the queue for a job that the caller is about to store. It refuses if
// depth jobs are already open or being stored. The caller must then call stored with the id of the
// stored job, or with the zero id if it stored no job.
func (l *backlog) place(ctx context.Context, depth int) (stored func(belay.ExecutionID), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.scanLocked(ctx); err != nil {
		return nil, err
	}
	if len(l.open)+l.taken >= depth {
		have, err := l.countLocked(ctx)
		if err != nil {
			return nil, err
		}
		if have.total()+l.taken >= depth {
			return nil, &belay.Error{
				Code: belay.CodeQueueFull, RetryAfter: retryAfter,
				Message: fmt.Sprintf("%d jobs run and %d wait; the limit is %d", have.active,
					have.queued+l.taken, depth),
			}
		}
	}
	l.taken++
	return func(id belay.ExecutionID) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.taken--
		if id != (belay.ExecutionID{}) {
			l.open[id] = struct{}{}
		}
	}, nil
}

// retryAfter is the value of Retry-After when the queue is full.
const retryAfter = 5 * time.Second

// count counts the running jobs, the waiting jobs and the slots.
func (l *backlog) count(ctx context.Context) (counts, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.scanLocked(ctx); err != nil {
		return counts{}, err
	}
	c, err := l.countLocked(ctx)
	if err != nil {
		return c, err
	}
	now := l.now()
	if l.counted.IsZero() || !fresh(l.counted, now, recount) {
		workers, err := l.b.Workers(ctx)
		if err != nil {
			return c, fmt.Errorf("count slots: %w", err)
		}
		l.slots, l.counted = max(l.own, slotsOf(workers)), now
	}
	c.slots = l.slots
	return c, nil
}

// fresh reports whether data that was read at the time at is younger than most. If the clock was
// set back after the read, fresh returns false.
func fresh(at, now time.Time, most time.Duration) bool {
	age := now.Sub(at)
	return age >= 0 && age < most
}

func (l *backlog) countLocked(ctx context.Context) (counts, error) {
	var c counts
	for id := range l.open {
		x, err := l.b.Await(ctx, id, 0)
		switch {
		case belay.CodeOf(err) == belay.CodeNotFound || err == nil && x.State.Terminal():
			delete(l.open, id)
		case err != nil:
			return c, fmt.Errorf("count jobs: %w", err)
		case x.State == belay.Running:
			c.active++
		default:
			c.queued++
		}
	}
	return c, nil
}

// unended are the states of a job that has not ended.
var unended = belay.ActiveStates()

// scanLocked reads the ids of open jobs from the store, unless the last read is recent enough. The
// caller must have locked mu.
func (l *backlog) scanLocked(ctx context.Context) error {
	now := l.now()
	if l.open != nil && fresh(l.scanned, now, max(rescan, l.every)) {
		return nil
	}
	if l.open != nil && l.taken > 0 && fresh(l.scanned, now, 2*max(rescan, l.every)) {
		return nil // while a job is being stored, a read could return the job too, and count it twice
	}
	if l.open == nil {
		l.open = make(map[belay.ExecutionID]struct{})
	}
	f := belay.Filter{Workflow: agent.Prompted, States: unended, Children: true, Limit: 1000}
	for {
		page, err := l.b.Executions(ctx, f)
		if err != nil {
			return fmt.Errorf("look for open jobs: %w", err)
		}
		for i := range page.Executions {
			l.open[page.Executions[i].ID] = struct{}{}
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			l.scanned, l.every = now, scanShare*l.now().Sub(now)
			return nil
		}
	}
}
