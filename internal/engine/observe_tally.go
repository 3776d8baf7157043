package engine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// Tally counts the work and the workers, for metrics.
type Tally struct {
	store.Tally
	// Overdue counts executions that have exceeded a time limit, or whose owner's session has
	// ended, and that no engine has handled yet. While an engine runs, such executions exist only
	// for moments. Tally reads about overdueLimit of them at most.
	Overdue map[belay.State]int64
	// OldestDue is the longest time for which an execution has been due that workers may claim and
	// no worker has claimed; 0 if there is no such execution. See Reader.oldestDue.
	OldestDue time.Duration
	// Waits has for each queue that has such an execution the longest of these times.
	Waits map[string]time.Duration
	// Gates are the gates of store.Tally.Gates, then shut gates, then others, up to store.MaxTallied names. Targets
	// are as many targets with their circuit breakers; those that are not closed come first.
	Gates, Targets []GateTally
}

// GateTally is a gate with its counts. If Known is false, it is not among the gates that the Tally has read, and only
// the counts are set.
type GateTally struct {
	store.GateLoad
	Known, Open bool
	Max         int    // the limit; 0 if the gate has none
	Breaker     string // the state of the circuit breaker; empty if the gate has none
}

// gatesRead is the largest number of gates of one kind that a Tally reads. Queues and workflows have no such bound,
// because only an operator makes their gates.
const gatesRead = 1000

// overdueLimit is the largest number of overdue executions that Tally reads of each kind.
const overdueLimit = 200

// Tally counts the work. Its cost grows with the amount of work, so it should not be called every
// second.
func (r *Reader) Tally(ctx context.Context) (Tally, error) {
	t := Tally{Overdue: make(map[belay.State]int64)}
	var err error
	if t.Tally, err = r.store.Tally(ctx); err != nil {
		return t, err
	}
	gates, err := r.tallyGates(ctx, &t)
	if err != nil {
		return t, err
	}
	if err = r.overdue(ctx, &t); err != nil {
		return t, err
	}
	t.OldestDue, t.Waits, err = r.oldestDue(ctx, gates)
	return t, err
}

// tallyGates describes the gates of a tally. It returns the gates of queues and workflows.
func (r *Reader) tallyGates(ctx context.Context, t *Tally) (map[belay.GateID]belay.GateInfo, error) {
	counts := make(map[belay.GateID]store.GateLoad, len(t.Tally.Gates))
	for _, g := range t.Tally.Gates {
		counts[g.Gate] = g
	}
	lanes, rest := make(map[belay.GateID]belay.GateInfo), make(map[belay.GateID]GateTally)
	for _, kind := range []string{
		belay.GateQueue, belay.GateWorkflow, belay.GateLimit, belay.GateRate, belay.GateResource, belay.GateTarget,
	} {
		all, err := r.gatesOf(ctx, kind, counts)
		if err != nil {
			return nil, err
		}
		for _, g := range all {
			if kind == belay.GateQueue || kind == belay.GateWorkflow {
				lanes[g.ID] = g
			}
			is := GateTally{GateLoad: store.GateLoad{Gate: g.ID}, Known: true, Open: g.Open}
			if g.Limit != nil {
				is.Max = g.Limit.Max
			}
			if g.Breaker != nil {
				is.Breaker = g.Breaker.State
			}
			if kind == belay.GateTarget {
				t.Targets = append(t.Targets, is)
			}
			rest[g.ID] = is
		}
	}
	t.Gates = nil
	for _, load := range t.Tally.Gates {
		g := rest[load.Gate]
		delete(rest, load.Gate)
		g.GateLoad = load
		t.Gates = append(t.Gates, g)
	}
	t.Gates = append(t.Gates, shutFirst(slices.Collect(maps.Values(rest)), store.MaxTallied-len(t.Gates))...)
	t.Targets = shutFirst(t.Targets, store.MaxTallied)
	return lanes, nil
}

// gatesOf lists the gates of a kind that have a row.
func (r *Reader) gatesOf(
	ctx context.Context, kind string, counts map[belay.GateID]store.GateLoad,
) (all []belay.GateInfo, err error) {
	now := r.store.Now()
	for q := (store.Query{Of: store.Objects, Kind: machine.GateObject, After: kind + ":", Limit: gatesRead}); ; {
		found, err := r.store.Query(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, o := range found.Objects {
			id := belay.GateID(o.Name)
			if id.Kind() != kind {
				return all, nil
			}
			load := counts[id]
			g, err := machine.GateView(id, o, &machine.GateCount{Held: int(load.Held), Line: int(load.Waiting)}, now)
			if err != nil {
				return nil, err
			}
			all = append(all, g)
		}
		q.After = found.Next
		if q.After == "" || kind != belay.GateQueue && kind != belay.GateWorkflow && len(all) >= gatesRead {
			return all, nil
		}
	}
}

// shutFirst returns the first gates, up to a number: the shut ones before the others, each in the order of their ids.
func shutFirst(all []GateTally, most int) []GateTally {
	slices.SortFunc(all, func(a, b GateTally) int {
		if a.Open != b.Open {
			if b.Open {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Gate, b.Gate)
	})
	return all[:min(len(all), max(0, most))]
}

func (r *Reader) overdue(ctx context.Context, t *Tally) error {
	due, err := r.store.Due(ctx, overdueLimit)
	if err != nil {
		return err
	}
	t.Overdue[belay.Running] += int64(len(due.Workers)) // expired sessions that no engine has ended yet
	ids := append([]belay.ExecutionID{}, due.Checks...)
	for i := range due.Lost {
		ids = append(ids, due.Lost[i].Execution)
	}
	for _, id := range append(ids, due.Children...) {
		rec, err := r.store.Read(ctx, store.Read{Execution: id})
		switch {
		case err == nil && !rec.Execution.State.Terminal():
			t.Overdue[rec.Execution.State]++
		case err != nil && !errors.Is(err, &belay.Error{Code: belay.CodeNotFound}):
			return err
		}
	}
	return nil
}
