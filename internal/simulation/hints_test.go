package simulation

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// hinting is a gated store whose nodes hear each other: what one commits the
// others are told at that moment, with the next commit, or not at all.
type hinting struct{ *gated }

var _ store.Hinter = hinting{}

// Listen hears the other nodes until the life ends, once the gate has let it. If
// it does not, the node knows that it hears nothing.
func (s hinting) Listen(ctx context.Context, heed func(store.Hint)) error {
	if _, err := s.hold(ctx, "listen"); err != nil {
		return err
	}
	s.life.heed = heed
	heed(store.Hint{Lost: true})
	<-ctx.Done()
	return context.Cause(ctx)
}

// tell tells the other nodes of a commit. Which of them hear it hangs on the seed
// and the moment alone.
func (w *world) tell(from *life, at machine.Time, c *machine.Changes) {
	if !w.plan.hints {
		return
	}
	h := hintOf(at, c)
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
			x.late = merged(x.late, h) // one at a time: who is woken by it comes to rest first
			w.history.fault("hint late")
		case chance == 1:
			x.heed(store.Hint{Down: true})
			w.history.fault("hints unheard until the next")
		default:
			w.history.fault("hint lost")
		}
	}
}

// merged is two hints in one.
func merged(a, b store.Hint) store.Hint {
	b.Keys = b.Keys || a.Keys
	b.Look = max(b.Look, a.Look)
	b.Lanes = slices.Concat(a.Lanes, b.Lanes)
	b.Workers = slices.Concat(a.Workers, b.Workers)
	maps.Copy(b.Changed.Hashes, a.Changed.Hashes)
	maps.Copy(b.Ended.Hashes, a.Ended.Hashes)
	return b
}

// hintOf is what a node tells of a commit. Of the executions it says a bit too
// much, as hashes do.
func hintOf(now machine.Time, c *machine.Changes) store.Hint {
	h := store.Hint{Keys: len(c.APIKeys) > 0}
	h.Changed.Hashes, h.Ended.Hashes = make(map[uint32]struct{}), make(map[uint32]struct{})
	for _, e := range c.Executions {
		h.Changed.Hashes[store.Hash(e.ID)] = struct{}{}
		if e.State.Terminal() {
			h.Ended.Hashes[store.Hash(e.ID)] = struct{}{}
		}
		if at := e.Ready(); at != 0 {
			h.Lanes = append(h.Lanes, store.LaneHint{Lane: e.Lane, At: at})
		}
		if e.Attention {
			h.Workers = append(h.Workers, e.Worker)
		}
	}
	for _, r := range c.Runs {
		if r.EndedSeq != 0 && r.Op.IsZero() {
			h.Workers = append(h.Workers, r.Worker)
		}
	}
	for _, x := range c.Workers {
		if x.State != belay.WorkerOpen {
			h.Workers = append(h.Workers, x.ID)
		}
		if x.New {
			h.Look = now
		}
	}
	return h
}
