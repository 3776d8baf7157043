package machine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/belaydev/belay"
)

// A retry with From and a fork with At continue an execution before one of its steps or waits. The
// order of an execution's work is the order of seq, in which its checkpoints, signals and ends of
// children were saved; branches that ran at the same time are mixed in this order. The rules keep
// everything below the first checkpoint of the named step. A step has several checkpoints if its
// owner saved it again, and a wait if it has a timeout: then the first checkpoint is its beginning.
//
// A signal is discarded together with the wait that consumed it if it arrived after the first
// checkpoint of the named step, or if the named wait itself consumed it: that wait must ask again. If
// another discarded wait consumed a signal that had arrived before, the signal is unconsumed again.
// Signals that no wait had consumed remain. Ends of children that arrived after the first checkpoint
// are discarded even if no wait had consumed them, because work that is done again may have started
// the child with another input.

// maxListed is the largest number of steps that an error lists.
const maxListed = 10

// saved lists the checkpoints of the present input of e, in the order of seq, with those that
// earlier commands of this batch have saved.
func (w *world) saved(e *Execution) []*Checkpoint {
	return slices.DeleteFunc(append(slices.Clone(w.Rows.Checkpoints), w.out.Checkpoints...),
		func(k *Checkpoint) bool { return k.Execution != e.ID || k.Seq <= e.BaseSeq })
}

// firstOf returns the seq of the first checkpoint of a step or wait. If there is no such step, the
// error lists the newest steps and waits.
func firstOf(op string, e *Execution, saved []*Checkpoint, step string) (int64, error) {
	var names []string
	for _, k := range saved {
		switch {
		case k.Kind == belay.KindState || k.Pruned:
		case k.Key == step:
			return k.Seq, nil
		default:
			if quoted := fmt.Sprintf("%q", k.Key); !slices.Contains(names, quoted) {
				names = append(names, quoted)
			}
		}
	}
	there := "it has saved none"
	switch n := len(names); {
	case n > maxListed:
		there = fmt.Sprintf("the newest %d of its %d are %s", maxListed, n, strings.Join(names[n-maxListed:], ", "))
	case n > 0:
		there = "it has " + strings.Join(names, ", ")
	}
	return 0, refuse(belay.CodeInvalid, op, "%s has saved no step or wait %q; %s", e.ID, step, there)
}

// noState reports whether a checkpoint says that the execution has no state, because the state was
// discarded. Its key is empty, which no owner can choose.
func noState(k *Checkpoint) bool { return k.Kind == belay.KindState && k.Key == "" }

// discardable refuses to discard the checkpoints from a seq on if the execution had a state before
// that seq that a newer state has replaced, because the older state was deleted.
func discardable(op string, w *world, e *Execution, saved []*Checkpoint, first int64) error {
	for _, k := range newest(saved, e, first-1) {
		if k.Kind == belay.KindState && k.Seq != e.StateSeq {
			return w.illegal(op, e, fmt.Sprintf("the state saved at seq %d is gone: a newer one replaced it", k.Seq))
		}
	}
	return nil
}

// discard makes the checkpoints of e from the seq first on invalid. The command has raised the seq
// of e, and the row with this seq consumes the ends of children that are discarded.
func (w *world) discard(e *Execution, saved []*Checkpoint, first int64, step string) {
	at := e.Seq
	gone := make(map[int64]bool) // the seqs of the discarded waits, true for the named one
	stateless := true
	for _, k := range saved {
		switch {
		case k.Seq < first || k.Pruned:
		case k.Kind == belay.KindState:
			stateless = noState(k)
		default:
			gone[k.Seq] = k.Key == step
			w.prune(k)
		}
	}
	if e.StateSeq >= first && !stateless {
		w.out.Pruned = append(w.out.Pruned, SignalRef{e.ID, e.StateSeq})
		e.StateSeq = w.advance(e)
		e.Checkpoints++
		w.out.Checkpoints = append(w.out.Checkpoints, &Checkpoint{
			Execution: e.ID, Seq: e.StateSeq, Kind: belay.KindState, At: w.Now,
		})
	}
	w.discardSignals(e, first, at, gone)
	e.InputGen = e.Generation
}

// prune deletes the data of a checkpoint, which is then not valid any more.
func (w *world) prune(k *Checkpoint) {
	k.Pruned = true
	w.out.Pruned = append(w.out.Pruned, SignalRef{k.Execution, k.Seq})
}

func (w *world) discardSignals(e *Execution, first, at int64, gone map[int64]bool) {
	seen := make(map[int64]bool) // a batch can load a signal twice; only its first row counts
	for _, s := range slices.Concat(w.Rows.Signals, w.out.Signals) {
		if s.Execution != e.ID || s.Seq <= e.BaseSeq || seen[s.Seq] {
			continue
		}
		seen[s.Seq] = true
		named, consumed := gone[s.ConsumedBy]
		switch {
		case s.ConsumedBy == 0 && !s.Child.IsZero() && s.Seq > first:
			s.ConsumedBy = at
		case consumed && !named && s.Seq < first:
			s.ConsumedBy = 0
			if s.Child.IsZero() {
				e.Signals++
				e.SignalBytes += int64(len(s.Payload))
			}
		default:
			continue
		}
		w.out.Consumed = append(w.out.Consumed, s)
	}
}

// discarded returns the checkpoints of e and the seq from which the action discards them. It refuses
// an action that cannot discard them.
func (c *Act) discarded(w *world, op string, e *Execution) (saved []*Checkpoint, first int64, err error) {
	if c.From == "" {
		return nil, 0, nil
	}
	saved = w.saved(e)
	if first, err = firstOf(op, e, saved, c.From); err == nil {
		err = discardable(op, w, e, saved, first)
	}
	return saved, first, err
}
