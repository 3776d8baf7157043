package memory

import (
	"fmt"
	"maps"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// tx is one commit: changed copies of the records, which publish puts into the store when every
// change was accepted.
type tx struct {
	*Store
	now     machine.Time
	records map[belay.ExecutionID]*record
}

// record is the transaction's own copy of a record.
func (t *tx) record(id belay.ExecutionID) *record {
	r := t.records[id]
	if r == nil {
		c := *t.of(id)
		r = &c
		t.records[id] = r
	}
	return r
}

// write makes the changes in the transaction's copies. It refuses a new row that exists already,
// and a change to a row that does not exist.
func (t *tx) write(c *machine.Changes) error {
	for _, e := range c.Executions {
		r := t.record(e.ID)
		if e.New != (r.execution == nil) {
			return refused("execution", e.ID)
		}
		r.execution = copyExecution(e)
	}
	if err := t.writeWorkers(c); err != nil {
		return err
	}
	for _, s := range c.Specs {
		if err := insert(&t.record(s.Execution).specs, copySpec(s, true), byGeneration, s.Generation); err != nil {
			return err
		}
	}
	if err := t.writeRuns(c.Runs); err != nil {
		return err
	}
	if err := t.writeHistory(c); err != nil {
		return err
	}
	for _, k := range c.Keys {
		if have, ok := t.keys[k.Key]; ok && have.Execution != k.Was {
			return refused("key", k.Key)
		}
	}
	if err := t.checkObjects(c); err != nil {
		return err
	}
	return t.writeChunks(c)
}

// writeWorkers checks that new sessions do not exist and that changed sessions exist. publish
// stores them.
func (t *tx) writeWorkers(c *machine.Changes) error {
	for _, x := range c.Workers {
		if x.New != (t.workers[x.ID] == nil) {
			return refused("worker", x.ID)
		}
	}
	return nil
}

// writeRuns adds new runs. For a run that exists, it writes the end, and the start if the change
// has a start.
func (t *tx) writeRuns(runs []*machine.Run) error {
	for _, run := range runs {
		r := t.record(run.Execution)
		if run.New {
			if err := insert(&r.runs, copyRun(run, true), byToken, int64(run.Token)); err != nil {
				return err
			}
			continue
		}
		ok := change(&r.runs, byToken, int64(run.Token), func(old *machine.Run) *machine.Run {
			next := copyRun(old, true)
			if run.StartedSeq != 0 {
				next.StartedSeq, next.StartedAt = run.StartedSeq, run.StartedAt
			}
			next.EndedSeq, next.EndedAt, next.Outcome, next.Final = run.EndedSeq, run.EndedAt, run.Outcome, run.Final
			next.Op, next.OpSum, next.Output, next.Cost = run.Op, run.OpSum, slices.Clone(run.Output), run.Cost
			next.Class, next.Message, next.Stack, next.FailedBy = run.Class, run.Message, run.Stack, run.FailedBy
			next.Steps = run.Steps
			return next
		})
		if !ok {
			return refused("run", belay.RunID{Execution: run.Execution, Token: run.Token})
		}
	}
	return nil
}

// writeHistory adds checkpoints, signals, actions and dead letters, and then changes existing rows.
// It changes rows last, because a change may concern a row that the same commit adds.
func (t *tx) writeHistory(c *machine.Changes) error {
	for _, k := range c.Checkpoints {
		if err := insert(&t.record(k.Execution).checkpoints, copyCheckpoint(k, true), byCheckpoint, k.Seq); err != nil {
			return err
		}
	}
	for _, ref := range c.Pruned {
		change(&t.record(ref.Execution).checkpoints, byCheckpoint, ref.Seq,
			func(old *machine.Checkpoint) *machine.Checkpoint {
				next := copyCheckpoint(old, false)
				next.Pruned = true
				return next
			})
	}
	for _, s := range c.Signals {
		if err := insert(&t.record(s.Execution).signals, copySignal(s, true), bySignal, s.Seq); err != nil {
			return err
		}
	}
	for _, s := range c.Consumed {
		change(&t.record(s.Execution).signals, bySignal, s.Seq, func(old *machine.Signal) *machine.Signal {
			next := copySignal(old, true)
			next.ConsumedBy = s.ConsumedBy
			return next
		})
	}
	for _, d := range c.Deeds {
		if err := insert(&t.record(d.Execution).deeds, copyOf(d), byDeed, d.Seq); err != nil {
			return err
		}
	}
	return t.writeLetters(c.DeadLetters)
}

// writeLetters adds dead letters and changes existing ones.
func (t *tx) writeLetters(letters []*machine.DeadLetter) error {
	for _, d := range letters {
		r := t.record(d.Execution)
		if d.New {
			letter := copyLetter(d)
			letter.New = false
			if err := insert(&r.letters, letter, byLetter, d.Generation); err != nil {
				return err
			}
			continue
		}
		change(&r.letters, byLetter, d.Generation, func(old *machine.DeadLetter) *machine.DeadLetter {
			next := copyLetter(d)
			next.New = false
			return next
		})
	}
	return nil
}

// writeChunks deletes the dropped chunks first and then adds the new ones, because a new chunk may
// have the number of a dropped one.
func (t *tx) writeChunks(c *machine.Changes) error {
	for _, d := range c.Drops {
		r := t.record(d.Execution)
		r.chunks = slices.DeleteFunc(slices.Clone(r.chunks), func(k *machine.Chunk) bool {
			return k.Name == d.Name && d.From <= k.N && k.N < d.To
		})
	}
	for _, k := range c.Chunks {
		if err := insert(&t.record(k.Execution).chunks, copyChunk(k, true), byChunk, k.ChunkRef); err != nil {
			return err
		}
	}
	for _, sum := range c.Sums {
		r := t.record(sum.Execution)
		if _, there := r.sums[sum.Name]; there == sum.New {
			return refused("sum", sum.SumRef)
		}
		r.sums = maps.Clone(r.sums)
		if r.sums == nil {
			r.sums = make(map[string]machine.Sum)
		}
		next := *sum
		next.New = false
		r.sums[sum.Name] = next
	}
	return nil
}

// publish puts all changes into the store at once; it cannot fail.
func (t *tx) publish(c *machine.Changes) {
	for id, r := range t.records {
		t.Store.records[id] = r
	}
	if c.Leap != 0 {
		for id, r := range t.Store.records {
			if e := r.execution; e != nil && !e.Worker.IsZero() && t.records[id] == nil {
				next, late := *r, e.Late(c.Leap, t.now)
				next.execution = &late
				t.Store.records[id] = &next
			}
		}
	}
	if c.Grace != 0 {
		for id, x := range t.workers {
			if !x.State.Ended() {
				next := copyOf(x)
				next.ExpiresAt = max(x.ExpiresAt.Add(c.Grace), t.now.Add(x.Spec.TTL.D()))
				t.workers[id] = next
			}
		}
	}
	for _, x := range c.Workers {
		next := copyWorker(x)
		if x.New || x.Told {
			next.Current = x.Current
		} else if was := t.workers[x.ID]; was != nil {
			next.Current = was.Current
		}
		t.workers[x.ID] = next
	}
	for _, k := range c.Keys {
		k.Holder, k.Was = machine.KeyHolder{}, belay.ExecutionID{}
		t.keys[k.Key] = keyRow{KeyRow: k}
	}
	t.writeObjects(c)
	t.writePlaces(c)
}

func refused(what string, id any) error {
	return &belay.Error{
		Code: belay.CodeInternal, Op: "commit",
		Message: fmt.Sprintf("%s %v: a new row exists already, or a row to change does not exist", what, id),
	}
}
