package postgres

import (
	"iter"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store/table"
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

var (
	// A run that is in its execution already is not added once more.
	insertRuns = counted("INSERT INTO runs ("+table.Runs.Names()+") SELECT u.* FROM (SELECT "+given(table.Runs)+`) u
WHERE NOT EXISTS (SELECT 1 FROM executions e WHERE e.id = u.execution AND e.token = u.token AND e.run_seq IS NOT NULL)`,
		len(table.Runs.Columns))

	// The row of a run that was in its execution until it ended, and of one that has nothing to say but its output.
	loudRuns = table.Runs.Only("execution, token, worker, attempt, generation, started_seq, started_at, " +
		"ended_seq, ended_at, outcome, final, op, op_sum, cost, output, class, message, stack")
	quietRuns   = loudRuns.First(-3)
	insertEnded = insert(loudRuns)
	insertQuiet = insert(quietRuns)

	// The end of a run that has a row, and its begin if that is known.
	runEnds = table.Runs.Only("ended_seq, ended_at, outcome, final, op, op_sum, cost, output, class, message, stack, " +
		"started_seq, started_at, execution, token")
	endRuns = counted(strings.NewReplacer(
		"started_seq = u.started_seq", "started_seq = coalesce(u.started_seq, t.started_seq)",
		"started_at = u.started_at", "started_at = CASE WHEN u.started_seq IS NULL THEN t.started_at ELSE "+
			"u.started_at END",
	).Replace(update(runEnds, "execution, token")), len(runEnds.Columns))
)

// plain reports whether of a run nothing is known but its begin.
func plain(r *machine.Run) bool {
	return r.New && r.StartedSeq != 0 && r.EndedSeq == 0 && r.ScheduledSeq == 0 && r.InputHash == nil &&
		r.ConfigHash == nil
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
		s := p.add(insertRuns, nil)
		s.miss = &belay.Error{Code: belay.CodeInternal, Op: "commit", Message: "a new run is there already"}
		bind(s, table.Runs, rows).int(int64(len(rows)))
	}
	for rows := range pieces(quiet, output) {
		bind(p.add(insertQuiet, nil), quietRuns, rows)
	}
	for rows := range pieces(loud, output) {
		bind(p.add(insertEnded, nil), loudRuns, rows)
	}
	for rows := range pieces(ended, output) {
		bind(change(p, endRuns, "runs", len(rows)), runEnds, rows).int(int64(len(rows)))
	}
	return nil
}

// ended is the whole run that was in the execution and has ended.
func (s stored) ended(end *machine.Run) *machine.Run {
	r := *end
	begin := s.run()
	r.Worker, r.Attempt, r.Generation, r.StartedSeq, r.StartedAt = begin.Worker, begin.Attempt, begin.Generation,
		begin.StartedSeq, begin.StartedAt
	return &r
}

func output(r *machine.Run) int { return len(r.Output) }

// rowsOf is one field of all rows.
func rowsOf[R, F any](rows []R, of func(R) F) []F {
	out := make([]F, len(rows))
	for i, r := range rows {
		out[i] = of(r)
	}
	return out
}

var insertCheckpoints = insert(table.Checkpoints)

const pruneCheckpoints = `
UPDATE checkpoints c
SET data = NULL, pruned = true
FROM (SELECT unnest($1::uuid[]) AS execution, unnest($2::bigint[]) AS seq) u
WHERE c.execution = u.execution AND c.seq = u.seq`

func (t *tx) writeCheckpoints(p *pipe, c *machine.Changes) error {
	for rows := range pieces(c.Checkpoints, func(k *machine.Checkpoint) int { return len(k.Data) }) {
		bind(p.add(insertCheckpoints, nil), table.Checkpoints, rows)
	}
	if len(c.Pruned) > 0 {
		s := p.add(pruneCheckpoints, nil)
		uuids(s, c.Pruned, func(r machine.SignalRef) [16]byte { return r.Execution })
		ints(s, int8s, c.Pruned, func(r machine.SignalRef) int64 { return r.Seq })
	}
	return nil
}

var (
	insertSignals  = insert(table.Signals)
	consumed       = table.Signals.Only("consumed_by, execution, seq")
	consumeSignals = update(consumed, "execution, seq")
)

func (t *tx) writeSignals(p *pipe, c *machine.Changes) error {
	for rows := range pieces(c.Signals, func(x *machine.Signal) int { return len(x.Payload) }) {
		bind(p.add(insertSignals, nil), table.Signals, rows)
	}
	if len(c.Consumed) > 0 {
		bind(p.add(consumeSignals, nil), consumed, c.Consumed)
	}
	return nil
}
