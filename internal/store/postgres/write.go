package postgres

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store/table"
)

// write adds the statements for changes. It adds new rows before it changes rows, because a change
// may concern a row of the same commit. Rows that another server may add too are added in the order
// of their keys, so that two servers never wait for each other.
func (t *tx) write(p *pipe, c *machine.Changes) error {
	if c.Grace != 0 && !t.mode.grace {
		return errGrace
	}
	for _, step := range []func(*pipe, *machine.Changes) error{
		t.delayOwned, t.writeExecutions, t.writeKeys, t.writeSpecs, t.writeRuns, t.writeCheckpoints, t.writeSignals,
		t.writeDeeds, t.writeLetters, t.writeChunks, t.writeSums, t.writeObjects, t.writePlaces, t.writeGrace,
		t.writeWorkers,
	} {
		if err := step(p, c); err != nil {
			return err
		}
	}
	return nil
}

// change adds a statement that must change exactly the given number of rows.
func change(p *pipe, text, what string, rows int) *step {
	s := p.add(text, nil)
	s.miss = &belay.Error{
		Code: belay.CodeInternal, Op: "commit", Message: fmt.Sprintf("one of %d rows of %s to change is not there",
			rows, what),
	}
	return s
}

// split returns the rows for which a condition is true, and the others.
func split[R any](rows []R, holds func(R) bool) (yes, no []R) {
	for _, r := range rows {
		if holds(r) {
			yes = append(yes, r)
		} else {
			no = append(no, r)
		}
	}
	return yes, no
}

func (t *tx) writeExecutions(p *pipe, c *machine.Changes) error {
	fresh, changed := make([][]*table.HotRow, len(inserts)), make([][]*table.HotRow, len(updates))
	rows, was, none := make([]table.HotRow, len(c.Executions)), table.HotRow{},
		table.HotRow{Execution: &machine.Execution{}}
	begun := t.begun(c)
	for i, e := range c.Executions {
		now := &rows[i]
		if e.New {
			now.Of(e, begun[e.ID])
			i := fitting(inserts, now.Since(&none))
			fresh[i] = append(fresh[i], now)
			continue
		}
		old := t.executions[e.ID]
		if old == nil {
			return &belay.Error{
				Code: belay.CodeInternal, Op: "commit", Message: "execution " + e.ID.String() +
					" to change was not loaded",
			}
		}
		now.Of(e, cmp.Or(begun[e.ID], old.runs(e)))
		was.Of(old.Execution, old.runSeq)
		m := now.Since(&was)
		if m == 0 {
			continue
		}
		if !old.locked {
			return errUnlocked{e.ID}
		}
		i := fitting(updates, m)
		changed[i] = append(changed[i], now)
	}
	row := func(h *table.HotRow) *machine.Execution { return h.Execution }
	for i, rows := range fresh {
		if len(rows) > 0 {
			slices.SortFunc(rows, func(a, b *table.HotRow) int { return a.ID.Compare(b.ID) })
			s := p.add(inserts[i].text, nil)
			for k := range table.Executions.Columns {
				bindColumn(s, &table.Executions.Columns[k], rows, row)
			}
			bindHot(s, inserts[i].mask, rows)
		}
	}
	for i, rows := range changed {
		if len(rows) > 0 {
			// the statement need not count the rows that it changes, because all are locked
			s := p.add(updates[i].text, nil)
			bindHot(s, updates[i].mask, rows)
			bindColumn(s, &table.Executions.Columns[0], rows, row)
		}
	}
	return nil
}

var insertSpecs = insert(table.Specs)

func (t *tx) writeSpecs(p *pipe, c *machine.Changes) error {
	for rows := range pieces(c.Specs, func(s *machine.Spec) int { return len(s.Input) + len(s.TriggerPayload) }) {
		bind(p.add(insertSpecs, nil), table.Specs, rows)
	}
	return nil
}

var (
	insertKeys = insert(table.Keys)

	// takeKeys inserts keys, and takes keys over from the executions in the last argument. An
	// execution has one key at most, so a key in the list is taken only from the execution that gives
	// it up. A key that leads to any other execution fails the statement. All keys of a commit are
	// written by one statement, in their order.
	takeKeys = counted(insertKeys+`
ON CONFLICT (workflow, key) DO UPDATE
SET execution = excluded.execution, hash = excluded.hash, at = excluded.at, expires_at = NULL
WHERE idempotency.execution = ANY($6::uuid[])`, 6)
)

func (t *tx) writeKeys(p *pipe, c *machine.Changes) error {
	if len(c.Keys) == 0 {
		return nil
	}
	rows := make([]*machine.KeyRow, len(c.Keys))
	for i := range c.Keys {
		rows[i] = &c.Keys[i]
	}
	slices.SortFunc(rows, func(a, b *machine.KeyRow) int {
		return cmp.Or(cmp.Compare(a.Workflow, b.Workflow), cmp.Compare(a.Key.Key, b.Key.Key))
	})
	var was []belay.ExecutionID
	for _, k := range rows {
		if k.Was != (belay.ExecutionID{}) {
			was = append(was, k.Was)
		}
	}
	if len(was) == 0 {
		bind(p.add(insertKeys, nil), table.Keys, rows)
		return nil
	}
	s := p.add(takeKeys, nil)
	s.miss = errTaken
	bind(s, table.Keys, rows)
	idList(s, was)
	s.int(int64(len(rows)))
	return nil
}

