package engine

import (
	"context"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// limitedLanes remembers the lanes (groups of executions that the same workers may claim) with a
// due execution whose queue or workflow is shut or has a limit or a rate.
//
// In such a lane an execution may be due for long although workers take all executions that the
// gate lets through. The store does not record at which times the gate was open. So the wait of an
// execution for a worker begins when the engine first sees that no execution of the lane has been
// due for longer, and it begins anew whenever the engine sees the gate shut.
type limitedLanes struct {
	mu    sync.Mutex
	lanes map[machine.LaneID]limitedHead
}

// limitedHead is the execution of a lane that has been due for longest, and the time at which its
// wait for a worker began.
type limitedHead struct {
	execution belay.ExecutionID
	since     machine.Time
}

// maxDueLanes is the largest number of lanes that oldestDue reads: the lanes whose executions have been
// due for longest.
const maxDueLanes = 1000

// oldestDue returns the longest time for which an execution has been due that workers may claim and
// no worker has claimed; 0 if there is no such execution. The time for which a gate lets the
// execution wait does not count. So oldestDue leaves out executions that wait at a gate that they
// name, and executions whose queue or workflow has a shut gate. If that gate is open now, the wait
// begins at the earliest when the gate was last changed, such as by the end of a pause.
func (r *Reader) oldestDue(ctx context.Context) (time.Duration, error) {
	found, err := r.store.Query(ctx, store.Query{Of: store.DueLanes, Limit: maxDueLanes})
	if err != nil {
		return 0, err
	}
	gates, err := r.laneGates(ctx, found.Heads)
	if err != nil {
		return 0, err
	}
	now := r.store.Now()
	oldest, limited := now, make(map[machine.LaneID]limitedHead)
	r.limited.mu.Lock()
	defer r.limited.mu.Unlock()
	for _, h := range found.Heads {
		own, there := gates[h.Lane]
		if gates != nil && !there {
			continue // all due executions of the lane have started meanwhile
		}
		since, watch, shut := h.At, false, false
		for _, g := range own {
			since = max(since, machine.At(g.UpdatedAt))
			watch, shut = watch || !g.Open || g.Limit != nil || g.Rate != nil, shut || !g.Open
		}
		if watch {
			head, there := r.limited.lanes[h.Lane]
			if shut || !there || head.execution != h.Execution {
				head = limitedHead{h.Execution, now}
			}
			limited[h.Lane], since = head, max(since, head.since)
		}
		oldest = min(oldest, since)
	}
	r.limited.lanes = limited
	return now.Sub(oldest), nil
}

// laneGates reads the gates of the queue and the workflow of each lane, without the gates that have no
// row. It leaves out lanes without a ready execution. If there are no such gates at all, it returns nil.
func (r *Reader) laneGates(
	ctx context.Context, heads []store.LaneHead,
) (map[machine.LaneID][]belay.GateInfo, error) {
	set := make(map[belay.GateID]belay.GateInfo)
	for _, kind := range []string{belay.GateQueue, belay.GateWorkflow} {
		for f := (belay.GateFilter{Kind: kind, Limit: 1000}); len(heads) > 0; {
			page, err := r.Gates(ctx, f)
			if err != nil {
				return nil, err
			}
			for _, g := range page.Gates {
				set[g.ID] = g
			}
			if f.Cursor = page.Next; f.Cursor == "" {
				break
			}
		}
	}
	if len(set) == 0 {
		return nil, nil
	}
	ids := make([]machine.LaneID, len(heads))
	for i, h := range heads {
		ids[i] = h.Lane
	}
	lanes, err := r.store.Lanes(ctx, ids)
	if err != nil {
		return nil, err
	}
	counted := make(map[belay.GateID]bool)
	gates := make(map[machine.LaneID][]belay.GateInfo)
	for _, l := range lanes {
		gates[l.ID] = nil
		for _, id := range []belay.GateID{
			belay.Gate(belay.GateQueue, l.Queue), belay.Gate(belay.GateWorkflow, l.Workflow),
		} {
			g, there := set[id]
			if !there {
				continue
			}
			if g.Limit != nil && !counted[id] { // a list of gates leaves out the numbers of taken places
				d, err := r.Gate(ctx, id)
				if err != nil {
					return nil, err
				}
				g, counted[id] = d.GateInfo, true
				set[id] = g
			}
			gates[l.ID] = append(gates[l.ID], g)
		}
	}
	return gates, nil
}
