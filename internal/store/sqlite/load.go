package sqlite

import (
	"context"
	"fmt"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// load reads the rows that a batch of commands needs.
func (t *tx) load(need machine.Need) (*machine.Rows, error) {
	rows := &machine.Rows{Now: t.now, Epoch: t.epoch, Mark: t.mark, Beat: t.beat, Leapt: t.store.clock.Leapt(),
		Ahead: t.store.clock.Ahead()}
	ids := append([]belay.ExecutionID(nil), need.Executions...)
	var due []belay.ExecutionID
	for _, q := range need.Ready {
		lane, err := t.ready(q)
		if err != nil {
			return nil, fmt.Errorf("look for what is due in a lane: %w", err)
		}
		rows.Ready = append(rows.Ready, lane)
		ids = append(ids, lane.Due...)
		due = append(due, lane.Due...)
	}
	for _, q := range need.Lines {
		line, err := t.line(q)
		if err != nil {
			return nil, fmt.Errorf("look for the head of the line of a gate: %w", err)
		}
		rows.Lines = append(rows.Lines, line)
		ids = append(ids, line.Heads...)
	}
	for _, load := range []func() error{
		func() error { return t.loadWorkers(rows, need.Workers) },
		func() error { return readCurrent(t.ctx, t.conn, rows.Workers, need.Current) },
		func() error { return t.loadHeld(rows, need.Held) },
		func() error { return t.loadExecutions(rows, ids) },
		func() error { return t.loadOwners(rows, need.Owners) },
		func() error { return t.loadSpecs(rows, selectSpecs, need.Specs, need.Executions) },
		func() error { return t.loadSpecs(rows, selectCarried, without(due, need.Specs), nil) },
		func() error { return t.loadKeys(rows, need.Keys) },
		func() error { return t.loadLetters(rows, need.Letters) },
		func() error { return t.loadRuns(rows, need.Runs) },
		func() error { return t.loadOps(rows, need.Ops) },
		func() error { return t.loadSignals(rows, need.Signals) },
		func() error { return t.loadChunks(rows, need.Chunks) },
		func() error { return t.loadDrops(rows, need.Drops) },
		func() error { return t.loadSums(rows, need.Sums) },
		func() error { return t.loadCheckpoints(rows, need.Checkpoints) },
		func() error { return t.loadMailboxes(rows, need.Mailboxes) },
		func() error { return t.loadObjects(rows, need) },
	} {
		if err := load(); err != nil {
			return nil, fmt.Errorf("load: %w", err)
		}
	}
	return rows, nil
}

// ready finds the due executions of a lane (a group that the same workers may claim). It reads only
// an index, not the rows.
func (t *tx) ready(q machine.ReadyQuery) (machine.ReadyLane, error) {
	var lane machine.ReadyLane
	t.args.int(int64(q.Lane)).int(int64(q.Limit))
	err := t.query(t.ctx, selectReady, func(r columns) error {
		switch at := machine.Time(r.int(0)); {
		case at <= t.now:
			lane.Due = append(lane.Due, r.id(1))
		case lane.Next == 0:
			lane.Next = at
		}
		return nil
	})
	return lane, err
}

const selectReady = `
SELECT ready_at, id
FROM executions
WHERE lane = ? AND ready_at IS NOT NULL
ORDER BY ready_at, id
LIMIT ?`

// loadExecutions loads executions and all their ancestors.
func (t *tx) loadExecutions(rows *machine.Rows, ids []belay.ExecutionID) error {
	asked := make(map[belay.ExecutionID]bool, len(ids))
	for len(ids) > 0 {
		ids = slices.DeleteFunc(slices.Clone(ids), func(id belay.ExecutionID) bool {
			known := asked[id] || id.IsZero()
			asked[id] = true
			return known
		})
		var parents []belay.ExecutionID
		err := t.fetch(ids, func(e *machine.Execution) {
			t.found[e.ID] = e
			rows.Executions = append(rows.Executions, copyOf(e))
			parents = append(parents, e.Parent)
		})
		if err != nil {
			return err
		}
		ids = parents
	}
	return nil
}

// fetch calls found with each execution as the database has it, in any order. found must not change
// the execution.
func (t *tx) fetch(ids []belay.ExecutionID, found func(*machine.Execution)) error {
	unread := make([]belay.ExecutionID, 0, len(ids))
	for _, id := range ids {
		if e := t.store.cache.get(id); e != nil {
			found(e)
		} else {
			unread = append(unread, id)
		}
	}
	return some(t.ctx, t.conn, selectExecutions+" WHERE id IN ", unread, func(r columns) error {
		e, err := t.scanExecution(r)
		if err == nil {
			t.store.cache.put(e)
			found(e)
		}
		return err
	})
}

// copyOf returns a copy of a row that machine.Fold may change.
func copyOf(e *machine.Execution) *machine.Execution {
	c := *e
	return &c
}

// loadHeld loads the executions that workers own. It reads their ids from an index, and takes the
// rows from the cache if they are there.
func (t *tx) loadHeld(rows *machine.Rows, ids []belay.WorkerID) error {
	rows.Held = make(map[belay.WorkerID][]*machine.Execution, len(ids))
	for _, id := range unique(ids) {
		var owned []belay.ExecutionID
		t.args.blob(id[:])
		err := t.query(t.ctx, "SELECT id FROM executions WHERE worker = ? ORDER BY id", idsInto(&owned))
		if err == nil {
			err = t.fetch(owned, func(e *machine.Execution) { rows.Held[id] = append(rows.Held[id], copyOf(e)) })
		}
		if err != nil {
			return err
		}
		slices.SortFunc(rows.Held[id], func(a, b *machine.Execution) int { return a.ID.Compare(b.ID) })
	}
	return nil
}

// loadWorkers loads sessions.
func (t *tx) loadWorkers(rows *machine.Rows, ids []belay.WorkerID) error {
	return some(t.ctx, t.conn, selectWorkers+" WHERE id IN ", unique(ids), func(r columns) error {
		x, err := scanWorker(r, &t.conn.specs)
		rows.Workers = append(rows.Workers, x)
		return err
	})
}

// readCurrent adds to sessions their current steps.
func readCurrent(ctx context.Context, c *conn, rows []*machine.Worker, ids []belay.WorkerID) error {
	const text = "SELECT id, current FROM workers WHERE current IS NOT NULL AND id IN "
	return some(ctx, c, text, unique(ids), func(r columns) error {
		for _, x := range rows {
			if x.ID == r.id(0) {
				x.Current = r.text(1)
			}
		}
		return nil
	})
}

// loadOwners loads the sessions that own loaded executions.
func (t *tx) loadOwners(rows *machine.Rows, ids []belay.ExecutionID) error {
	var owners []belay.WorkerID
	for _, id := range ids {
		if e := t.found[id]; e != nil && !e.Worker.IsZero() {
			owners = append(owners, e.Worker)
		}
	}
	return some(t.ctx, t.conn, selectWorkers+" WHERE id IN ", unique(owners), func(r columns) error {
		x, err := scanWorker(r, &t.conn.specs)
		rows.Owners = append(rows.Owners, x)
		return err
	})
}

// loadSpecs loads the newest spec of each execution. It skips executions in asked that do not
// exist.
func (t *tx) loadSpecs(rows *machine.Rows, text string, ids, asked []belay.ExecutionID) error {
	absent := make(map[belay.ExecutionID]bool)
	for _, id := range asked {
		absent[id] = t.found[id] == nil
	}
	ids = slices.DeleteFunc(unique(ids), func(id belay.ExecutionID) bool { return absent[id] })
	newest := make(map[belay.ExecutionID]int, len(ids))
	return some(t.ctx, t.conn, text+" WHERE execution IN ", ids, func(r columns) error {
		s, err := scanSpec(r)
		if err != nil {
			return err
		}
		if i, ok := newest[s.Execution]; ok {
			if rows.Specs[i].Generation < s.Generation {
				rows.Specs[i] = s
			}
			return nil
		}
		newest[s.Execution] = len(rows.Specs)
		rows.Specs = append(rows.Specs, s)
		return nil
	})
}

// without returns all, except those in some.
func without(all, some []belay.ExecutionID) []belay.ExecutionID {
	if len(some) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(id belay.ExecutionID) bool { return slices.Contains(some, id) })
}

// unique keeps the first of equal values.
func unique[T comparable](all []T) []T {
	seen := make(map[T]bool, len(all))
	out := make([]T, 0, len(all))
	for _, v := range all {
		if !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}
