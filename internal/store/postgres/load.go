package postgres

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// loaded is an execution that the transaction has read, and whether the transaction has locked it.
type loaded struct {
	stored
	locked bool
}

// first is the first round trip of a transaction: it begins the transaction, locks the rows of the
// need, loads all rows that need no earlier result, and reads the clock last.
func (t *tx) first(ctx context.Context, need machine.Need) error {
	t.rows = &machine.Rows{Held: make(map[belay.WorkerID][]*machine.Execution, len(need.Held))}
	t.cutoff = t.store.Now()
	p := t.pipe()
	if t.slot != nil {
		p.add("BEGIN", nil)
		if t.mode.wait > 0 {
			p.add(fmt.Sprintf("SET LOCAL lock_timeout = %d", max(1, t.mode.wait.Milliseconds())), nil)
		}
	}
	if t.mode.grace {
		p.add(lockGrace, nil)
		p.add(lockLiving, nil)
	}
	t.lockWorkers(p, need.Workers)
	t.loadCurrent(p, need.Current)
	t.lockExecutions(p, need.Executions)
	t.loadHeld(p, need.Held)
	t.loadOwners(p, need.Owners)
	t.lockReady(p, need.Ready)
	t.lockLines(p, need.Lines)
	t.loadNamed(p, need)
	t.readClock(p)
	return p.run(ctx)
}

// second loads rows that only the first round trip made known, if there are any: ancestors of ready
// executions, and specs of executions that exist.
func (t *tx) second(ctx context.Context, need machine.Need) error {
	p := t.pipe()
	if up, named := t.missing(); len(up) > 0 {
		if named && !t.mode.withAncestorsFirst {
			return errDeep
		}
		s := p.add(selectAncestors, func(r columns) error { return t.found(r, false) })
		idList(s, up)
	}
	if specs := t.specsToLoad(need); len(specs) > 0 {
		s := p.add(selectNewestSpecs, func(r columns) error {
			spec, err := scanSpec(r)
			t.rows.Specs = append(t.rows.Specs, spec)
			return err
		})
		idList(s, specs)
	}
	if len(p.steps) == 0 {
		return nil
	}
	return p.run(ctx)
}

// Advisory locks for the extension of all sessions after an outage, so that only one transaction at
// a time extends them.
const (
	lockGrace  = "SELECT pg_advisory_xact_lock(hashtextextended('belay grace', 0))"
	lockLiving = "SELECT id FROM workers WHERE ended_at IS NULL ORDER BY id FOR UPDATE"
)

// While a transaction has a shared lock on a session, the session cannot end. Other transactions
// may still renew the session or count its claims; if such a change conflicts with this batch, the
// write of the session fails.
var (
	shareWorkers = selectWorkers + " WHERE id = ANY($1::uuid[]) ORDER BY id FOR KEY SHARE"
	lockWorkers  = selectWorkers + " WHERE id = ANY($1::uuid[]) ORDER BY id FOR UPDATE"
)

// lockWorkers locks sessions in the order of their ids. The lock is shared, or exclusive if the mode
// of this attempt at the transaction requires it (see mode).
func (t *tx) lockWorkers(p *pipe, ids []belay.WorkerID) {
	ids = unique(ids)
	slices.SortFunc(ids, func(a, b belay.WorkerID) int { return bytes.Compare(a[:], b[:]) })
	alone := func(id belay.WorkerID) bool { return t.mode.grace || t.mode.strict[id] }
	for len(ids) > 0 {
		text, n := shareWorkers, 1
		if alone(ids[0]) {
			text = lockWorkers
		}
		for n < len(ids) && alone(ids[n]) == alone(ids[0]) {
			n++
		}
		idList(p.add(text, t.session), ids[:n])
		ids = ids[n:]
	}
}

const selectCurrent = "SELECT id, current FROM workers WHERE id = ANY($1::uuid[]) AND current IS NOT NULL"

// loadCurrent loads the current steps of sessions that lockWorkers has locked.
func (t *tx) loadCurrent(p *pipe, ids []belay.WorkerID) {
	if len(ids) == 0 {
		return
	}
	idList(p.add(selectCurrent, func(r columns) error {
		for _, x := range t.rows.Workers {
			if x.ID == r.id(0) {
				x.Current = r.text(1)
			}
		}
		return nil
	}), unique(ids))
}

