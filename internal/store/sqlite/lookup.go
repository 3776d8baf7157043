package sqlite

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store/table"
)

// This file loads single rows that commands name: the results of operations that may be repeated,
// and rows to which another row refers.

// forEach runs a statement once for each different name.
func forEach[K comparable](t *tx, names []K, text string, arguments func(*args, K), row func(columns) error) error {
	for _, k := range unique(names) {
		arguments(&t.args, k)
		if err := t.query(t.ctx, text, row); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) loadKeys(rows *machine.Rows, keys []machine.Key) error {
	return forEach(t, keys, selectKey, func(a *args, k machine.Key) {
		a.text(k.Workflow).text(k.Key)
	}, values(table.HeldKeys, &rows.Keys))
}

const selectKey = `
SELECT k.workflow, k.key, k.execution, k.hash, k.at, e.state, e.input_gen, e.cancel_by, e.reason
FROM idempotency k
LEFT JOIN executions e ON e.id = k.execution
WHERE k.workflow = ? AND k.key = ?`

func (t *tx) loadRuns(rows *machine.Rows, ids []belay.RunID) error {
	return forEach(t, ids, selectRuns+" WHERE execution = ? AND token = ?", func(a *args, id belay.RunID) {
		a.blob(id.Execution[:]).int(int64(id.Token))
	}, into(table.Runs, &rows.Runs))
}

func (t *tx) loadOps(rows *machine.Rows, refs []machine.OpRef) error {
	var asked machine.OpRef
	return forEach(t, refs, selectOp, func(a *args, ref machine.OpRef) {
		asked = ref
		for range 4 {
			a.blob(ref.Execution[:]).blob(ref.Op[:])
		}
	}, func(r columns) error {
		rows.Ops = append(rows.Ops, machine.Op{OpRef: asked, Seq: r.int(0), Sum: r.id(1)})
		return nil
	})
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
	return forEach(t, refs, selectSignals+" WHERE execution = ? AND seq = ?", func(a *args, ref machine.SignalRef) {
		a.blob(ref.Execution[:]).int(ref.Seq)
	}, into(table.Signals, &rows.Signals))
}

func (t *tx) loadChunks(rows *machine.Rows, refs []machine.ChunkRef) error {
	return forEach(t, refs, selectChunkHeads+" WHERE execution = ? AND name = ? AND n = ?",
		func(a *args, ref machine.ChunkRef) {
			a.blob(ref.Execution[:]).text(ref.Name).int(ref.N)
		}, values(table.Chunks, &rows.Chunks))
}

// loadDrops loads the chunks that will be deleted, without their data.
func (t *tx) loadDrops(rows *machine.Rows, drops []machine.ChunkDrop) error {
	return forEach(t, drops, selectChunkHeads+" WHERE execution = ? AND name = ? AND n >= ? AND n < ? ORDER BY n",
		func(a *args, d machine.ChunkDrop) {
			a.blob(d.Execution[:]).text(d.Name).int(d.From).int(d.To)
		}, values(table.Chunks, &rows.Chunks))
}

func (t *tx) loadSums(rows *machine.Rows, refs []machine.SumRef) error {
	return forEach(t, refs, selectSums+" WHERE execution = ? AND name = ?", func(a *args, ref machine.SumRef) {
		a.blob(ref.Execution[:]).text(ref.Name)
	}, into(table.Sums, &rows.Sums))
}

func (t *tx) loadCheckpoints(rows *machine.Rows, ids []belay.ExecutionID) error {
	return forEach(t, ids, selectCheckpoints+" WHERE execution = ? ORDER BY seq", func(a *args, id belay.ExecutionID) {
		a.blob(id[:])
	}, into(table.Checkpoints, &rows.Checkpoints))
}

func (t *tx) loadMailboxes(rows *machine.Rows, ids []belay.ExecutionID) error {
	return forEach(t, ids, selectSignals+" WHERE execution = ? ORDER BY seq", func(a *args, id belay.ExecutionID) {
		a.blob(id[:])
	}, into(table.Signals, &rows.Signals))
}
