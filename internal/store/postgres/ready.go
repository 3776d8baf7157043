package postgres

import (
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// What is due in a lane is locked as it is found, and what another transaction
// holds is passed over: two servers that claim from one lane share it. A row that
// changed between the index and its lock is looked at again by the database and
// left out if it is not due any more.
var lockReady = "SELECT e.*, s.* FROM (SELECT " + executionColumns + ` FROM executions e
    WHERE e.lane = $1 AND e.ready_at IS NOT NULL AND e.ready_at >= $4 AND e.ready_at <= $2
    ORDER BY e.ready_at, e.id
    LIMIT $3
    FOR NO KEY UPDATE SKIP LOCKED
) e
LEFT JOIN LATERAL (
    SELECT ` + specColumns + ` FROM specs WHERE execution = e.id ORDER BY generation DESC LIMIT 1
) s ON true`

// selectNext is the first moment after, and how much is due, as far as it
// matters: more than was locked is held by others.
const selectNext = `
SELECT (SELECT ready_at FROM executions WHERE lane = $1 AND ready_at IS NOT NULL AND ready_at > $2 ORDER BY ready_at LIMIT 1),
       (SELECT count(*) FROM (
           SELECT 1 FROM executions WHERE lane = $1 AND ready_at IS NOT NULL AND ready_at >= $4 AND ready_at <= $2 LIMIT $3
       ) d)`

// passedOver is how soon a lane is looked at again of which others hold
// something due: their commits take about so long.
const passedOver = 20 * time.Millisecond

// most is how much of what is due in a lane is counted.
const most = 64

func (t *tx) lockReady(p *pipe, q machine.ReadyQuery, lane *machine.ReadyLane) {
	if q.Limit <= 0 {
		return
	}
	from := t.store.floors.from(q.Lane)
	t.looks = append(t.looks, look{q.Lane, from == 0, lane})
	p.add(lockReady, func(r columns) error {
		if err := t.found(r, true); err != nil {
			return err
		}
		lane.Due = append(lane.Due, belay.ExecutionID(r.id(0)))
		s := r[executionCount:]
		if s[0] == nil || t.specs[belay.ExecutionID(s.id(0))] {
			return nil
		}
		spec, err := t.scanSpec(s)
		if err != nil {
			return err
		}
		t.specs[spec.Execution] = true
		t.rows.Specs = append(t.rows.Specs, spec)
		return nil
	}).int(int64(q.Lane)).int(int64(t.cutoff)).int(int64(q.Limit)).int(int64(from))
	p.add(selectNext, func(r columns) error {
		if len(lane.Due) >= q.Limit {
			return nil
		}
		lane.Next = r.time(0)
		if soon := t.cutoff.Add(passedOver); int(r.int(1)) > len(lane.Due) && (lane.Next == 0 || lane.Next > soon) {
			lane.Next = soon
		}
		return nil
	}).int(int64(q.Lane)).int(int64(t.cutoff)).int(most).int(int64(from))
}
