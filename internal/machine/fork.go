package machine

import (
	"fmt"

	"github.com/belaydev/belay"
)

// fork starts a new execution with the checkpoints of another one up to a seq. The new execution
// has its own id, history and tokens; the steps whose checkpoints it has count as done.
func (c *Act) fork(w *world, e *Execution) (Reply, error) {
	if c.Fork.IsZero() || c.Fork == e.ID {
		return Reply{}, refuse(belay.CodeInvalid, "fork", "the new execution has no id of its own")
	}
	if belay.IsNotificationID(c.Fork) {
		return Reply{}, refuse(belay.CodeInvalid, "fork", "%s", deliveryID)
	}
	if !e.Parent.IsZero() {
		return Reply{}, w.illegal("fork", e, "it is a child; fork its root")
	}
	if e.isSwap() {
		return Reply{}, w.illegal("fork", e, "it changes the mode of the resource "+e.Gates.Swap)
	}
	if e.Workflow == belay.PublishWorkflow {
		return Reply{}, w.illegal("fork", e, "a fork would publish a copy of the message under another id")
	}
	if e.forgotten() {
		return Reply{}, w.illegal("fork", e, e.ReasonText)
	}
	s := w.specs[e.ID]
	if s == nil {
		return Reply{}, refuse(belay.CodeInternal, "fork", "the input of %s is gone", e.ID)
	}
	if have := w.execs[c.Fork]; have != nil {
		if h := w.specs[c.Fork]; h == nil || h.Hash != s.Hash {
			return Reply{}, refuse(belay.CodeConflict, "fork", "%s is another execution, not a fork of %s", c.Fork,
				e.ID)
		}
		return Reply{ID: have.ID, Execution: w.copyOf(have), Spec: w.specs[have.ID], Replayed: true}, nil
	}
	// The fork also copies checkpoints that earlier commands of this batch have saved.
	saved, upTo := w.saved(e), c.UpTo
	if c.At != "" {
		first, err := firstOf("fork", e, saved, c.At)
		if err != nil {
			return Reply{}, err
		}
		upTo = first - 1
	}
	kept := newest(saved, e, upTo)
	for _, k := range kept {
		if k.Kind == belay.KindState && k.Seq != e.StateSeq {
			return Reply{}, w.illegal("fork", e,
				fmt.Sprintf("the state saved at seq %d is gone: a newer one replaced it", k.Seq))
		}
	}
	f := &Execution{
		ID: c.Fork, Workflow: e.Workflow, Version: e.Version, Queue: e.Queue, Lane: e.Lane.Shared(), Policy: e.Policy,
		State: belay.Pending, Seq: 1, Generation: 1, InputGen: 1, CreatedAt: w.Now, DueAt: w.Now, New: true,
		Reason: "reopened", ReasonText: "forked from " + e.ID.String() + c.step(), External: e.External,
		Gates: e.Gates, Budget: e.Budget, Notify: e.Notify,
	}
	spec := *s
	spec.Execution, spec.Generation, spec.Key, spec.CreatedBy = f.ID, 1, "", c.Actor
	if len(c.Input) > 0 {
		spec.Input = c.Input
	}
	w.execs[f.ID], w.specs[f.ID] = f, &spec
	w.changed(f)
	w.out.Specs = append(w.out.Specs, &spec)
	for _, k := range kept {
		f.Seq++
		f.Checkpoints++
		if k.Kind == belay.KindState {
			f.StateSeq = f.Seq
		}
		w.out.Checkpoints = append(w.out.Checkpoints, &Checkpoint{
			Execution: f.ID, Seq: f.Seq, Kind: k.Kind, Key: k.Key, At: w.Now, Data: k.Data,
		})
	}
	c.record(w, e)
	w.join(f)
	w.markDue(f)
	return Reply{ID: f.ID, Execution: w.copyOf(f), Spec: w.specs[f.ID], Seq: e.Seq}, nil
}

// newest lists the valid checkpoints of e up to a seq (0 for all), in order: the last checkpoint of
// each kind and key that was not discarded. Of the checkpoints of kind state only the last is valid,
// whatever its key, because an execution has one state and a new state deletes the previous one. If
// the last one says that there is no state, newest leaves it out.
func newest(all []*Checkpoint, e *Execution, upTo int64) []*Checkpoint {
	type slot struct {
		kind belay.CheckpointKind
		key  string
	}
	of := func(k *Checkpoint) slot {
		if k.Kind == belay.KindState {
			return slot{kind: k.Kind}
		}
		return slot{k.Kind, k.Key}
	}
	last := make(map[slot]int64)
	counts := func(k *Checkpoint) bool {
		return k.Execution == e.ID && k.Seq > e.BaseSeq && (upTo == 0 || k.Seq <= upTo) &&
			(!k.Pruned || k.Kind == belay.KindState)
	}
	for _, k := range all {
		if counts(k) {
			last[of(k)] = max(last[of(k)], k.Seq)
		}
	}
	var out []*Checkpoint
	for _, k := range all {
		if counts(k) && last[of(k)] == k.Seq && !noState(k) {
			out = append(out, k)
		}
	}
	return out
}
