package sqlite

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

var runTable = newTable("runs", runColumns+", output")

// begunTable takes the runs of a claim, of which nothing else is known yet.
var begunTable = newTable("runs", "execution, token, worker, attempt, generation, started_seq, started_at")

// writeRuns adds runs. Of a run that is there it writes the end, and the begin
// if it has one.
func (t *tx) writeRuns(c *machine.Changes) error {
	var begun, other []*machine.Run
	for _, r := range c.Runs {
		switch {
		case !r.New:
			if err := t.endRun(r); err != nil {
				return err
			}
		case r.EndedSeq == 0 && r.ScheduledSeq == 0 && r.InputHash == nil && r.ConfigHash == nil:
			begun = append(begun, r)
		default:
			other = append(other, r)
		}
	}
	err := t.insert(t.ctx, begunTable, len(begun), func(i int, a *args) error {
		r := begun[i]
		bindRun(a, r)
		a.intOrNull(r.StartedSeq)
		a.intOrNull(int64(r.StartedAt))
		return nil
	})
	if err != nil {
		return err
	}
	return t.insert(t.ctx, runTable, len(other), func(i int, a *args) error {
		r := other[i]
		bindRun(a, r)
		a.intOrNull(r.ScheduledSeq)
		a.intOrNull(int64(r.ScheduledAt))
		a.intOrNull(r.StartedSeq)
		a.intOrNull(int64(r.StartedAt))
		a.intOrNull(r.EndedSeq)
		a.intOrNull(int64(r.EndedAt))
		a.int(int64(r.Outcome))
		a.bool(r.Final)
		a.idOrNull((*[16]byte)(&r.Op))
		a.int(r.Cost)
		a.int(int64(r.Class))
		a.textOrNull(r.Message)
		a.textOrNull(r.Stack)
		a.blobOrNull(r.InputHash)
		a.blobOrNull(r.ConfigHash)
		a.idOrNull((*[16]byte)(&r.OpSum))
		a.blobOrNull(r.Output)
		return nil
	})
}

func bindRun(a *args, r *machine.Run) {
	a.blob(r.Execution[:])
	a.int(int64(r.Token))
	a.blob(r.Worker[:])
	a.int(int64(r.Attempt))
	a.int(int64(r.Generation))
}

// endRun writes the end of a run, in fewer columns if it succeeded quietly.
func (t *tx) endRun(r *machine.Run) error {
	set := "ended_seq = ?, ended_at = ?, outcome = ?, final = ?, op = ?, op_sum = ?, cost = ?, output = ?"
	t.args.intOrNull(r.EndedSeq)
	t.args.intOrNull(int64(r.EndedAt))
	t.args.int(int64(r.Outcome))
	t.args.bool(r.Final)
	t.args.idOrNull((*[16]byte)(&r.Op))
	t.args.idOrNull((*[16]byte)(&r.OpSum))
	t.args.int(r.Cost)
	t.args.blobOrNull(r.Output)
	if r.Class != 0 || r.Message != "" || r.Stack != "" {
		set += ", class = ?, message = ?, stack = ?"
		t.args.int(int64(r.Class))
		t.args.textOrNull(r.Message)
		t.args.textOrNull(r.Stack)
	}
	if r.StartedSeq != 0 {
		set += ", started_seq = ?, started_at = ?"
		t.args.int(r.StartedSeq)
		t.args.int(int64(r.StartedAt))
	}
	t.args.blob(r.Execution[:])
	t.args.int(int64(r.Token))
	return t.changed("run", belay.RunID{Execution: r.Execution, Token: r.Token}, "UPDATE runs SET "+set+" WHERE execution = ? AND token = ?")
}

var checkpointTable = newTable("checkpoints", checkpointColumns+", data")

func (t *tx) writeCheckpoints(c *machine.Changes) error {
	err := t.insert(t.ctx, checkpointTable, len(c.Checkpoints), func(i int, a *args) error {
		k := c.Checkpoints[i]
		a.blob(k.Execution[:])
		a.int(k.Seq)
		a.int(int64(k.Kind))
		a.text(k.Key)
		a.int(int64(k.Token))
		a.idOrNull((*[16]byte)(&k.Op))
		a.int(int64(k.At))
		a.int(k.Cost)
		a.bool(k.Pruned)
		a.idOrNull((*[16]byte)(&k.OpSum))
		a.blobOrNull(k.Data)
		return nil
	})
	if err != nil {
		return err
	}
	for i := range c.Pruned {
		t.args.blob(c.Pruned[i].Execution[:])
		t.args.int(c.Pruned[i].Seq)
		if _, err := t.exec(t.ctx, "UPDATE checkpoints SET data = NULL, pruned = 1 WHERE execution = ? AND seq = ?"); err != nil {
			return err
		}
	}
	return nil
}

var signalTable = newTable("signals", signalColumns+", payload")