// session reads the row of a session into t.
func (t *tx) session(r columns) error {
	x, err := t.scanWorker(r)
	if err != nil {
		return err
	}
	t.rows.Workers = append(t.rows.Workers, x)
	t.workers[x.ID] = session{x.State, x.ClaimNo, x.Why}
	return nil
}

var (
	lockExecutions = "SELECT " + executionColumns +
		" FROM executions e WHERE e.id = ANY($1::uuid[]) ORDER BY e.id FOR NO KEY UPDATE"

	// lockDeep locks executions together with all their ancestors.
	lockDeep = "SELECT " + executionColumns + ` FROM executions e
WHERE e.id = ANY($1::uuid[] || ARRAY(
    WITH RECURSIVE up (id) AS (
        SELECT parent FROM executions WHERE id = ANY($1::uuid[]) AND parent IS NOT NULL
        UNION
        SELECT e.parent FROM up JOIN executions e ON e.id = up.id WHERE e.parent IS NOT NULL
    )
    SELECT id FROM up
))
ORDER BY e.id
FOR NO KEY UPDATE`

	selectAncestors = `WITH RECURSIVE up (id) AS (
    SELECT unnest($1::uuid[])
    UNION
    SELECT e.parent FROM up JOIN executions e ON e.id = up.id WHERE e.parent IS NOT NULL
)
SELECT ` + executionColumns + " FROM up JOIN executions e ON e.id = up.id"
)

// lockExecutions locks executions and their ancestors together, in the order of their ids. An
// execution's parent never changes, so the store remembers the parents that it has read. If an
// ancestor is not known, the transaction begins again and reads the ancestors first.
func (t *tx) lockExecutions(p *pipe, ids []belay.ExecutionID) {
	if t.mode.withAncestorsFirst {
		ids = append(slices.Clip(ids), t.mode.also...)
	}
	for i := 0; i < len(ids); i++ {
		id := ids[i]
		if _, asked := t.asked[id]; asked || id.IsZero() {
			continue
		}
		t.asked[id] = struct{}{}
		if up, ok := t.store.parents.of(id); ok {
			ids = append(slices.Clip(ids), up)
		}
	}
	if len(t.asked) == 0 {
		return
	}
	all := make([]belay.ExecutionID, 0, len(t.asked))
	for id := range t.asked {
		all = append(all, id)
	}
	text := lockExecutions
	if t.mode.withAncestorsFirst {
		text = lockDeep
	}
	s := p.add(text, func(r columns) error { return t.found(r, true) })
	idList(s, all)
}

// found reads the row of an execution into t. An execution that two statements return appears once,
// and counts as locked if one of the statements has locked it.
func (t *tx) found(r columns, locked bool) error {
	if have := t.executions[belay.ExecutionID(r.id(0))]; have != nil {
		have.locked = have.locked || locked
		return nil
	}
	e, err := t.scan(r)
	if err != nil {
		return err
	}
	t.store.parents.note(e.Execution)
	t.executions[e.ID] = &loaded{e, locked}
	c := *e.Execution
	t.rows.Executions = append(t.rows.Executions, &c)
	return nil
}

// missing returns those parents of loaded executions that the transaction has neither loaded nor
// tried to load. named reports whether one of them is the parent of an execution that a command
// names; such a parent must be locked together with its child.
func (t *tx) missing() (up []belay.ExecutionID, named bool) {
	for _, l := range t.executions {
		if p := l.Parent; !p.IsZero() && t.executions[p] == nil {
			if _, asked := t.asked[p]; !asked {
				up = append(up, p)
				_, here := t.asked[l.ID]
				named = named || here
			}
		}
	}
	return up, named
}

var selectHeld = "SELECT " + executionColumns +
	" FROM executions e WHERE e.worker = ANY($1::uuid[]) ORDER BY e.worker, e.id"

func (t *tx) loadHeld(p *pipe, ids []belay.WorkerID) {
	if len(ids) == 0 {
		return
	}
	s := p.add(selectHeld, func(r columns) error {
		e, err := t.scan(r)
		if err == nil {
			t.rows.Held[e.Worker] = append(t.rows.Held[e.Worker], e.Execution)
		}
		return err
	})
	idList(s, unique(ids))
}

var selectOwners = selectWorkers + " WHERE id = ANY(ARRAY(SELECT worker FROM executions WHERE id = ANY($1::uuid[])))"

