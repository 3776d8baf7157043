package postgres

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store/table"
)

// The loads in this file read single rows that commands name: the results of operations that may be
// repeated, and rows to which another row refers. The lock on the execution protects these rows
// too.

func (t *tx) loadNamed(p *pipe, need machine.Need) {
	t.loadKeys(p, unique(need.Keys))
	t.loadLetters(p, need.Letters)
	t.loadRuns(p, unique(need.Runs))
	t.loadOps(p, unique(need.Ops))
	t.loadSignals(p, unique(need.Signals))
	t.loadChunks(p, unique(need.Chunks))
	t.loadDrops(p, unique(need.Drops))
	t.loadSums(p, unique(need.Sums))
	t.loadCheckpoints(p, unique(need.Checkpoints))
	t.loadMailboxes(p, unique(need.Mailboxes))
	t.loadObjects(p, unique(need.Objects))
	t.findLaneGates(p, unique(need.LaneGates))
}

const selectKeys = `
SELECT k.workflow, k.key, k.execution, k.hash, k.at, e.state, e.input_gen, e.cancel_by, e.reason
FROM (SELECT unnest($1::text[]) AS workflow, unnest($2::text[]) AS key) u
JOIN idempotency k ON k.workflow = u.workflow AND k.key = u.key
LEFT JOIN executions e ON e.id = k.execution`

func (t *tx) loadKeys(p *pipe, keys []machine.Key) {
	if len(keys) == 0 {
		return
	}
	s := p.add(selectKeys, values(table.HeldKeys, &t.rows.Keys))
	texts(s, keys, func(k machine.Key) string { return k.Workflow })
	texts(s, keys, func(k machine.Key) string { return k.Key })
}

var (
	selectNamedRuns = "SELECT r.* FROM (SELECT unnest($1::uuid[]) AS id, unnest($2::bigint[]) AS token) u CROSS " +
		"JOIN LATERAL (" +
		selectRuns + " WHERE execution = u.id AND token = u.token UNION ALL " + selectOpenRuns +
		" WHERE id = u.id AND token = u.token AND run_seq IS NOT NULL) r"

	// selectOpenRuns selects runs that have no row in the table of runs, from the rows of their
	// executions.
	selectOpenRuns = "SELECT id, token, worker, coalesce(attempts, 0) + 1, generation, NULL, NULL, run_seq, run_at, " +
		"NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM executions"
)

func (t *tx) loadRuns(p *pipe, all []belay.RunID) {
	if len(all) == 0 {
		return
	}
	s := p.add(selectNamedRuns, into(table.Runs, &t.rows.Runs))
	uuids(s, all, func(id belay.RunID) [16]byte { return id.Execution })
	ints(s, int8s, all, func(id belay.RunID) int64 { return int64(id.Token) })
}

const selectOps = `
SELECT u.id, u.op, o.seq, o.op_sum
FROM (SELECT unnest($1::uuid[]) AS id, unnest($2::uuid[]) AS op) u
CROSS JOIN LATERAL (
    SELECT seq, op_sum FROM checkpoints WHERE execution = u.id AND op = u.op
    UNION ALL
    SELECT seq, op_sum FROM signals WHERE execution = u.id AND op = u.op
    UNION ALL
    SELECT seq, op_sum FROM actions WHERE execution = u.id AND op = u.op
    UNION ALL
    SELECT ended_seq, op_sum FROM runs WHERE execution = u.id AND op = u.op
    LIMIT 1
) o`

func (t *tx) loadOps(p *pipe, refs []machine.OpRef) {
	if len(refs) == 0 {
		return
	}
	s := p.add(selectOps, func(r columns) error {
		t.rows.Ops = append(t.rows.Ops, machine.Op{
			OpRef: machine.OpRef{Execution: r.id(0), Op: r.id(1)}, Seq: r.int(2), Sum: r.id(3),
		})
		return nil
	})
	uuids(s, refs, func(ref machine.OpRef) [16]byte { return ref.Execution })
	uuids(s, refs, func(ref machine.OpRef) [16]byte { return ref.Op })
}

