package machine

import "github.com/belaydev/belay"

// fork starts a new execution with the checkpoints of another up to a seq.
// The new one has its own id, history and tokens; steps it has count as done.
func (c *Act) fork(w *world, e *Execution) (Reply, error) {
	if c.Fork.IsZero() || c.Fork == e.ID {
		return Reply{}, refuse(belay.CodeInvalid, "fork", "the new execution has no id of its own")
	}
	if have := w.execs[c.Fork]; have != nil {
		return Reply{ID: have.ID, Execution: have, Replayed: true}, nil
	}
	if !e.Parent.IsZero() {
		return Reply{}, w.illegal("fork", e, "it is a child; fork its root")
	}
	s := w.specs[e.ID]
	if s == nil {
		return Reply{}, refuse(belay.CodeInternal, "fork", "the input of %s is gone", e.ID)
	}
	f := &Execution{
		ID: c.Fork, Workflow: e.Workflow, Version: e.Version, Queue: e.Queue, Lane: e.Lane, Policy: e.Policy,
		State: belay.Pending, Seq: 1, Generation: 1, InputGen: 1, CreatedAt: w.Now, DueAt: w.Now, New: true,
		Reason: "reopened", ReasonText: "forked from " + e.ID.String(),
	}
	spec := *s
	spec.Execution, spec.Generation, spec.Key = f.ID, 1, ""
	if len(c.Input) > 0 {
		spec.Input = c.Input
	}
	w.execs[f.ID], w.specs[f.ID] = f, &spec
	w.changed(f)
	w.out.Specs = append(w.out.Specs, &spec)
	for _, k := range newest(w.Rows.Checkpoints, e, c.UpTo) {
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
	w.awake(f)
	return Reply{ID: f.ID, Execution: f, Seq: e.Seq}, nil
}

// newest are the checkpoints of e that count, up to a seq (0 for all): of each
// kind and key the last one, in order.
func newest(all []*Checkpoint, e *Execution, upTo int64) []*Checkpoint {
	type key struct {
		kind belay.CheckpointKind
		key  string
	}
	last := make(map[key]int64)
	counts := func(k *Checkpoint) bool {
		return k.Execution == e.ID && k.Seq > e.BaseSeq && (upTo == 0 || k.Seq <= upTo) && !k.Pruned
	}
	for _, k := range all {
		if counts(k) {
			last[key{k.Kind, k.Key}] = max(last[key{k.Kind, k.Key}], k.Seq)
		}
	}
	var out []*Checkpoint
	for _, k := range all {
		if counts(k) && last[key{k.Kind, k.Key}] == k.Seq {
			out = append(out, k)
		}
	}
	return out
}
