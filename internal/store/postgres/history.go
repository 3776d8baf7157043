package postgres

import (
	"iter"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// pieces cuts rows with payloads into statements of a bounded size.
func pieces[R any](rows []R, size func(R) int) iter.Seq[[]R] {
	const most = 8 << 20
	return func(yield func([]R) bool) {
		from, bytes := 0, 0
		for i, r := range rows {
			n := size(r)
			if i > from && bytes+n > most {
				if !yield(rows[from:i]) {
					return
				}
				from, bytes = i, 0
			}
			bytes += n
		}
		if from < len(rows) {
			yield(rows[from:])
		}
	}
}

const (
	// A run that is in its execution already is not added once more.
	newRuns = "INSERT INTO runs (" + runColumns + `)
SELECT u.*
FROM (
    SELECT unnest($1::uuid[]) AS id, unnest($2::bigint[]) AS token, unnest($3::uuid[]), unnest($4::integer[]), unnest($5::integer[]),
           unnest($6::bigint[]), unnest($7::bigint[]), unnest($8::bigint[]), unnest($9::bigint[]), unnest($10::bigint[]), unnest($11::bigint[]),
           unnest($12::smallint[]), unnest($13::boolean[]), unnest($14::uuid[]), unnest($15::bigint[]), unnest($16::smallint[]),
           unnest($17::text[]), unnest($18::text[]), unnest($19::bytea[]), unnest($20::bytea[]), unnest($21::uuid[]), unnest($22::bytea[])
) u
WHERE NOT EXISTS (SELECT 1 FROM executions e WHERE e.id = u.id AND e.token = u.token AND e.run_seq IS NOT NULL)`

	// The row of a run that was in its execution until it ended.
	insertEnded = `
INSERT INTO runs (execution, token, worker, attempt, generation, started_seq, started_at,
    ended_seq, ended_at, outcome, final, op, op_sum, cost, output, class, message, stack)
SELECT unnest($1::uuid[]), unnest($2::bigint[]), unnest($3::uuid[]), unnest($4::integer[]), unnest($5::integer[]), unnest($6::bigint[]),
       unnest($7::bigint[]), unnest($8::bigint[]), unnest($9::bigint[]), unnest($10::smallint[]), unnest($11::boolean[]), unnest($12::uuid[]),
       unnest($13::uuid[]), unnest($14::bigint[]), unnest($15::bytea[]), unnest($16::smallint[]), unnest($17::text[]), unnest($18::text[])`

	// The same for runs that have nothing to say but their output.
	insertQuiet = `
INSERT INTO runs (execution, token, worker, attempt, generation, started_seq, started_at, ended_seq, ended_at, outcome, final, op, op_sum, cost, output)
SELECT unnest($1::uuid[]), unnest($2::bigint[]), unnest($3::uuid[]), unnest($4::integer[]), unnest($5::integer[]), unnest($6::bigint[]),
       unnest($7::bigint[]), unnest($8::bigint[]), unnest($9::bigint[]), unnest($10::smallint[]), unnest($11::boolean[]), unnest($12::uuid[]),
       unnest($13::uuid[]), unnest($14::bigint[]), unnest($15::bytea[])`

	// The end of a run that has a row.
	runEnds = `
UPDATE runs r
SET ended_seq = u.ended_seq, ended_at = u.ended_at, outcome = u.outcome, final = u.final, op = u.op, op_sum = u.op_sum, cost = u.cost, output = u.output,
    class = u.class, message = u.message, stack = u.stack,
    started_seq = coalesce(u.started_seq, r.started_seq), started_at = CASE WHEN u.started_seq IS NULL THEN r.started_at ELSE u.started_at END
FROM (
    SELECT unnest($1::uuid[]) AS execution, unnest($2::bigint[]) AS token, unnest($3::bigint[]) AS ended_seq, unnest($4::bigint[]) AS ended_at,
           unnest($5::smallint[]) AS outcome, unnest($6::boolean[]) AS final, unnest($7::uuid[]) AS op, unnest($8::uuid[]) AS op_sum,
           unnest($9::bigint[]) AS cost, unnest($10::bytea[]) AS output, unnest($11::smallint[]) AS class, unnest($12::text[]) AS message,
           unnest($13::text[]) AS stack, unnest($14::bigint[]) AS started_seq, unnest($15::bigint[]) AS started_at
) u
WHERE r.execution = u.execution AND r.token = u.token`
)

var insertRuns, endRuns = counted(newRuns, 22), counted(runEnds, 15)

// plain reports whether of a run nothing is known but its begin.
func plain(r *machine.Run) bool {
	return r.New && r.StartedSeq != 0 && r.EndedSeq == 0 && r.ScheduledSeq == 0 && r.InputHash == nil && r.ConfigHash == nil
}

// begun are the executions whose run begins in these changes and has no row
// until it ends, with the seq of its begin.
func (t *tx) begun(c *machine.Changes) map[belay.ExecutionID]int64 {
	var tokens map[belay.ExecutionID]belay.Token
	begun := make(map[belay.ExecutionID]int64, len(c.Runs))
	for _, r := range c.Runs {
		if plain(r) {
			begun[r.Execution] = r.StartedSeq
			if tokens == nil {
				tokens = make(map[belay.ExecutionID]belay.Token, len(c.Runs))
			}
			tokens[r.Execution] = r.Token
		}
	}
	t.virtual = make(map[belay.ExecutionID]belay.Token, len(begun))
	for _, e := range c.Executions {
		if seq := begun[e.ID]; seq != 0 && e.State == belay.Running && e.Token == tokens[e.ID] && e.RunAt != 0 {
			t.virtual[e.ID] = e.Token
		}
	}
	for id := range begun {
		if _, ok := t.virtual[id]; !ok {
			delete(begun, id)
		}
	}
	return begun
}

// runs is the seq at which the run began that the execution is still in, if that
// run has no row.
func (s stored) runs(now *machine.Execution) int64 {
	if now.State == belay.Running && now.Token == s.Token {
		return s.runSeq
	}
	return 0
}

// writeRuns adds runs, those that begin when they end. Of a run that is there it
// writes the end, and the begin if it has one.
func (t *tx) writeRuns(p *pipe, c *machine.Changes) error {
	var fresh, quiet, loud, ended []*machine.Run
	for _, r := range c.Runs {
		old := t.executions[r.Execution]
		switch {
		case plain(r) && t.virtual[r.Execution] == r.Token:
		case r.New:
			fresh = append(fresh, r)
		case old == nil || old.runSeq == 0 || old.Token != r.Token:
			ended = append(ended, r)
		case r.Class == 0 && r.Message == "" && r.Stack == "":
			quiet = append(quiet, old.ended(r))
		default:
			loud = append(loud, old.ended(r))
		}
	}
	for rows := range pieces(fresh, output) {
		insertOthers(p, rows)
	}
	for rows := range pieces(quiet, output) {
		bindRun(p.add(insertQuiet, nil), rows)
	}
	for rows := range pieces(loud, output) {
		s := p.add(insertEnded, nil)
		bindRun(s, rows)
		bindFailures(s, rows)
	}
	for rows := range pieces(ended, output) {
		s := change(p, endRuns, "runs", len(rows))
		uuids(s, rows, func(r *machine.Run) [16]byte { return r.Execution })
		ints(s, int8s, rows, func(r *machine.Run) int64 { return int64(r.Token) })
		bindEnds(s, rows)
		bindFailures(s, rows)
		ints(s, int8OrNull, rows, func(r *machine.Run) int64 { return r.StartedSeq })
		ints(s, int8OrNull, rows, func(r *machine.Run) int64 { return int64(r.StartedAt) })
		s.int(int64(len(rows)))
	}
	return nil
}

// ended is the whole run that was in the execution and has ended.
func (s stored) ended(end *machine.Run) *machine.Run {
	r := *end
	begin := s.run()
	r.Worker, r.Attempt, r.Generation, r.StartedSeq, r.StartedAt = begin.Worker, begin.Attempt, begin.Generation, begin.StartedSeq, begin.StartedAt
	return &r
}

func bindRun(s *step, rows []*machine.Run) {
	bindRuns(s, rows)
	ints(s, int8OrNull, rows, func(r *machine.Run) int64 { return r.StartedSeq })
	ints(s, int8OrNull, rows, func(r *machine.Run) int64 { return int64(r.StartedAt) })
	bindEnds(s, rows)
}

func output(r *machine.Run) int { return len(r.Output) }

func bindRuns(s *step, rows []*machine.Run) {
	uuids(s, rows, func(r *machine.Run) [16]byte { return r.Execution })
	ints(s, int8s, rows, func(r *machine.Run) int64 { return int64(r.Token) })
	idList(s, rowsOf(rows, func(r *machine.Run) [16]byte { return r.Worker }))
	ints(s, int4s, rows, func(r *machine.Run) int64 { return int64(r.Attempt) })
	ints(s, int4s, rows, func(r *machine.Run) int64 { return int64(r.Generation) })
}

// rowsOf is one field of all rows.
func rowsOf[R, F any](rows []R, of func(R) F) []F {
	out := make([]F, len(rows))
	for i, r := range rows {
		out[i] = of(r)
	}
	return out
}

func insertOthers(p *pipe, rows []*machine.Run) {
	s := p.add(insertRuns, nil)
	s.miss = &belay.Error{Code: belay.CodeInternal, Op: "commit", Message: "a new run is there already"}
	bindRuns(s, rows)
	ints(s, int8OrNull, rows, func(r *machine.Run) int64 { return r.ScheduledSeq })
	ints(s, int8OrNull, rows, func(r *machine.Run) int64 { return int64(r.ScheduledAt) })
	ints(s, int8OrNull, rows, func(r *machine.Run) int64 { return r.StartedSeq })
	ints(s, int8OrNull, rows, func(r *machine.Run) int64 { return int64(r.StartedAt) })
	ints(s, int8OrNull, rows, func(r *machine.Run) int64 { return r.EndedSeq })
	ints(s, int8OrNull, rows, func(r *machine.Run) int64 { return int64(r.EndedAt) })
	ints(s, int2OrNull, rows, func(r *machine.Run) int64 { return int64(r.Outcome) })
	ints(s, boolOrNull, rows, func(r *machine.Run) int64 { return number(r.Final) })
	uuids(s, rows, func(r *machine.Run) [16]byte { return r.Op })
	ints(s, int8OrNull, rows, func(r *machine.Run) int64 { return r.Cost })
	bindFailures(s, rows)
	byteas(s, rows, func(r *machine.Run) []byte { return r.InputHash })
	byteas(s, rows, func(r *machine.Run) []byte { return r.ConfigHash })
	uuids(s, rows, func(r *machine.Run) [16]byte { return r.OpSum })
	byteas(s, rows, func(r *machine.Run) []byte { return r.Output })
	s.int(int64(len(rows)))
}

func bindEnds(s *step, rows []*machine.Run) {
	ints(s, int8OrNull, rows, func(r *machine.Run) int64 { return r.EndedSeq })
	ints(s, int8OrNull, rows, func(r *machine.Run) int64 { return int64(r.EndedAt) })
	ints(s, int2OrNull, rows, func(r *machine.Run) int64 { return int64(r.Outcome) })
	ints(s, boolOrNull, rows, func(r *machine.Run) int64 { return number(r.Final) })
	uuids(s, rows, func(r *machine.Run) [16]byte { return r.Op })
	uuids(s, rows, func(r *machine.Run) [16]byte { return r.OpSum })
	ints(s, int8OrNull, rows, func(r *machine.Run) int64 { return r.Cost })
	byteas(s, rows, func(r *machine.Run) []byte { return r.Output })
}

func bindFailures(s *step, rows []*machine.Run) {
	ints(s, int2OrNull, rows, func(r *machine.Run) int64 { return int64(r.Class) })
	textsOrNull(s, rows, func(r *machine.Run) string { return r.Message })
	textsOrNull(s, rows, func(r *machine.Run) string { return r.Stack })
}

const (
	insertCheckpoints = "INSERT INTO checkpoints (" + checkpointColumns + `, data)
SELECT unnest($1::uuid[]), unnest($2::bigint[]), unnest($3::smallint[]), unnest($4::text[]), unnest($5::bigint[]), unnest($6::uuid[]),
       unnest($7::bigint[]), unnest($8::bigint[]), unnest($9::boolean[]), unnest($10::uuid[]), unnest($11::bytea[])`
	pruneCheckpoints = `
UPDATE checkpoints c
SET data = NULL, pruned = true
FROM (SELECT unnest($1::uuid[]) AS execution, unnest($2::bigint[]) AS seq) u
WHERE c.execution = u.execution AND c.seq = u.seq`
)

func (t *tx) writeCheckpoints(p *pipe, c *machine.Changes) error {
	for rows := range pieces(c.Checkpoints, func(k *machine.Checkpoint) int { return len(k.Data) }) {
		s := p.add(insertCheckpoints, nil)
		uuids(s, rows, func(k *machine.Checkpoint) [16]byte { return k.Execution })
		ints(s, int8s, rows, func(k *machine.Checkpoint) int64 { return k.Seq })
		ints(s, int2s, rows, func(k *machine.Checkpoint) int64 { return int64(k.Kind) })
		texts(s, rows, func(k *machine.Checkpoint) string { return k.Key })
		ints(s, int8s, rows, func(k *machine.Checkpoint) int64 { return int64(k.Token) })
		uuids(s, rows, func(k *machine.Checkpoint) [16]byte { return k.Op })
		ints(s, int8s, rows, func(k *machine.Checkpoint) int64 { return int64(k.At) })
		ints(s, int8OrNull, rows, func(k *machine.Checkpoint) int64 { return k.Cost })
		ints(s, boolOrNull, rows, func(k *machine.Checkpoint) int64 { return number(k.Pruned) })
		uuids(s, rows, func(k *machine.Checkpoint) [16]byte { return k.OpSum })
		byteas(s, rows, func(k *machine.Checkpoint) []byte { return k.Data })
	}
	if len(c.Pruned) > 0 {
		s := p.add(pruneCheckpoints, nil)
		uuids(s, c.Pruned, func(r machine.SignalRef) [16]byte { return r.Execution })
		ints(s, int8s, c.Pruned, func(r machine.SignalRef) int64 { return r.Seq })
	}
	return nil
}

const (
	insertSignals = "INSERT INTO signals (" + signalColumns + `, payload)
SELECT unnest($1::uuid[]), unnest($2::bigint[]), unnest($3::text[]), unnest($4::uuid[]), unnest($5::uuid[]), unnest($6::bigint[]),
       unnest($7::bigint[]), unnest($8::uuid[]), unnest($9::bytea[])`
	consumeSignals = `
UPDATE signals s
SET consumed_by = u.consumed_by
FROM (SELECT unnest($1::uuid[]) AS execution, unnest($2::bigint[]) AS seq, unnest($3::bigint[]) AS consumed_by) u
WHERE s.execution = u.execution AND s.seq = u.seq`
)

func (t *tx) writeSignals(p *pipe, c *machine.Changes) error {
	for rows := range pieces(c.Signals, func(x *machine.Signal) int { return len(x.Payload) }) {
		s := p.add(insertSignals, nil)
		uuids(s, rows, func(x *machine.Signal) [16]byte { return x.Execution })
		ints(s, int8s, rows, func(x *machine.Signal) int64 { return x.Seq })
		texts(s, rows, func(x *machine.Signal) string { return x.Name })
		uuids(s, rows, func(x *machine.Signal) [16]byte { return x.Child })
		uuids(s, rows, func(x *machine.Signal) [16]byte { return x.Op })
		ints(s, int8s, rows, func(x *machine.Signal) int64 { return int64(x.At) })
		ints(s, int8OrNull, rows, func(x *machine.Signal) int64 { return x.ConsumedBy })
		uuids(s, rows, func(x *machine.Signal) [16]byte { return x.OpSum })
		byteas(s, rows, func(x *machine.Signal) []byte { return x.Payload })
	}
	if len(c.Consumed) > 0 {
		s := p.add(consumeSignals, nil)
		uuids(s, c.Consumed, func(x *machine.Signal) [16]byte { return x.Execution })
		ints(s, int8s, c.Consumed, func(x *machine.Signal) int64 { return x.Seq })
		ints(s, int8OrNull, c.Consumed, func(x *machine.Signal) int64 { return x.ConsumedBy })
	}
	return nil
}
