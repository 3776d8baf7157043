package postgres

import (
	"iter"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store/table"
)

// pieces divides rows with payloads into parts for statements of a limited size.
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
	// The statement does not add a run that the row of its execution already contains (in run_seq).
	insertRuns = counted("INSERT INTO runs ("+table.Runs.Names()+") SELECT u.* FROM (SELECT "+arrayArguments(table.Runs)+`) u
WHERE NOT EXISTS (SELECT 1 FROM executions e WHERE e.id = u.execution AND e.token = u.token AND e.run_seq IS NOT NULL)`,
		len(table.Runs.Columns))

	// Inserts for runs whose row is written only when they end: with and without an error.
	runsWithError = table.Runs.Only("execution, token, worker, attempt, generation, started_seq, started_at, " +
		"ended_seq, ended_at, outcome, final, op, op_sum, cost, cost_rest, output, steps, class, message, stack, failed_by")
	runsWithoutError = runsWithError.First(-4)
	insertEnded      = insert(runsWithError)
	insertQuiet      = insert(runsWithoutError)

	// Updates for the end of a run that has a row, and for its start if the change has a start.
	runEnds = table.Runs.Only("ended_seq, ended_at, outcome, final, op, op_sum, cost, cost_rest, output, steps, " +
		"class, message, stack, failed_by, started_seq, started_at, execution, token")
	endRuns = counted(strings.NewReplacer(
		"started_seq = u.started_seq", "started_seq = coalesce(u.started_seq, t.started_seq)",
		"started_at = u.started_at", "started_at = CASE WHEN u.started_seq IS NULL THEN t.started_at ELSE "+
			"u.started_at END",
	).Replace(update(runEnds, "execution, token")), len(runEnds.Columns))
)

// onlyStarted reports whether nothing but the start of a run is known.
func onlyStarted(r *machine.Run) bool {
	return r.New && r.StartedSeq != 0 && r.EndedSeq == 0 && r.ScheduledSeq == 0 && r.InputHash == nil &&
		r.ConfigHash == nil
}

// begun returns the executions whose run begins in these changes and gets its row in the table of
// runs only when the run ends. The value for each execution is the seq of the run's start.
func (t *tx) begun(c *machine.Changes) map[belay.ExecutionID]int64 {
	var tokens map[belay.ExecutionID]belay.Token
	begun := make(map[belay.ExecutionID]int64, len(c.Runs))
	for _, r := range c.Runs {
		if onlyStarted(r) {
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

// runs returns the seq at which the execution's run started, if the changed execution (now) is
// still in the same run and the table of runs has no row for that run; otherwise 0.
func (s stored) runs(now *machine.Execution) int64 {
	if now.State == belay.Running && now.Token == s.Token {
		return s.runSeq
	}
	return 0
}

// writeRuns adds new runs. A run whose start is in the execution's row gets its own row when it
// ends. For a run that has a row, writeRuns updates the end, and the start if the change has a
// start.
func (t *tx) writeRuns(p *pipe, c *machine.Changes) error {
	var fresh, withoutError, withError, ended []*machine.Run
	for _, r := range c.Runs {
		old := t.executions[r.Execution]
		switch {
		case onlyStarted(r) && t.virtual[r.Execution] == r.Token:
		case r.New:
			fresh = append(fresh, r)
		case old == nil || old.runSeq == 0 || old.Token != r.Token:
			ended = append(ended, r)
		case r.Class == 0 && r.Message == "" && r.Stack == "":
			withoutError = append(withoutError, old.ended(r))
		default:
			withError = append(withError, old.ended(r))
		}
	}
	for rows := range pieces(fresh, output) {
		s := p.add(insertRuns, nil)
		s.miss = &belay.Error{Code: belay.CodeInternal, Op: "commit", Message: "a new run is there already"}
		bind(s, table.Runs, rows).int(int64(len(rows)))
	}
	for rows := range pieces(withoutError, output) {
		bind(p.add(insertQuiet, nil), runsWithoutError, rows)
	}
	for rows := range pieces(withError, output) {
		bind(p.add(insertEnded, nil), runsWithError, rows)
	}
	for rows := range pieces(ended, output) {
		bind(change(p, endRuns, "runs", len(rows)), runEnds, rows).int(int64(len(rows)))
	}
	return nil
}

// ended returns a copy of an ended run with the data of its start (worker, attempt, generation, seq
// and time). Until the run ends, only the execution's row contains this data.
func (s stored) ended(end *machine.Run) *machine.Run {
	r := *end
	begin := s.run()
	r.Worker, r.Attempt, r.Generation, r.StartedSeq, r.StartedAt = begin.Worker, begin.Attempt, begin.Generation,
		begin.StartedSeq, begin.StartedAt
	return &r
}

func output(r *machine.Run) int { return len(r.Output) }

// rowsOf returns one field of all rows.
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
