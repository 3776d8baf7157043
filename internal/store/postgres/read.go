package postgres

import (
	"context"
	"math"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

// query runs the statements that ask adds, in one snapshot and one round trip. If the connection
// turns out to have ended, query calls ask again with a new connection.
func (s *Store) query(ctx context.Context, ask func(*pipe)) error {
	return s.read(ctx, func(ctx context.Context, c *conn) error {
		p := c.pipe()
		p.add("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", nil)
		ask(p)
		p.add("COMMIT", nil)
		return p.run(ctx)
	})
}

// read calls do with a connection of the pool. If the connection turns out to have ended, read
// calls do again with a new connection.
func (s *Store) read(ctx context.Context, do func(context.Context, *conn) error) error {
	readers := s.readers
	if store.IsUrgent(ctx) {
		readers = s.vital
	}
	c, err := readers.take(ctx)
	if err != nil {
		return err
	}
	defer func() { readers <- c }()
	for n := 0; ; n++ {
		err := s.readOnce(ctx, c, do)
		if err == nil {
			return nil
		}
		if c.conn != nil && (c.pg.IsClosed() || c.pg.TxStatus() != 'I') {
			c.drop()
		}
		if !lost(err) || n == 2 || ctx.Err() != nil {
			return err
		}
	}
}

func (s *Store) readOnce(ctx context.Context, c *slot, do func(context.Context, *conn) error) error {
	if err := s.usable(); err != nil {
		return err
	}
	if err := s.connected(ctx, c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.Patience)
	defer cancel()
	return s.outdated(ctx, c.conn, s.damaged(do(ctx, c.conn)))
}

// Read implements store.Store.
func (s *Store) Read(ctx context.Context, q store.Read) (*machine.Record, error) {
	op := "read " + q.Execution.String()
	var rec *machine.Record
	var last [2]int64
	err := s.query(ctx, func(p *pipe) {
		rec, last = &machine.Record{}, [2]int64{}
		reading{p, q, rec, &last}.ask()
	})
	switch {
	case err != nil:
		return nil, classify(op, err)
	case rec.Execution == nil:
		return nil, &belay.Error{
			Code: belay.CodeNotFound, Op: "read", Message: "there is no execution " + q.Execution.String(),
		}
	}
	if store.Tidy(rec); q.Bytes > 0 {
		store.Page(rec, last[0], last[1])
	}
	return rec, nil
}

// reading reads the rows of one execution.
type reading struct {
	*pipe
	q    store.Read
	rec  *machine.Record
	last *[2]int64 // seq of the newest checkpoint and signal to resume from
}

var selectExecution = "SELECT " + executionColumns + " FROM executions e WHERE e.id = $1::uuid"

var (
	selectSpec = "SELECT " + specColumns + " FROM specs WHERE execution = $1::uuid " +
		"AND generation <= $2::bigint ORDER BY generation DESC LIMIT 1"
	selectLastRuns = selectRuns + " WHERE execution = $1::uuid ORDER BY token DESC LIMIT $2::bigint"

	runsAfter = " WHERE execution = $1::uuid AND (ended_seq IS NULL OR ended_seq > $2::bigint) ORDER BY token " +
		"LIMIT $3::bigint"
	after = " WHERE execution = $1::uuid AND seq > $2::bigint ORDER BY seq LIMIT $3::bigint"

	// A checkpoint is valid if it has its data and is the newest of its kind and key. The last
	// column is the newest seq of the valid checkpoints. The outer query repeats the lower bound,
	// without which the planner may read all earlier rows of the execution.
	selectResumed = `WITH counting AS (
    SELECT DISTINCT ON (kind, key) seq, coalesce(octet_length(data), 0) + 200 AS size
    FROM checkpoints
    WHERE execution = $1::uuid AND pruned IS NULL
      AND seq > greatest($2::bigint, (SELECT coalesce(base_seq, 0) FROM executions WHERE id = $1::uuid))
    ORDER BY kind, key, seq DESC
), page AS (
    SELECT seq, sum(size) OVER (ORDER BY seq) - size AS before FROM counting
)
SELECT ` + table.Checkpoints.Names() + `, (SELECT max(seq) FROM page)
FROM checkpoints
WHERE execution = $1::uuid AND seq > $2::bigint AND seq IN (SELECT seq FROM page WHERE before < $3::bigint)
ORDER BY seq`
	selectUnconsumed = `WITH page AS (
    SELECT seq, sum(coalesce(octet_length(payload), 0) + 200) OVER (ORDER BY seq) - coalesce(octet_length(payload), 0) - 200 AS before
    FROM signals
    WHERE execution = $1::uuid AND consumed_by IS NULL
      AND seq > greatest($2::bigint, (SELECT coalesce(base_seq, 0) FROM executions WHERE id = $1::uuid))
)
SELECT ` + table.Signals.Names() + `, (SELECT max(seq) FROM page)
FROM signals
WHERE execution = $1::uuid AND seq > $2::bigint AND seq IN (SELECT seq FROM page WHERE before < $3::bigint)
ORDER BY seq`
)

func (r reading) ask() {
	run, checkpoint, signal := into(table.Runs, &r.rec.Runs), into(table.Checkpoints, &r.rec.Checkpoints),
		into(table.Signals, &r.rec.Signals)
	n := max(int64(r.q.Runs), table.Number(r.q.Run))
	r.add(selectExecution, func(row columns) error {
		e, err := r.scan(row)
		r.rec.Execution = e.Execution
		if open := e.run(); open != nil && (n > 0 || r.q.History) {
			r.rec.Runs = append(r.rec.Runs, open)
			n-- // the open run is the newest one
		}
		if open := e.run(); open != nil && r.q.Detail {
			r.countOpen(open)
		}
		return err
	}).id(r.q.Execution)
	if r.q.Spec {
		r.add(selectSpec, func(row columns) (err error) {
			r.rec.Spec, err = scanSpec(row)
			return err
		}).id(r.q.Execution).int(r.q.UpTo())
	}
	if n > 0 {
		r.add(selectLastRuns, func(row columns) error {
			if n--; n < 0 {
				return nil
			}
			return run(row)
		}).id(r.q.Execution).int(n)
	}
	if r.q.History {
		r.history()
	}
	if r.q.Detail {
		r.detail()
	}
	if r.q.Resume {
		r.add(selectResumed, func(row columns) error {
			r.last[0] = row.int(len(row) - 1)
			return checkpoint(row)
		}).id(r.q.Execution).int(r.q.ResumeAfter).int(r.q.Budget())
	}
	if r.q.Resume || r.q.Signals {
		r.add(selectUnconsumed, func(row columns) error {
			r.last[1] = row.int(len(row) - 1)
			return signal(row)
		}).id(r.q.Execution).int(r.q.ResumeAfter).int(r.q.Budget())
	}
}

// history reads, of each kind, the first N rows that have an event after a seq. Together these rows
// contain the first N events after the seq, because each row has at least one event; the row of a run
// may have two, the run's start and its end. A run that has not ended may have started before the
// seq. Only the newest run can have no end, and history reads it last.
func (r reading) history() {
	limit := int64(math.MaxInt64)
	if r.q.Limit > 0 {
		limit = int64(r.q.Limit)
	}
	runs, checkpoints, signals := selectRunHeads, selectCheckpointHeads, selectSignalHeads
	if r.q.Data {
		runs, checkpoints, signals = selectRuns, selectCheckpoints, selectSignals
	}
	if r.q.After < 1 {
		r.add(selectCreatedBy, func(row columns) error {
			r.rec.CreatedBy = row.text(0)
			return nil
		}).id(r.q.Execution)
	}
	r.add(runs+runsAfter, into(table.Runs, &r.rec.Runs)).id(r.q.Execution).int(r.q.After).int(limit)
	r.add(checkpoints+after, into(table.Checkpoints, &r.rec.Checkpoints)).id(r.q.Execution).int(r.q.After).int(limit)
	r.add(signals+after, into(table.Signals, &r.rec.Signals)).id(r.q.Execution).int(r.q.After).int(limit)
	r.add(selectDeeds+after, into(table.Deeds, &r.rec.Deeds)).id(r.q.Execution).int(r.q.After).int(limit)
}