var selectNamedSignals = "SELECT s.* FROM (SELECT unnest($1::uuid[]) AS id, unnest($2::bigint[]) AS seq) u CROSS " +
	"JOIN LATERAL (" +
	selectSignals + " WHERE execution = u.id AND seq = u.seq) s"

func (t *tx) loadSignals(p *pipe, refs []machine.SignalRef) {
	if len(refs) == 0 {
		return
	}
	s := p.add(selectNamedSignals, into(table.Signals, &t.rows.Signals))
	uuids(s, refs, func(ref machine.SignalRef) [16]byte { return ref.Execution })
	ints(s, int8s, refs, func(ref machine.SignalRef) int64 { return ref.Seq })
}

var selectNamedChunks = "SELECT c.* FROM (SELECT unnest($1::uuid[]) AS id, unnest($2::text[]) AS name, " +
	"unnest($3::bigint[]) AS n) u" +
	" CROSS JOIN LATERAL (" + selectChunkHeads + " WHERE execution = u.id AND name = u.name AND n = u.n) c"

func (t *tx) loadChunks(p *pipe, refs []machine.ChunkRef) {
	if len(refs) == 0 {
		return
	}
	s := p.add(selectNamedChunks, values(table.Chunks, &t.rows.Chunks))
	uuids(s, refs, func(ref machine.ChunkRef) [16]byte { return ref.Execution })
	texts(s, refs, func(ref machine.ChunkRef) string { return ref.Name })
	ints(s, int8s, refs, func(ref machine.ChunkRef) int64 { return ref.N })
}

var selectDrops = "SELECT c.* FROM (SELECT unnest($1::uuid[]) AS id, unnest($2::text[]) AS name, " +
	"unnest($3::bigint[]) AS low, unnest($4::bigint[]) AS high) u" +
	" CROSS JOIN LATERAL (" + selectChunkHeads +
	" WHERE execution = u.id AND name = u.name AND n >= u.low AND n < u.high ORDER BY n) c"

// loadDrops loads the chunks that will be deleted, without their data.
func (t *tx) loadDrops(p *pipe, drops []machine.ChunkDrop) {
	if len(drops) > 0 {
		bindDrops(p.add(selectDrops, values(table.Chunks, &t.rows.Chunks)), drops)
	}
}

func bindDrops(s *step, drops []machine.ChunkDrop) {
	uuids(s, drops, func(d machine.ChunkDrop) [16]byte { return d.Execution })
	texts(s, drops, func(d machine.ChunkDrop) string { return d.Name })
	ints(s, int8s, drops, func(d machine.ChunkDrop) int64 { return d.From })
	ints(s, int8s, drops, func(d machine.ChunkDrop) int64 { return d.To })
}

var selectSums = "SELECT b.* FROM (SELECT unnest($1::uuid[]) AS id, unnest($2::text[]) AS name) u CROSS JOIN " +
	"LATERAL (" +
	selecting(table.Sums) + " WHERE execution = u.id AND name = u.name) b"

func (t *tx) loadSums(p *pipe, refs []machine.SumRef) {
	if len(refs) == 0 {
		return
	}
	s := p.add(selectSums, into(table.Sums, &t.rows.Sums))
	uuids(s, refs, func(ref machine.SumRef) [16]byte { return ref.Execution })
	texts(s, refs, func(ref machine.SumRef) string { return ref.Name })
}

var selectAllCheckpoints = "SELECT c.* FROM (SELECT unnest($1::uuid[]) AS id) u CROSS JOIN LATERAL (" +
	selectCheckpoints +
	" WHERE execution = u.id ORDER BY seq) c"

func (t *tx) loadCheckpoints(p *pipe, all []belay.ExecutionID) {
	if len(all) == 0 {
		return
	}
	idList(p.add(selectAllCheckpoints, into(table.Checkpoints, &t.rows.Checkpoints)), all)
}

var selectMailboxes = "SELECT s.* FROM (SELECT unnest($1::uuid[]) AS id) u CROSS JOIN LATERAL (" +
	selectSignals +
	" WHERE execution = u.id ORDER BY seq) s"

func (t *tx) loadMailboxes(p *pipe, all []belay.ExecutionID) {
	if len(all) > 0 {
		idList(p.add(selectMailboxes, into(table.Signals, &t.rows.Signals)), all)
	}
}