func (t *tx) writeSignals(c *machine.Changes) error {
	err := t.insert(t.ctx, signalTable, len(c.Signals), func(i int, a *args) error {
		s := c.Signals[i]
		a.blob(s.Execution[:])
		a.int(s.Seq)
		a.text(s.Name)
		a.idOrNull((*[16]byte)(&s.Child))
		a.idOrNull((*[16]byte)(&s.Op))
		a.int(int64(s.At))
		a.intOrNull(s.ConsumedBy)
		a.idOrNull((*[16]byte)(&s.OpSum))
		a.blobOrNull(s.Payload)
		return nil
	})
	if err != nil {
		return err
	}
	for _, s := range c.Consumed {
		t.args.int(s.ConsumedBy)
		t.args.blob(s.Execution[:])
		t.args.int(s.Seq)
		if _, err := t.exec(t.ctx, "UPDATE signals SET consumed_by = ? WHERE execution = ? AND seq = ?"); err != nil {
			return err
		}
	}
	return nil
}

var deedTable = newTable("actions", "execution, seq, kind, actor, reason, op, at, token, final, op_sum")

func (t *tx) writeDeeds(c *machine.Changes) error {
	return t.insert(t.ctx, deedTable, len(c.Deeds), func(i int, a *args) error {
		d := c.Deeds[i]
		a.blob(d.Execution[:])
		a.int(d.Seq)
		a.text(d.Kind)
		a.textOrNull(d.Actor)
		a.textOrNull(d.Reason)
		a.idOrNull((*[16]byte)(&d.Op))
		a.int(int64(d.At))
		a.int(int64(d.Token))
		a.bool(d.Final)
		a.idOrNull((*[16]byte)(&d.OpSum))
		return nil
	})
}

var letterTable = newTable("dead_letters", "execution, generation, seq, token, reason, class, message, at, resolution, resolved_by, resolved_at")

// writeLetters adds dead letters and resolves those that are open.
func (t *tx) writeLetters(c *machine.Changes) error {
	for _, d := range c.DeadLetters {
		if d.New {
			err := t.insert(t.ctx, letterTable, 1, func(_ int, a *args) error {
				bindLetter(a, d)
				return nil
			})
			if err != nil {
				return err
			}
			continue
		}
		t.args.text(d.Resolution)
		t.args.textOrNull(d.ResolvedBy)
		t.args.intOrNull(int64(d.ResolvedAt))
		t.args.blob(d.Execution[:])
		t.args.int(int64(d.Generation))
		_, err := t.exec(t.ctx, `
UPDATE dead_letters
SET resolution = ?, resolved_by = ?, resolved_at = ?
WHERE execution = ? AND generation = ? AND resolution IS NULL`)
		if err != nil {
			return err
		}
	}
	return nil
}

func bindLetter(a *args, d *machine.DeadLetter) {
	a.blob(d.Execution[:])
	a.int(int64(d.Generation))
	a.int(d.Seq)
	a.int(int64(d.Token))
	a.text(d.Reason)
	a.int(int64(d.Class))
	a.textOrNull(d.Message)
	a.int(int64(d.At))
	a.textOrNull(d.Resolution)
	a.textOrNull(d.ResolvedBy)
	a.intOrNull(int64(d.ResolvedAt))
}

var chunkTable = newTable("blobs", chunkColumns+", data")

// writeChunks drops chunks, then adds others: a number may be used again.
func (t *tx) writeChunks(c *machine.Changes) error {
	for i := range c.Drops {
		d := &c.Drops[i]
		t.args.blob(d.Execution[:])
		t.args.text(d.Name)
		t.args.int(d.From)
		t.args.int(d.To)
		if _, err := t.exec(t.ctx, "DELETE FROM blobs WHERE execution = ? AND name = ? AND n >= ? AND n < ?"); err != nil {
			return err
		}
	}
	for _, k := range c.Chunks { // one by one: they are large
		err := t.insert(t.ctx, chunkTable, 1, func(_ int, a *args) error {
			a.blob(k.Execution[:])
			a.text(k.Name)
			a.int(k.N)
			a.int(int64(k.Token))
			a.blob(k.Hash[:])
			a.int(k.Size)
			a.int(int64(k.At))
			a.blobOrNull(k.Data)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

var sumTable = newTable("blob_sums", sumColumns)

// writeSums writes how much is kept under the names.
func (t *tx) writeSums(c *machine.Changes) error {
	for _, s := range c.Sums {
		if s.New {
			err := t.insert(t.ctx, sumTable, 1, func(_ int, a *args) error {
				a.blob(s.Execution[:])
				a.text(s.Name)
				bindSum(a, s)
				return nil
			})
			if err != nil {
				return err
			}
			continue
		}
		bindSum(&t.args, s)
		t.args.blob(s.Execution[:])
		t.args.text(s.Name)
		err := t.changed("sum", s.SumRef, "UPDATE blob_sums SET bytes = ?, token = ?, own = ?, log = ? WHERE execution = ? AND name = ?")
		if err != nil {
			return err
		}
	}
	return nil
}

func bindSum(a *args, s *machine.Sum) {
	a.int(s.Bytes)
	a.int(int64(s.Token))
	a.int(s.Own)
	a.bool(s.Log)
}
