package postgres

import (
	"time"

	"github.com/belaydev/belay/internal/machine"
)

// Every commit writes a mark, the time of its decision. Each connection has its own row for marks,
// because two connections that wrote the same row would wait for each other's commit. A server whose
// own clock is behind the newest mark takes the time of that mark instead.
//
// A mark of life also proves that heartbeats could be written at its time. Only two kinds of
// commits write a mark of life: commits that write sessions, and commits whose purpose is the mark of
// life. The latter take the locks that a heartbeat needs. So while the table of sessions is locked, no
// server writes a mark of life, even if it writes other rows; and after the lock ends, all sessions
// are extended by the time without a mark of life.
const (
	writeMark = `
INSERT INTO servers (period, id, slot, mark_at, beat)
VALUES ($1::bigint, $2::uuid, $3::bigint, $4::bigint, $5::bigint)
ON CONFLICT (period, id, slot) DO UPDATE SET mark_at = excluded.mark_at, beat = excluded.beat`

	// No session has the id of a server, so the statement changes no row. But it locks the tables
	// that a heartbeat needs, and waits while another transaction has locked them.
	reachSessions = `
UPDATE workers
SET heartbeat_at = heartbeat_at
WHERE id = $1::uuid AND EXISTS (SELECT 1 FROM executions WHERE worker = $1::uuid)`

	// dropMarks deletes old marks (times of commits), except the newest. The server that gets the
	// lock first deletes them; the others skip the deletion instead of waiting.
	dropMarks = `
DELETE FROM servers s
USING (
    SELECT period, id, slot
    FROM servers
    WHERE period < least($1::bigint, (SELECT period FROM servers WHERE slot >= 100 ORDER BY period DESC LIMIT 1))
    ORDER BY period
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
) old
WHERE s.period = old.period AND s.id = old.id AND s.slot = old.slot`
)

// A connection writes its marks (the times of its commits) to one row for the time markPeriod and
// then to a new row. The old row is deleted markPeriods periods later.
const (
	markPeriod  = machine.Time(10 * time.Second / time.Microsecond)
	markPeriods = 6
	// vitalSlot is added to the slot number for marks of life (marks whose commits could renew
	// sessions).
	vitalSlot = 100
)

// writeMark writes the server's mark (the time of the commit). If the changes set no interval
// between marks (Beat is 0), the stored interval does not change.
func (t *tx) writeMark(p *pipe, c *machine.Changes) {
	beat, slot := c.Beat, t.slot.number
	if beat == 0 {
		beat = t.rows.Beat
	}
	if c.Vital() {
		slot += vitalSlot
		p.add(reachSessions, nil).id(t.store.options.Server)
	}
	now := t.rows.Now
	period := int64(now / markPeriod)
	p.add(writeMark, nil).int(period).id(t.store.options.Server).int(int64(slot)).int(int64(now)).int(
		beat.Microseconds())
	if period != t.slot.period {
		t.slot.period = period
		p.add(dropMarks, nil).int(period - markPeriods)
	}
}
