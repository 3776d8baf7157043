package simulation

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/postgres"
)

// hinting is a gated store (whose calls the simulation controls) whose nodes send each other hints:
// messages about commits. After a commit, another node gets the hint at once, or late with the next
// hint, or never.
type hinting struct{ *gated }

var _ store.Hinter = hinting{}

// Listen passes the hints of other nodes (messages about their commits) to the function heed until
// the node crashes or stops. It begins when the driver of the simulation lets the call go. If the
// driver makes the call fail, the node gets the error and polls.
func (s hinting) Listen(ctx context.Context, heed func(store.Hint)) error {
	if _, err := s.hold(ctx, "listen"); err != nil {
		return err
	}
	s.life.heed = heed
	heed(store.Hint{Lost: true})
	<-ctx.Done()
	return context.Cause(ctx)
}

// giveHints sends a hint (a message) about a commit to the other nodes. The seed and the moment
// alone decide whether a node receives the hint.
func (w *world) giveHints(from *life, rows *machine.Rows, c *machine.Changes) {
	if !w.plan.hints {
		return
	}
	h, some := hintOf(rows, c)
	if !some {
		return
	}
	for _, n := range w.nodes {
		x := n.life
		if x == nil || x == from || x.heed == nil {
			continue
		}
		chance := (digest(fmt.Sprint("hint to ", x.name)) ^ w.seed ^ uint64(w.gate.now())) % 10
		switch {
		case w.healing.Load() || chance > 3:
			x.heed(merged(x.late, h))
			x.late = store.Hint{}
		case chance == 0:
			// this hint arrives together with the next hint, so that only one hint at a time causes calls
			x.late = merged(x.late, h)
			w.history.fault("hint late")
		case chance == 1:
			x.heed(store.Hint{Down: true})
			w.history.fault("hints unheard until the next")
		default:
			w.history.fault("hint lost")
		}
	}
}

// merged returns one hint (a message about commits) with the content of two hints.
func merged(a, b store.Hint) store.Hint {
	b.Objects, b.Lost, b.AnyWorker = b.Objects || a.Objects, b.Lost || a.Lost, b.AnyWorker || a.AnyWorker
	b.Look, b.AnyLane = sooner(a.Look, b.Look), sooner(a.AnyLane, b.AnyLane)
	b.Lanes = slices.Concat(a.Lanes, b.Lanes)
	b.Workers = slices.Concat(a.Workers, b.Workers)
	b.Changed, b.Ended = both(a.Changed, b.Changed), both(a.Ended, b.Ended)
	return b
}

// sooner returns the earlier of two moments; 0 means none.
func sooner(a, b machine.Time) machine.Time {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func both(a, b store.Executions) store.Executions {
	hashes := make(map[uint32]struct{})
	maps.Copy(hashes, a.Hashes)
	maps.Copy(hashes, b.Hashes)
	return store.Executions{All: a.All || b.All, Hashes: hashes}
}

// hintOf returns the hint that a node sends after a commit: the hint that servers on PostgreSQL
// send to each other, encoded and decoded. Its lists are in an order that the seed gives.
func hintOf(rows *machine.Rows, c *machine.Changes) (h store.Hint, some bool) {
	hints, err := postgres.HintsOf(rows, c)
	if err != nil {
		panic(err)
	}
	for _, x := range hints {
		h = merged(h, x)
	}
	slices.SortFunc(h.Lanes, func(a, b store.LaneHint) int { return cmp.Compare(a.Lane, b.Lane) })
	slices.SortFunc(h.Workers, func(a, b belay.WorkerID) int { return slices.Compare(a[:], b[:]) })
	return h, len(hints) > 0
}
