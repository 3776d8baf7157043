package sqlite

import (
	"cmp"
	"context"
	"errors"
	"math"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

// read runs queries in one snapshot on a connection of the pool. A connection is replaced after an
// error.
func (s *Store) read(ctx context.Context, do func(context.Context, *conn) error) (err error) {
	var c *conn
	readers := s.readers
	if store.IsUrgent(ctx) {
		readers = s.vital
	}
	select {
	case c = <-readers:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() {
		if err != nil && c != nil && belay.CodeOf(err) != belay.CodeNotFound {
			err = errors.Join(err, c.close())
			c = nil
		}
		readers <- c
	}()
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return &belay.Error{Code: belay.CodeUnavailable, Message: "the store is closed"}
	}
	if c == nil {
		if c, err = connect(ctx, s.connector); err != nil {
			return err
		}
	}
	if _, err := c.exec(ctx, "BEGIN"); err != nil {
		return s.damaged(err)
	}
	err = s.damaged(do(ctx, c))
	_, end := c.exec(context.WithoutCancel(ctx), "COMMIT")
	return firstOf(err, end)
}

// firstOf returns the first error that is not nil.
func firstOf(errs ...error) error { return cmp.Or(errs...) }

// Read implements store.Store.
func (s *Store) Read(ctx context.Context, q store.Read) (*machine.Record, error) {
	op := "read " + q.Execution.String()
	var rec *machine.Record
	err := s.read(ctx, func(ctx context.Context, c *conn) error {
		var err error
		rec, err = readRecord(ctx, c, q)
		return err
	})
	return rec, classify(op, err)
}

func readRecord(ctx context.Context, c *conn, q store.Read) (*machine.Record, error) {
	r := reading{conn: c, ctx: ctx, id: q.Execution}
	rec := &machine.Record{}
	err := r.query(selectExecutions+" WHERE id = ?", nil, func(row columns) (err error) {
		rec.Execution, err = c.scanExecution(row)
		return err
	})
	if err != nil {
		return nil, err
	}
	if rec.Execution == nil {
		return nil, &belay.Error{
			Code: belay.CodeNotFound, Op: "read", Message: "there is no execution " + q.Execution.String(),
		}
	}
	if q.Spec {
		rec.Spec, err = r.spec(q.UpTo())
	}
	if err == nil && q.Run {
		err = r.query(selectRuns+" WHERE execution = ? ORDER BY token DESC LIMIT 1", nil, into(table.Runs, &rec.Runs))
	}
	if err == nil && q.Runs > 0 {
		err = r.query(selectRuns+" WHERE execution = ? ORDER BY token DESC LIMIT ?", []int64{int64(q.Runs)},
			into(table.Runs, &rec.Runs))
	}
	if err == nil && q.History {
		err = r.history(rec, q)
	}
	if err == nil && q.Detail {
		err = r.detail(rec)
	}
	if err == nil && (q.Resume || q.Signals) {
		err = r.resume(rec, q)
	}
	if err != nil {
		return nil, err
	}
	store.Tidy(rec)
	return rec, nil
}

// reading reads the rows of one execution.
type reading struct {
	*conn
	ctx context.Context
	id  belay.ExecutionID
}

// query runs a statement whose first argument is the execution.
func (r *reading) query(text string, more []int64, row func(columns) error) error {
	r.args.blob(r.id[:])
	for _, v := range more {
		r.args.int(v)
	}
	return r.conn.query(r.ctx, text, row)
}

// spec reads the newest spec up to a generation.
func (r *reading) spec(upTo int64) (s *machine.Spec, err error) {
	const newest = " WHERE execution = ? AND generation <= ? ORDER BY generation DESC LIMIT 1"
	err = r.query(selectSpecs+newest, []int64{upTo},
		func(row columns) (err error) {
			s, err = scanSpec(row)
			return err
		})
	return s, err
}

// history reads, of each kind, the first N rows that have an event after a seq. Together these rows
// contain the first N events after the seq, because each row has at least one event; the row of a run
// may have two, the run's start and its end. A run that has not ended may have started before the
// seq. Only the newest run can have no end, and history reads it last.
func (r *reading) history(rec *machine.Record, q store.Read) error {
	limit := int64(math.MaxInt64)
	if q.Limit > 0 {
		limit = int64(q.Limit)
	}
	window := []int64{q.After, limit}
	runs, checkpoints, signals := selectRunHeads, selectCheckpointHeads, selectSignalHeads
	if q.Data {
		runs, checkpoints, signals = selectRuns, selectCheckpoints, selectSignals
	}
	if q.After < 1 {
		err := r.query(selectCreatedBy, nil, func(row columns) error {
			rec.CreatedBy = row.text(0)
			return nil
		})
		if err != nil {
			return err
		}
	}
	const after = " WHERE execution = ? AND seq > ? ORDER BY seq LIMIT ?"
	return firstOf(
		r.query(runs+" WHERE execution = ? AND (ended_seq IS NULL OR ended_seq > ?) ORDER BY token LIMIT ?", window,
			into(table.Runs, &rec.Runs)),
		r.query(checkpoints+after, window, into(table.Checkpoints, &rec.Checkpoints)),
		r.query(signals+after, window, into(table.Signals, &rec.Signals)),
		r.query(selectDeeds+after, window, into(table.Deeds, &rec.Deeds)),
	)
}

// resume reads the valid checkpoints and the signals that were not consumed.
func (r *reading) resume(rec *machine.Record, q store.Read) error {
	var last [2]int64
	for i, k := range []struct {
		sizes, rows string
		row         func(columns) error
		none        bool
	}{
		{checkpointSizes, selectResumed, into(table.Checkpoints, &rec.Checkpoints), !q.Resume ||
			rec.Execution.Checkpoints == 0},
		{signalSizes, selectUnconsumed, into(table.Signals, &rec.Signals), rec.Execution.SignalSeq == 0},
	} {
		if k.none {
			continue
		}
		after, upTo := max(rec.Execution.BaseSeq, q.ResumeAfter), int64(math.MaxInt64)
		if q.Bytes > 0 {
			budget := q.Budget()
			err := r.query(k.sizes, []int64{after}, func(row columns) error {
				if last[i] = row.int(0); budget > 0 {
					upTo = last[i]
					budget -= row.int(1) + store.RowBytes
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		if err := r.query(k.rows, []int64{after, upTo}, k.row); err != nil {
			return err
		}
	}
	if q.Bytes > 0 {
		store.Page(rec, last[0], last[1])
	}
	return nil
}

var (
	// A checkpoint is valid if it has its data, belongs to the present input (its seq is above
	// base_seq), and is the newest of its kind and key.
	resumed = `
WHERE execution = ?1 AND seq IN (
    SELECT max(seq) FROM checkpoints WHERE execution = ?1 AND seq > ?2 AND pruned = 0 GROUP BY kind, key
)`
	selectResumed   = selectCheckpoints + resumed + " AND seq <= ?3 ORDER BY seq"
	checkpointSizes = "SELECT seq, coalesce(length(data), 0) FROM checkpoints" + resumed + " ORDER BY seq"

	unconsumed       = " WHERE execution = ?1 AND seq > ?2 AND consumed_by IS NULL"
	selectUnconsumed = selectSignals + unconsumed + " AND seq <= ?3 ORDER BY seq"
	signalSizes      = "SELECT seq, coalesce(length(payload), 0) FROM signals" + unconsumed + " ORDER BY seq"
)
