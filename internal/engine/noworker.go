package engine

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// understaffed finds the executions that no connected worker can take and whose policy lets them
// fail in this case (OnNoWorker). It looks at the lanes of these executions (the groups that the
// same workers may claim) when an execution becomes due, when a session ends or is drained, and
// otherwise as often as the sweeper polls.
type understaffed struct {
	engine *Engine

	mu sync.Mutex
	at machine.Time // when to look next; 0 means now
}

// neededLanes is the largest number of lanes that one look reads.
const neededLanes = 1000

// observe plans a look if the changes of a batch require it, and returns its time, or 0 if they
// require none.
func (u *understaffed) observe(b *batch) machine.Time {
	at := machine.Time(0)
	for _, e := range b.changes.Executions {
		if e.NeedsWorker() && (at == 0 || e.Ready() < at) {
			at = e.Ready()
		}
	}
	for _, w := range b.changes.Workers {
		if !w.Spec.External && (w.State.Ended() || w.State == belay.WorkerDraining) {
			at = b.rows.Now
		}
	}
	if at != 0 {
		u.sooner(at)
	}
	return at
}

// sooner makes the next look happen no later than at.
func (u *understaffed) sooner(at machine.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at = min(u.at, at)
}

// next is the time of the next look.
func (u *understaffed) next() machine.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.at
}

// look returns a command for each execution, up to sweepLimit, that fails now because no connected
// worker can take it. It returns nothing before its time.
func (u *understaffed) look(ctx context.Context, now machine.Time) ([]machine.Command, error) {
	u.mu.Lock()
	if now < u.at {
		u.mu.Unlock()
		return nil, nil
	}
	u.at = math.MaxInt64 // changes during this look set the time of the next look
	u.mu.Unlock()
	commands, next, err := u.find(ctx, now)
	if err != nil {
		next = now
	}
	u.sooner(next)
	return commands, err
}

func (u *understaffed) find(ctx context.Context, now machine.Time) ([]machine.Command, machine.Time, error) {
	s, next := u.engine.store, now.Add(u.engine.opt.SlowPoll)
	found, err := s.Query(ctx, store.Query{Of: store.NeedingLanes, Limit: neededLanes})
	if err != nil || len(found.Lanes) == 0 {
		return nil, next, err
	}
	var due []machine.LaneID
	for _, l := range found.Lanes {
		if l.At <= now {
			due = append(due, l.Lane)
		} else {
			next = min(next, l.At)
		}
	}
	lanes, err := s.Lanes(ctx, due)
	if err != nil {
		return nil, next, err
	}
	if lanes, err = u.untaken(ctx, lanes); err != nil || len(lanes) == 0 {
		return nil, next, err
	}
	byLane := make(map[machine.LaneID][]machine.NoWorker)
	for _, l := range lanes {
		some, err := s.Query(ctx, store.Query{Of: store.Needing, Lane: l.ID, Limit: sweepLimit})
		if err != nil {
			return nil, next, err
		}
		byLane[l.ID] = some.Needing
	}
	// machine.NoWorker requires that the sessions are read after the executions.
	if lanes, err = u.untaken(ctx, lanes); err != nil {
		return nil, next, err
	}
	var commands []machine.Command
	for _, l := range lanes {
		for _, c := range byLane[l.ID] {
			if len(commands) == sweepLimit {
				return commands, now, nil
			}
			commands = append(commands, &c)
		}
	}
	return commands, next, nil
}

// untaken returns the lanes from which no connected worker may claim.
func (u *understaffed) untaken(ctx context.Context, lanes []machine.Lane) ([]machine.Lane, error) {
	if len(lanes) == 0 {
		return nil, nil
	}
	workers, err := u.engine.store.Workers(ctx, store.WorkerQuery{Living: true})
	if err != nil {
		return nil, err
	}
	var left []machine.Lane
	for _, l := range lanes {
		if !slices.ContainsFunc(workers, func(w store.WorkerRow) bool { return mayTake(w.Worker, l) }) {
			left = append(left, l)
		}
	}
	return left, nil
}

// mayTake reports whether a worker is connected and may claim from the lane now or later: it is not
// draining. A session that has expired counts until the engine has ended it, because a heartbeat may
// have arrived in time.
func mayTake(w *machine.Worker, l machine.Lane) bool {
	return !w.State.Ended() && w.State != belay.WorkerDraining && !w.Spec.External && l.Takes(w.Spec)
}
