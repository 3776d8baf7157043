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

// hinting is a gated store whose nodes give each other hints: a hint of a commit arrives at once,
// with the next commit, or never.
type hinting struct{ *gated }

var _ store.Hinter = hinting{}

// Listen receives hints from the other nodes until the life ends, once the gate has let the call
// go. If the gate does not, the node knows that it receives none.
func (s hinting) Listen(ctx context.Context, heed func(store.Hint)) error {
	if _, err := s.hold(ctx, "listen"); err != nil {
		return err
	}
	s.life.heed = heed
	heed(store.Hint{Lost: true})
	<-ctx.Done()
	return context.Cause(ctx)
}

// giveHints gives the other nodes a hint of a commit. Whether a node receives it depends on the seed
// and the moment alone.
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
			x.late = merged(x.late, h) // one at a time: the calls that a hint wakes must come to rest first
			w.history.fault("hint late")
		case chance == 1:
			x.heed(store.Hint{Down: true})
			w.history.fault("hints unheard until the next")
		default:
			w.history.fault("hint lost")
		}
	}
}

// merged is one hint with the content of two.
func merged(a, b store.Hint) store.Hint {
	b.Objects, b.Lost, b.AnyWorker = b.Objects || a.Objects, b.Lost || a.Lost, b.AnyWorker || a.AnyWorker
	b.Look, b.AnyLane = sooner(a.Look, b.Look), sooner(a.AnyLane, b.AnyLane)
	b.Lanes = slices.Concat(a.Lanes, b.Lanes)
	b.Workers = slices.Concat(a.Workers, b.Workers)
	b.Changed, b.Ended = both(a.Changed, b.Changed), both(a.Ended, b.Ended)
	return b
}

// sooner is the earlier of two moments; 0 stands for none.
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

// hintOf is the hint that a node gives of a commit: the same that servers on PostgreSQL give each
// other, encoded and decoded. Its lists are in an order that the seed gives.
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
