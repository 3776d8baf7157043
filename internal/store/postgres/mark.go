package postgres

import (
	"time"

	"github.com/belaydev/belay/internal/machine"
)

// Every commit writes a mark, the time of its decision, in a row of its connection: two connections
// that wrote the same row would wait for each other's commit. No clock shows an earlier time than
// the newest mark.
//
// A mark of life also proves that heartbeats could be written at its time. Only commits that write
// sessions leave one, and commits that are asked for one, which lock what a heartbeat needs. So
// while the table of sessions is locked, marks of life stop on all servers, even if other rows are
// written, and sessions get that time again.
const (
	writeMark = `
INSERT INTO servers (period, id, slot, mark_at, beat)
VALUES ($1::bigint, $2::uuid, $3::bigint, $4::bigint, $5::bigint)
ON CONFLICT (period, id, slot) DO UPDATE SET mark_at = excluded.mark_at, beat = excluded.beat`

	// No session has the id of a server: the statement changes no row, but takes the locks on the
	// tables that a heartbeat needs.
	reachSessions = `
UPDATE workers
SET heartbeat_at = heartbeat_at
WHERE id = $1::uuid AND EXISTS (SELECT 1 FROM executions WHERE worker = $1::uuid)`

	// dropMarks deletes old marks of life (see doc.go). The server that gets the lock first deletes
	// them, and the others skip the deletion instead of waiting. The newest marks are kept.
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

// A row of marks is used for markPeriod, and deleted markPeriods periods later.
const (
	markPeriod  = machine.Time(10 * time.Second / time.Microsecond)
	markPeriods = 6
	// vitalSlot is added to the slot number for marks of life.
	vitalSlot = 100
)

// writeMark writes the server's mark. A beat of 0 keeps the last one.
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
