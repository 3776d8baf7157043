package machine

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/belaydev/belay"
)

// write applies changes like a store, with a copy of every row. It clears the flags that belong to
// one batch.
func (k *keeper) write(c *Changes) error {
	if err := k.writeExecutions(c); err != nil {
		return err
	}
	if err := k.writeWorkers(c); err != nil {
		return err
	}
	for _, r := range c.Runs {
		if err := k.writeRun(r); err != nil {
			return err
		}
	}
	if err := k.writeHistory(c); err != nil {
		return err
	}
	for _, d := range c.DeadLetters {
		if err := k.writeLetter(d); err != nil {
			return err
		}
	}
	for _, l := range c.Lanes {
		k.lanes[l.ID] = l
	}
	for _, row := range c.Keys {
		if have, ok := k.keys[row.Key]; ok && have.Execution != row.Was {
			return fmt.Errorf("keys: key %v exists already", row.Key)
		}
		row.Was = belay.ExecutionID{}
		k.keys[row.Key] = row
	}
	for _, o := range c.Objects {
		if err := k.writeObject(o); err != nil {
			return err
		}
	}
	k.audit = append(slices.Clip(k.audit), c.Audit...)
	for _, p := range c.Places {
		key := PlaceKey{p.Gate, p.Execution}
		if p.Gone {
			delete(k.places, key)
		} else {
			k.places[key] = p.Held
		}
	}
	return k.writeChunks(c)
}

// writeObject adds an object, or replaces or deletes the version that the change names.
func (k *keeper) writeObject(o *Object) error {
	was := int64(0)
	if there := k.objects[o.ObjectRef]; there != nil {
		was = there.Version
	}
	if o.Was != was {
		return fmt.Errorf("keys: %s %s: the change replaces version %d, stored is %d", o.Kind, o.Name, o.Was, was)
	}
	if o.Gone {
		delete(k.objects, o.ObjectRef)
		return nil
	}
	row := copied(o)
	row.Was = 0
	k.objects[o.ObjectRef] = row
	return nil
}

func (k *keeper) change(id belay.ExecutionID, with func(*record) error) error {
	r := k.records[id]
	err := with(&r)
	k.records[id] = r
	return err
}

