package sqlite

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store/table"
)

// The columns that are written when a run ends. errorColumns are added only if the run has an
// error, and startColumns only if the change has a start.
const (
	endColumns   = "ended_seq, ended_at, outcome, final, op, op_sum, cost, cost_rest, output, steps"
	errorColumns = ", class, message, stack, failed_by"
	startColumns = ", started_seq, started_at"
	theRun       = "execution, token"
)

var (
	insertRuns = insertInto(table.Runs)
	// insertBegun is for runs of which only the start is known.
	insertBegun = insertInto(table.Runs.Only("execution, token, worker, attempt, generation, started_seq, started_at"))

	// The keys of endRuns say whether the run has an error, and whether it has a start to write.
	endRuns = map[[2]bool]changing[machine.Run]{
		{false, false}: change(table.Runs, endColumns, theRun),
		{false, true}:  change(table.Runs, endColumns+startColumns, theRun),
		{true, false}:  change(table.Runs, endColumns+errorColumns, theRun),
		{true, true}:   change(table.Runs, endColumns+errorColumns+startColumns, theRun),
	}
)

// writeRuns adds new runs. For a run that exists, it writes the end, and the start if the change
// has a start.
func (t *tx) writeRuns(c *machine.Changes) error {
	var begun, other []*machine.Run
	for _, r := range c.Runs {
		switch {
		case !r.New:
			failed := r.Class != 0 || r.Message != "" || r.Stack != ""
			if err := endRuns[[2]bool{failed, r.StartedSeq != 0}].must(t, belay.RunID{Execution: r.Execution,
				Token: r.Token}, r); err != nil {
				return err
			}
		case r.EndedSeq == 0 && r.ScheduledSeq == 0 && r.InputHash == nil && r.ConfigHash == nil:
			begun = append(begun, r)
		default:
			other = append(other, r)
		}
	}
	return firstOf(insertBegun.add(t, begun...), insertRuns.add(t, other...))
}

var insertCheckpoints = insertInto(table.Checkpoints)

func (t *tx) writeCheckpoints(c *machine.Changes) error {
	if err := insertCheckpoints.add(t, c.Checkpoints...); err != nil {
		return err
	}
	for i := range c.Pruned {
		t.args.blob(c.Pruned[i].Execution[:]).int(c.Pruned[i].Seq)
		if _, err := t.exec(t.ctx, "UPDATE checkpoints SET data = NULL, pruned = 1 WHERE execution = ? AND seq = "+
			"?"); err != nil {
			return err
		}
	}
	return nil
}

var (
	insertSignals  = insertInto(table.Signals)
	consumeSignals = change(table.Signals, "consumed_by", "execution, seq")
)

func (t *tx) writeSignals(c *machine.Changes) error {
	err := insertSignals.add(t, c.Signals...)
	for i := 0; i < len(c.Consumed) && err == nil; i++ {
		_, err = consumeSignals.in(t, c.Consumed[i])
	}
	return err
}

var (
	insertSpecs = insertInto(table.Specs)
	insertDeeds = insertInto(table.Deeds)
	insertKeys  = insertInto(table.Keys)
)

func (t *tx) writeSpecs(c *machine.Changes) error { return insertSpecs.add(t, c.Specs...) }
func (t *tx) writeDeeds(c *machine.Changes) error { return insertDeeds.add(t, c.Deeds...) }

func (t *tx) writeKeys(c *machine.Changes) error {
	rows := make([]*machine.KeyRow, len(c.Keys))
	for i := range c.Keys {
		rows[i] = &c.Keys[i]
		if k := rows[i]; k.Was != (belay.ExecutionID{}) {
			t.args.text(k.Workflow).text(k.Key.Key).blob(k.Was[:])
			const giveUp = "DELETE FROM idempotency WHERE workflow = ? AND key = ? AND execution = ?"
			if _, err := t.exec(t.ctx, giveUp); err != nil {
				return err
			}
		}
	}
	return insertKeys.add(t, rows...)
}

var insertChunks = insertInto(table.Chunks)

// writeChunks deletes the dropped chunks before it adds the new ones, because a new chunk may have
// the number of a dropped one.
func (t *tx) writeChunks(c *machine.Changes) error {
	for i := range c.Drops {
		d := &c.Drops[i]
		t.args.blob(d.Execution[:]).text(d.Name).int(d.From).int(d.To)
		const cut = "DELETE FROM blobs WHERE execution = ? AND name = ? AND n >= ? AND n < ?"
		if _, err := t.exec(t.ctx, cut); err != nil {
			return err
		}
	}
	for _, k := range c.Chunks { // one by one, since they are large
		if err := insertChunks.add(t, k); err != nil {
			return err
		}
	}
	return nil
}

var (
	insertSums = insertInto(table.Sums)
	changeSums = change(table.Sums, "bytes, token, own, log", "execution, name")
)

// writeSums writes the total sizes of logs and artifacts.
func (t *tx) writeSums(c *machine.Changes) error {
	for _, s := range c.Sums {
		var err error
		if s.New {
			err = insertSums.add(t, s)
		} else {
			err = changeSums.must(t, s.SumRef, s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