const extendWorkers = `
UPDATE workers
SET expires_at = least(greatest(expires_at + $1::bigint, $2::bigint + ttl), $3::bigint)
WHERE ended_at IS NULL`

// writeGrace postpones the expiry of all sessions that have not ended. Sessions that are changed in
// the same batch already have the new expiry, and are written afterwards.
func (t *tx) writeGrace(p *pipe, c *machine.Changes) error {
	if c.Grace != 0 {
		latest := machine.Time(math.MaxInt64).Add(0) // the largest Time, because Add stops there
		p.add(extendWorkers, nil).int(table.Microseconds(c.Grace)).int(int64(t.rows.Now)).int(int64(latest))
	}
	return nil
}

// After the clock has leapt forwards, delayOwned moves the times from which the deadlines of owned
// executions are counted. Executions that are changed in the same batch are written afterwards.
func (t *tx) delayOwned(p *pipe, c *machine.Changes) error {
	if c.Leap != 0 {
		p.add(delayOwned, nil).int(table.Microseconds(c.Leap)).int(int64(t.rows.Now))
	}
	return nil
}

const delayOwned = `
UPDATE executions
SET started_at = greatest(started_at, least(started_at + $1::bigint, $2::bigint)),
    run_at = greatest(run_at, least(run_at + $1::bigint, $2::bigint)),
    progress_at = greatest(progress_at, least(progress_at + $1::bigint, $2::bigint)),
    scheduled_at = greatest(scheduled_at, least(scheduled_at + $1::bigint, $2::bigint)),
    cancel_by = cancel_by + $1::bigint
WHERE worker IS NOT NULL`

var (
	insertWorkers = insert(table.Workers)
	workerChanges = table.Workers.Only("id, state, heartbeat_at, expires_at, ended_at, end_reason, claim_no, " +
		"claim_floor, current")
	theseWorkers = " FROM (SELECT " + arrayArguments(workerChanges) +
		", unnest($10::bigint[]) AS was, unnest($11::bigint[]) AS told) u WHERE w.id = u.id"

	// Only the newest heartbeat writes the current steps; a claim has not even read them.
	theNewest = "current = CASE WHEN u.told = 1 AND u.heartbeat_at >= w.heartbeat_at THEN u.current ELSE w.current END"

	changeWorkers = `
UPDATE workers w
SET state = u.state, heartbeat_at = u.heartbeat_at, expires_at = u.expires_at, ended_at = u.ended_at, end_reason = u.end_reason,
    claim_no = u.claim_no, claim_floor = u.claim_floor, ` + theNewest + theseWorkers

	// joinWorkers keeps the changes that other transactions have made to the session since it was
	// read. A heartbeat and a claim of one session are compatible, with one exception: the heartbeat
	// gives up this very claim, while the claim wins executions. Giving up claim n raises
	// claim_floor to at least n, and winning executions with claim n raises claim_no to n. Both
	// columns only grow, so the second of the two transactions sees the change of the first and
	// fails.
	joinWorkers = `
UPDATE workers w
SET heartbeat_at = greatest(w.heartbeat_at, u.heartbeat_at), expires_at = greatest(w.expires_at, u.expires_at),
    claim_no = greatest(w.claim_no, u.claim_no), claim_floor = greatest(w.claim_floor, u.claim_floor),
    ` + theNewest + theseWorkers + `
  AND (w.claim_no = u.was OR u.claim_no = u.was AND w.claim_no > u.claim_floor)
  AND (u.claim_no = u.was OR w.claim_floor < u.claim_no)`

	updateWorkers = counted(changeWorkers, 11)
	mergeWorkers  = counted(joinWorkers, 11)
)

// writeWorkers writes sessions in the order of their ids. A session needs an exclusive lock if its
// state changes (it ends, or takes no more claims) or the reason for its state. If another
// transaction has made an incompatible change to a session since it was read, the statement fails.
func (t *tx) writeWorkers(p *pipe, c *machine.Changes) error {
	all := slices.Clone(c.Workers)
	slices.SortFunc(all, func(a, b *machine.Worker) int { return slices.Compare(a.ID[:], b.ID[:]) })
	fresh, changed := split(all, func(x *machine.Worker) bool { return x.New })
	if len(fresh) > 0 {
		bind(p.add(insertWorkers, nil), table.Workers, fresh)
	}
	alone, shared := split(changed, func(x *machine.Worker) bool { return t.mode.grace || t.mode.strict[x.ID] })
	var strict errStrict
	for _, x := range shared {
		if was, ok := t.workers[x.ID]; ok && (was.state != x.State || was.why != x.Why) {
			strict = append(strict, x.ID)
		}
	}
	if len(strict) > 0 {
		return strict
	}
	if len(alone) > 0 {
		t.bindWorkers(change(p, updateWorkers, "sessions", len(alone)), alone)
	}
	if len(shared) > 0 {
		for _, x := range shared {
			strict = append(strict, x.ID)
		}
		s := p.add(mergeWorkers, nil)
		s.miss = strict
		t.bindWorkers(s, shared)
	}
	return nil
}

func (t *tx) bindWorkers(s *step, rows []*machine.Worker) {
	bind(s, workerChanges, rows)
	ints(s, int8s, rows, func(x *machine.Worker) int64 { return t.workers[x.ID].claimNo })
	ints(s, int8s, rows, func(x *machine.Worker) int64 { return table.Number(x.Told) })
	s.int(int64(len(rows)))
}