func (k *keeper) writeExecutions(c *Changes) error {
	if n := len(unique(c.Executions)); n != len(c.Executions) {
		return fmt.Errorf("keys: an execution is written twice")
	}
	for _, e := range c.Executions {
		if e.New != (k.records[e.ID].execution == nil) {
			return fmt.Errorf("keys: execution %s: new %v, exists %v", e.ID, e.New, !e.New)
		}
		row := copied(e)
		row.New, row.Attention = false, false
		_ = k.change(e.ID, func(r *record) error { r.execution = row; return nil })
	}
	for _, s := range c.Specs {
		err := k.change(s.Execution, func(r *record) error {
			return insert(&r.specs, s, func(x *Spec) int64 { return int64(x.Generation) })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (k *keeper) writeWorkers(c *Changes) error {
	if c.Leap != 0 {
		for id, r := range k.records {
			if e := r.execution; e != nil && !e.Worker.IsZero() &&
				!slices.ContainsFunc(c.Executions, func(x *Execution) bool { return x.ID == id }) {
				late := e.Late(c.Leap, k.now)
				_ = k.change(id, func(r *record) error { r.execution = &late; return nil })
			}
		}
	}
	if c.Grace != 0 {
		for id, x := range k.workers {
			if !x.State.Ended() {
				row := copied(x)
				row.ExpiresAt = max(x.ExpiresAt.Add(c.Grace), k.now.Add(x.ttl()))
				k.workers[id] = row
			}
		}
	}
	for _, x := range c.Workers {
		if x.New != (k.workers[x.ID] == nil) {
			return fmt.Errorf("keys: worker %s: new %v, exists %v", x.ID, x.New, !x.New)
		}
		row := copied(x)
		row.New = false
		k.workers[x.ID] = row
	}
	return nil
}

// writeRun adds a run, or writes the end of an existing run, and the run's start if the change has
// a start.
func (k *keeper) writeRun(run *Run) error {
	return k.change(run.Execution, func(r *record) error {
		if run.New {
			row := copied(run)
			row.New = false
			return insert(&r.runs, row, func(x *Run) int64 { return int64(x.Token) })
		}
		return replace(&r.runs, func(x *Run) bool { return x.Token == run.Token }, func(x *Run) error {
			if x.EndedSeq != 0 {
				return fmt.Errorf("keys: run %d of %s ends twice", run.Token, run.Execution)
			}
			if run.StartedSeq != 0 {
				x.StartedSeq, x.StartedAt = run.StartedSeq, run.StartedAt
			}
			x.EndedSeq, x.EndedAt, x.Outcome, x.Final = run.EndedSeq, run.EndedAt, run.Outcome, run.Final
			x.Op, x.Output, x.Cost = run.Op, bytes.Clone(run.Output), run.Cost
			x.Class, x.Message, x.Stack, x.FailedBy = run.Class, run.Message, run.Stack, run.FailedBy
			return nil
		})
	})
}

func (k *keeper) writeHistory(c *Changes) error {
	var err error
	keep := func(e error) {
		if err == nil {
			err = e
		}
	}
	for _, x := range c.Checkpoints {
		keep(k.change(x.Execution, func(r *record) error {
			return insert(&r.checkpoints, x, func(x *Checkpoint) int64 { return x.Seq })
		}))
	}
	for _, ref := range c.Pruned {
		keep(k.change(ref.Execution, func(r *record) error {
			return replace(&r.checkpoints, func(x *Checkpoint) bool {
				return x.Seq == ref.Seq
			}, func(x *Checkpoint) error {
				x.Data, x.Pruned = nil, true
				return nil
			})
		}))
	}
	for _, x := range c.Signals {
		keep(k.change(x.Execution, func(r *record) error {
			return insert(&r.signals, x, func(x *Signal) int64 { return x.Seq })
		}))
	}
	for _, s := range c.Consumed {
		keep(k.change(s.Execution, func(r *record) error {
			return replace(&r.signals, func(x *Signal) bool { return x.Seq == s.Seq }, func(x *Signal) error {
				if x.ConsumedBy != 0 && s.ConsumedBy != 0 && x.ConsumedBy != s.ConsumedBy {
					return fmt.Errorf("keys: signal %d of %s is consumed twice", s.Seq, s.Execution)
				}
				x.ConsumedBy = s.ConsumedBy
				return nil
			})
		}))
	}
	for _, d := range c.Deeds {
		keep(k.change(d.Execution, func(r *record) error {
			return insert(&r.deeds, d, func(x *Deed) int64 { return x.Seq })
		}))
	}
	return err
}

// writeLetter adds a dead letter, or changes one; a dead letter is resolved at most once (guarantee
// G10).
func (k *keeper) writeLetter(d *DeadLetter) error {
	return k.change(d.Execution, func(r *record) error {
		if d.New {
			row := copied(d)
			row.New = false
			return insert(&r.letters, row, func(x *DeadLetter) int64 { return int64(x.Generation) })
		}
		return replace(&r.letters, func(x *DeadLetter) bool {
			return x.Generation == d.Generation
		}, func(x *DeadLetter) error {
			if x.Resolution != "" && x.Resolution != d.Resolution || x.ResolvedAt != 0 && x.ResolvedAt != d.ResolvedAt {
				return fmt.Errorf("keys: dead letter %d of %s is resolved twice", d.Generation, d.Execution)
			}
			x.Resolution, x.ResolvedBy, x.ResolvedAt = d.Resolution, d.ResolvedBy, d.ResolvedAt
			x.Notes = slices.Clone(d.Notes)
			return nil
		})
	})
}

func (k *keeper) writeChunks(c *Changes) error {
	for _, d := range c.Drops {
		_ = k.change(d.Execution, func(r *record) error {
			r.chunks = slices.DeleteFunc(slices.Clone(r.chunks), func(x *Chunk) bool { return d.covers(x.ChunkRef) })
			return nil
		})
	}
	for _, x := range c.Chunks {
		err := k.change(x.Execution, func(r *record) error {
			if slices.ContainsFunc(r.chunks, func(y *Chunk) bool { return y.ChunkRef == x.ChunkRef }) {
				return fmt.Errorf("keys: chunk %v exists already", x.ChunkRef)
			}
			r.chunks = append(slices.Clip(r.chunks), copied(x))
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, s := range c.Sums {
		if s.New != (k.sum(s.SumRef) == nil) {
			return fmt.Errorf("keys: sum of %s: new %v, exists %v", s.Name, s.New, !s.New)
		}
		row := copied(s)
		row.New = false
		_ = k.change(s.Execution, func(r *record) error {
			r.sums = append(slices.DeleteFunc(slices.Clone(r.sums), func(x *Sum) bool {
				return x.SumRef == s.SumRef
			}), row)
			return nil
		})
	}
	return nil
}

// insert adds a copy of a row in the order of its key, and refuses a key that exists. The old
// slice stays unchanged.
func insert[R any](rows *[]*R, row *R, key func(*R) int64) error {
	i, taken := slices.BinarySearchFunc(*rows, key(row), func(x *R, k int64) int { return cmp.Compare(key(x), k) })
	if taken {
		return fmt.Errorf("keys: %T %d exists already: %+v", *row, key(row), *row)
	}
	*rows = slices.Insert(slices.Clip(*rows), i, copied(row))
	return nil
}

// replace replaces a row by a changed copy, and refuses if the row does not exist.
func replace[R any](rows *[]*R, is func(*R) bool, with func(*R) error) error {
	i := slices.IndexFunc(*rows, is)
	if i < 0 {
		var r R
		return fmt.Errorf("keys: the %T to change does not exist", r)
	}
	next := slices.Clone(*rows)
	next[i] = copied(next[i])
	err := with(next[i])
	*rows = next
	return err
}

func same(a, b any) bool { return reflect.DeepEqual(a, b) }
