package sqlite

import (
	"fmt"
	"math"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store/table"
)

// apply writes changes. It adds new rows before it changes rows, because a change may concern a row
// of the same commit.
func (t *tx) apply(c *machine.Changes) error {
	for _, step := range []func(*machine.Changes) error{
		t.delayOwned, t.writeExecutions, t.writeSpecs, t.writeKeys, t.writeRuns, t.writeCheckpoints,
		t.writeSignals, t.writeDeeds, t.writeLetters, t.writeGrace, t.writeWorkers, t.writeChunks,
		t.writeSums, t.writeObjects, t.writePlaces,
	} {
		if err := step(c); err != nil {
			return err
		}
	}
	return nil
}

// changed runs a statement that must change exactly one row.
func (t *tx) changed(what string, id any, text string) error {
	n, err := t.exec(t.ctx, text)
	if err != nil {
		return err
	}
	if n != 1 {
		return &belay.Error{
			Code: belay.CodeInternal, Op: "commit", Message: fmt.Sprintf("%s %v to change is not there", what, id),
		}
	}
	return nil
}

func (t *tx) writeExecutions(c *machine.Changes) error {
	t.written = c.Executions
	fresh := make(map[table.Mask][]*machine.Execution)
	var now, was table.HotRow
	none := table.HotRow{Execution: &machine.Execution{}}
	for _, e := range c.Executions {
		now.Of(e, 0)
		if e.New {
			m := now.Since(&none) | needed
			fresh[m] = append(fresh[m], e)
			continue
		}
		old := t.found[e.ID]
		if old == nil {
			return &belay.Error{
				Code: belay.CodeInternal, Op: "commit", Message: "execution " + e.ID.String() +
					" to change was not loaded",
			}
		}
		was.Of(old, 0)
		m := now.Since(&was)
		if m == 0 {
			continue
		}
		bindHot(&t.args, m, &now)
		t.args.blob(e.ID[:])
		if err := t.changed("execution", e.ID, t.store.texts.update(m)); err != nil {
			return err
		}
	}
	for m, rows := range fresh {
		err := t.insert(t.ctx, t.store.texts.insert(m), len(rows), func(i int, a *args) error {
			bind(a, table.Executions, rows[i])
			now.Of(rows[i], 0)
			bindHot(a, m, &now)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// texts are the statements for sets of columns, built once each. Only the writer uses them.
type texts struct {
	updates map[table.Mask]string
	inserts map[table.Mask]*insertion
}

func (x *texts) update(m table.Mask) string {
	text, ok := x.updates[m]
	if !ok {
		text = "UPDATE executions SET " + strings.Join(namesOf(m), " = ?, ") + " = ? WHERE id = ?"
		x.updates[m] = text
	}
	return text
}

func (x *texts) insert(m table.Mask) *insertion {
	t, ok := x.inserts[m]
	if !ok {
		t = newTable("executions", table.Executions.Names()+", "+strings.Join(namesOf(m), ", "))
		x.inserts[m] = t
	}
	return t
}

// writeGrace postpones the expiry of all sessions that have not ended. Sessions that are changed in
// the same batch already have the new expiry, and are written afterwards.
func (t *tx) writeGrace(c *machine.Changes) error {
	if c.Grace == 0 {
		return nil
	}
	t.args.int(table.Microseconds(c.Grace)).int(int64(t.now))
	t.args.int(int64(machine.Time(math.MaxInt64).Add(0))) // the largest Time, because Add stops there
	_, err := t.exec(t.ctx, "UPDATE workers SET expires_at = min(max(expires_at + ?, ? + ttl), ?) WHERE ended_at "+
		"IS NULL")
	return err
}

// After the clock has leapt forwards, delayOwned moves the times from which the deadlines of owned
// executions are counted. Executions that are changed in the same batch are written afterwards.
func (t *tx) delayOwned(c *machine.Changes) error {
	if c.Leap == 0 {
		return nil
	}
	t.store.cache.drop()
	t.args.int(table.Microseconds(c.Leap)).int(int64(t.now))
	_, err := t.exec(t.ctx, delayOwned)
	return err
}

const delayOwned = `
UPDATE executions
SET started_at = max(started_at, min(started_at + ?1, ?2)), run_at = max(run_at, min(run_at + ?1, ?2)),
    progress_at = max(progress_at, min(progress_at + ?1, ?2)), scheduled_at = max(scheduled_at, min(scheduled_at + ?1, ?2)),
    cancel_by = cancel_by + ?1
WHERE worker IS NOT NULL`

var (
	insertWorkers = insertInto(table.Workers)
	changeWorkers = change(table.Workers,
		"state, heartbeat_at, expires_at, ended_at, end_reason, claim_no, claim_floor", "id")
	// beatWorkers also writes the current steps, which only a heartbeat reports.
	beatWorkers = change(table.Workers,
		"state, heartbeat_at, expires_at, ended_at, end_reason, claim_no, claim_floor, current", "id")
)

func (t *tx) writeWorkers(c *machine.Changes) error {
	for _, x := range c.Workers {
		var err error
		switch {
		case x.New:
			err = insertWorkers.add(t, x)
		case x.Told:
			err = beatWorkers.must(t, x.ID, x)
		default:
			err = changeWorkers.must(t, x.ID, x)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
