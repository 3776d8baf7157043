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
// begins at the earliest when the gate was last changed, such as by the end of a pause. set has the gates of
// queues and workflows. queues has for each queue with such an execution its longest time.
func (r *Reader) oldestDue(
	ctx context.Context, set map[belay.GateID]belay.GateInfo,
) (longest time.Duration, queues map[string]time.Duration, err error) {
	found, err := r.store.Query(ctx, store.Query{Of: store.DueLanes, Limit: maxDueLanes})
	if err != nil {
		return 0, nil, err
	}
	lanes, err := r.dueLanes(ctx, found.Heads, set)
	if err != nil {
		return 0, nil, err
	}
	now := r.store.Now()
	oldest, limited := now, make(map[machine.LaneID]limitedHead)
	queues = make(map[string]time.Duration)
	r.limited.mu.Lock()
	defer r.limited.mu.Unlock()
	for _, h := range found.Heads {
		lane, there := lanes[h.Lane]
		if !there {
			continue // all due executions of the lane have started meanwhile
		}
		since, watch, shut := h.At, false, false
		for _, g := range lane.gates {
			since = max(since, machine.At(g.UpdatedAt))
			watch, shut = watch || !g.Open || g.Limit != nil || g.Rate != nil, shut || !g.Open
		}
		if watch {
			head, seen := r.limited.lanes[h.Lane]
			if shut || !seen || head.execution != h.Execution {
				head = limitedHead{h.Execution, now}
			}
			limited[h.Lane], since = head, max(since, head.since)
		}
		oldest = min(oldest, since)
		queues[lane.queue] = max(queues[lane.queue], now.Sub(since))
	}
	r.limited.lanes = limited
	return now.Sub(oldest), queues, nil
}

// dueLane is a lane with its queue, and with the gates of its queue and its workflow that have a row.
type dueLane struct {
	queue string
	gates []belay.GateInfo
}

// dueLanes describes lanes. It leaves out lanes without a ready execution.
func (r *Reader) dueLanes(
	ctx context.Context, heads []store.LaneHead, set map[belay.GateID]belay.GateInfo,
) (map[machine.LaneID]dueLane, error) {
	if len(heads) == 0 {
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
	all := make(map[machine.LaneID]dueLane)
	for _, l := range lanes {
		due := dueLane{queue: l.Queue}
		for _, id := range []belay.GateID{
			belay.Gate(belay.GateQueue, l.Queue), belay.Gate(belay.GateWorkflow, l.Workflow),
		} {
			g, there := set[id]
			if !there {
				continue
			}
			if g.Limit != nil && !counted[id] { // the tally has counted only the gates with the most taken places
				d, err := r.Gate(ctx, id)
				if err != nil {
					return nil, err
				}
				g, counted[id] = d.GateInfo, true
				set[id] = g
			}
			due.gates = append(due.gates, g)
		}
		all[l.ID] = due
	}
	return all, nil
}
