package sqlite

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// The rows that commands name one by one: what may be a repetition, and what
// another row refers to.

func (t *tx) loadKeys(rows *machine.Rows, keys []machine.Key) error {
	for _, k := range unique(keys) {
		t.args.text(k.Workflow)
		t.args.text(k.Key)
		err := t.query(t.ctx, selectKey, func(r columns) error {
			rows.Keys = append(rows.Keys, machine.KeyRow{Key: k, Execution: r.id(0), Hash: r.hash(1), At: machine.Time(r.int(2))})
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

const selectKey = "SELECT execution, hash, at FROM idempotency WHERE workflow = ? AND key = ?"

func (t *tx) loadRuns(rows *machine.Rows, ids []belay.RunID) error {
	for _, id := range unique(ids) {
		t.args.blob(id.Execution[:])
		t.args.int(int64(id.Token))
		err := t.query(t.ctx, selectRuns+" WHERE execution = ? AND token = ?", func(r columns) error {
			rows.Runs = append(rows.Runs, scanRun(r))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) loadOps(rows *machine.Rows, refs []machine.OpRef) error {
	for _, ref := range unique(refs) {
		for range 4 {
			t.args.blob(ref.Execution[:])
			t.args.blob(ref.Op[:])
		}
		err := t.query(t.ctx, selectOp, func(r columns) error {
			rows.Ops = append(rows.Ops, machine.Op{OpRef: ref, Seq: r.int(0), Sum: r.id(1)})
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

const selectOp = `
SELECT seq, op_sum FROM checkpoints WHERE execution = ? AND op = ?
UNION ALL
SELECT seq, op_sum FROM signals WHERE execution = ? AND op = ?
UNION ALL
SELECT seq, op_sum FROM actions WHERE execution = ? AND op = ?
UNION ALL
SELECT ended_seq, op_sum FROM runs WHERE execution = ? AND op = ?
LIMIT 1`

func (t *tx) loadSignals(rows *machine.Rows, refs []machine.SignalRef) error {
	for _, ref := range unique(refs) {
		t.args.blob(ref.Execution[:])
		t.args.int(ref.Seq)
		err := t.query(t.ctx, selectSignals+" WHERE execution = ? AND seq = ?", func(r columns) error {
			rows.Signals = append(rows.Signals, scanSignal(r))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) loadChunks(rows *machine.Rows, refs []machine.ChunkRef) error {
	for _, ref := range unique(refs) {
		t.args.blob(ref.Execution[:])
		t.args.text(ref.Name)
		t.args.int(ref.N)
		err := t.query(t.ctx, selectChunkHeads+" WHERE execution = ? AND name = ? AND n = ?", func(r columns) error {
			rows.Chunks = append(rows.Chunks, scanChunk(r))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// loadDrops loads the heads of the chunks that are about to go.
func (t *tx) loadDrops(rows *machine.Rows, drops []machine.ChunkDrop) error {
	for _, d := range unique(drops) {
		t.args.blob(d.Execution[:])
		t.args.text(d.Name)
		t.args.int(d.From)
		t.args.int(d.To)
		err := t.query(t.ctx, selectChunkHeads+" WHERE execution = ? AND name = ? AND n >= ? AND n < ? ORDER BY n", func(r columns) error {
			rows.Chunks = append(rows.Chunks, scanChunk(r))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) loadSums(rows *machine.Rows, refs []machine.SumRef) error {
	for _, ref := range unique(refs) {
		t.args.blob(ref.Execution[:])
		t.args.text(ref.Name)
		err := t.query(t.ctx, selectSums+" WHERE execution = ? AND name = ?", func(r columns) error {
			rows.Sums = append(rows.Sums, scanSum(r))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) loadCheckpoints(rows *machine.Rows, ids []belay.ExecutionID) error {
	for _, id := range unique(ids) {
		t.args.blob(id[:])
		err := t.query(t.ctx, selectCheckpoints+" WHERE execution = ? ORDER BY seq", func(r columns) error {
			rows.Checkpoints = append(rows.Checkpoints, scanCheckpoint(r))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
