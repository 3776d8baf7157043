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
	// rescan is how old the list of open jobs may be before it is read again, for
	// those that others have submitted; more where reading it takes more than one
	// part in share of that.
	rescan = 10 * time.Second
	share  = 20
	// recount is how old the number of slots may be.
	recount = time.Second
)

// backlog knows which jobs have not ended. The store is the truth: the backlog
// holds ids, all that were open at some time, and asks the store which of them
// still are whenever that matters. So counting costs a read for each open job and
// not one of the whole table.
type backlog struct {
	b   belay.Client
	now func() time.Time
	own int // the slots of this server

	mu      sync.Mutex
	open    map[belay.ExecutionID]struct{}
	taken   int // places of jobs that are being stored
	scanned time.Time
	every   time.Duration
	slots   int
	counted time.Time
}

// counts are numbers of jobs, and of slots.
type counts struct{ active, queued, slots int }

func (c counts) total() int { return c.active + c.queued }

// place takes a place for a job if there is one: fewer than depth jobs are open, or are
// being stored. The function that it gives is called with the id of what was stored, zero
// for nothing.
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
				Message: fmt.Sprintf("%d jobs run and %d wait; no more than %d are taken", have.active,
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

// retryAfter is when whoever found the queue full may ask again.
const retryAfter = 5 * time.Second

// count counts the jobs that run, those that wait, and the slots.
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

// fresh reports whether what was known at a time is still good. A clock that was set
// back makes it none.
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

// scanLocked reads which jobs are open, unless that was done of late.
func (l *backlog) scanLocked(ctx context.Context) error {
	now := l.now()
	if l.open != nil && fresh(l.scanned, now, max(rescan, l.every)) {
		return nil
	}
	if l.open != nil && l.taken > 0 && fresh(l.scanned, now, 2*max(rescan, l.every)) {
		return nil // what is just being stored would be counted twice
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
			l.scanned, l.every = now, share*l.now().Sub(now)
			return nil
		}
	}
}