func (t *tx) loadOwners(p *pipe, ids []belay.ExecutionID) {
	if len(ids) == 0 {
		return
	}
	s := p.add(selectOwners, func(r columns) error {
		x, err := t.scanWorker(r)
		t.rows.Owners = append(t.rows.Owners, x)
		return err
	})
	idList(s, unique(ids))
}

// specsToLoad returns the executions of need.Specs. It leaves out executions that do not exist, and removes
// specs that were loaded with a ready execution, because they lack the trigger payload and a large input.
func (t *tx) specsToLoad(need machine.Need) []belay.ExecutionID {
	have := make(map[belay.ExecutionID]bool, len(t.rows.Specs))
	named := make(map[belay.ExecutionID]bool)
	if len(t.rows.Specs) > 0 {
		for _, id := range need.Specs {
			named[id] = true
		}
	}
	t.rows.Specs = slices.DeleteFunc(t.rows.Specs, func(s *machine.Spec) bool {
		have[s.Execution] = !named[s.Execution]
		return named[s.Execution]
	})
	var left []belay.ExecutionID
	for _, id := range need.Specs {
		_, asked := t.asked[id]
		if !have[id] && (!asked || t.executions[id] != nil) {
			have[id] = true
			left = append(left, id)
		}
	}
	return left
}

var selectNewestSpecs = "SELECT s.* FROM (SELECT unnest($1::uuid[]) AS id) u CROSS JOIN LATERAL (SELECT " +
	specColumns +
	" FROM specs WHERE execution = u.id ORDER BY generation DESC LIMIT 1) s"

const (
	selectTime = `
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, s.mark_at, greatest(m.floor, m.epoch << 32), s.beat, m.oldest,
       coalesce(v.mark_at, s.mark_at)
FROM meta m
LEFT JOIN LATERAL (
    SELECT mark_at, beat
    FROM servers
    WHERE period = (SELECT period FROM servers ORDER BY period DESC LIMIT 1)
    ORDER BY mark_at DESC
    LIMIT 1
) s ON true
LEFT JOIN LATERAL (
    SELECT mark_at
    FROM servers
    WHERE slot >= 100 AND period = (SELECT period FROM servers WHERE slot >= 100 ORDER BY period DESC LIMIT 1)
    ORDER BY mark_at DESC
    LIMIT 1
) v ON true
WHERE m.id = 1`

	// selectBatch also reads the number of the transaction, by which the database can report the
	// outcome of the transaction later.
	selectBatch = "SELECT t.*, pg_current_xact_id()::text FROM (" + selectTime + ") t"
)

// readClock reads the time and the epoch (the number above which all new tokens are). It comes
// after all locks.
func (t *tx) readClock(p *pipe) {
	p.add(selectBatch, func(r columns) error {
		t.rows.Epoch, t.rows.Beat, t.oldest, t.rows.Mark, t.xid = belay.Token(r.int(2)), duration(r.int(3)), r.int(4),
			r.time(5), r.text(6)
		t.rows.Now = t.store.clock.Read(r.time(0), r.time(1))
		t.store.seen.Epoch(t.rows.Epoch)
		t.rows.Leapt, t.rows.Ahead = t.store.clock.Leapt(), t.store.clock.Ahead()
		return nil
	})
}

// readTime reads the database's time outside of a batch.
func (s *Store) readTime(p *pipe) {
	p.add(selectTime, func(r columns) error {
		s.clock.Read(r.time(0), r.time(1))
		s.seen.Epoch(belay.Token(r.int(2)))
		return nil
	})
}

// sortReady sorts the ready executions of each lane (a group that the same workers may claim) and
// removes those that are not due yet.
func (t *tx) sortReady() {
	now := t.rows.Now
	for i := range t.rows.Ready {
		lane := &t.rows.Ready[i]
		slices.SortFunc(lane.Due, func(a, b belay.ExecutionID) int {
			return cmp.Or(cmp.Compare(t.executions[a].Ready(), t.executions[b].Ready()), a.Compare(b))
		})
		for j, id := range lane.Due {
			if at := t.executions[id].Ready(); at > now {
				lane.Due, lane.Next = lane.Due[:j], at
				break
			}
		}
	}
}

// unique keeps the first of equal values.
func unique[T comparable](all []T) []T {
	seen := make(map[T]struct{}, len(all))
	out := make([]T, 0, len(all))
	for _, v := range all {
		if _, there := seen[v]; !there {
			seen[v] = struct{}{}
			out = append(out, v)
		}
	}
	return out
}
