package postgres

import (
	"time"

	"github.com/belaydev/belay/internal/machine"
)

// Every commit leaves a mark, the time of its decision, in a row of its connection:
// two connections would wait for each other's commit at one. The newest of all is what
// no clock shows less than.
//
// A mark of life is more: it says that heartbeats could be written when it was. Only
// commits that write sessions leave one, and those that were asked for one, which
// reach for what a heartbeat needs. So while a session's table is locked, marks of
// life stop on all servers, however much else is written, and the gap is given back.
const (
	leaveMark = `
INSERT INTO servers (period, id, slot, mark_at, beat)
VALUES ($1::bigint, $2::uuid, $3::bigint, $4::bigint, $5::bigint)
ON CONFLICT (period, id, slot) DO UPDATE SET mark_at = excluded.mark_at, beat = excluded.beat`

	// Nobody's session has the id of a server: no row is written, but all is asked for
	// that a heartbeat is written with.
	reachSessions = `
UPDATE workers
SET heartbeat_at = heartbeat_at
WHERE id = $1::uuid AND EXISTS (SELECT 1 FROM executions WHERE worker = $1::uuid)`

	// Whoever comes first; nobody waits for it. The last marks of life stay.
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

// A row of marks is used for a period, and dropped some periods later.
const (
	markPeriod  = machine.Time(10 * time.Second / time.Microsecond)
	markPeriods = 6
	// vitalSlot is added to the slot of marks of life.
	vitalSlot = 100
)

// leaveMark writes the server's mark. A beat of 0 leaves the last one.
func (t *tx) leaveMark(p *pipe, c *machine.Changes) {
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
	p.add(leaveMark, nil).int(period).id(t.store.options.Server).int(int64(slot)).int(int64(now)).int(
		beat.Microseconds())
	if period != t.slot.period {
		t.slot.period = period
		p.add(dropMarks, nil).int(period - markPeriods)
	}
}
