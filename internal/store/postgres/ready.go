package postgres

import (
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// lockReady finds and locks due executions of lanes (groups of executions that the same workers may
// claim). It skips rows that another transaction has locked, so that two servers can claim from one
// lane at the same time. If another transaction changes a row after the database has found the row
// in the index and before it locks the row, the database reads the row again and leaves it out if
// it is not due any more.
var lockReady = `
SELECT q.n, e.*, s.*
FROM (SELECT unnest($1::bigint[]) AS n, unnest($2::bigint[]) AS lane, unnest($3::bigint[]) AS low, unnest($4::bigint[]) AS most) q
CROSS JOIN LATERAL (
    SELECT ` + executionColumns + ` FROM executions e
    WHERE e.lane = q.lane AND e.ready_at IS NOT NULL AND e.ready_at >= q.low AND e.ready_at <= $5::bigint
    ORDER BY e.ready_at, e.id
    LIMIT q.most
    FOR NO KEY UPDATE SKIP LOCKED
) e
LEFT JOIN LATERAL (
    SELECT ` + carriedSpec + ` FROM specs WHERE execution = e.id ORDER BY generation DESC LIMIT 1
) s ON true`

// selectNext returns, for each lane, the first ready time after the cutoff (the time by which an
// execution counts as due), and the number of due executions up to a maximum. If more executions
// are due than lockReady has locked, other transactions have locked the rest.
const selectNext = `
SELECT q.n,
       (SELECT ready_at FROM executions WHERE lane = q.lane AND ready_at IS NOT NULL AND ready_at > $5::bigint ORDER BY ready_at LIMIT 1),
       (SELECT count(*) FROM (
           SELECT 1 FROM executions WHERE lane = q.lane AND ready_at IS NOT NULL AND ready_at >= q.low AND ready_at <= $5::bigint LIMIT q.most
       ) d)
FROM (SELECT unnest($1::bigint[]) AS n, unnest($2::bigint[]) AS lane, unnest($3::bigint[]) AS low, unnest($4::bigint[]) AS most) q`

// lockedRetry is how soon a lane (a group of executions) is read again if other transactions have
// locked due executions in it. Their commits take about this long.
const lockedRetry = 20 * time.Millisecond

// most is the maximum up to which the due executions of a lane (a group of executions) are counted.
const most = 64

// look is a search of a lane in a transaction.
type look struct {
	machine.ReadyQuery
	n       int          // index of the query
	from    machine.Time // 0 to search from the beginning of the index
	lowered uint64       // how often the lane's floor had been lowered when the search began
}

// lockReady adds the searches for due executions.
func (t *tx) lockReady(p *pipe, queries []machine.ReadyQuery) {
	t.rows.Ready = make([]machine.ReadyLane, len(queries))
	for i, q := range queries {
		if q.Limit > 0 {
			from, lowered := t.store.floors.from(q.Lane)
			t.looks = append(t.looks, look{q, i, from, lowered})
		}
	}
	if len(t.looks) == 0 {
		return
	}
	t.bindLooks(p.add(lockReady, t.due), func(k look) int64 { return int64(k.Limit) })
	t.bindLooks(p.add(selectNext, t.next), func(look) int64 { return most })
}

func (t *tx) bindLooks(s *step, limit func(look) int64) {
	ints(s, int8s, t.looks, func(k look) int64 { return int64(k.n) })
	ints(s, int8s, t.looks, func(k look) int64 { return int64(k.Lane) })
	ints(s, int8s, t.looks, func(k look) int64 { return int64(k.from) })
	ints(s, int8s, t.looks, limit)
	s.int(int64(t.cutoff))
}

// due reads a due execution and its spec into t.
func (t *tx) due(r columns) error {
	lane := &t.rows.Ready[r.int(0)]
	e, s := r[1:], r[1+executionCount:]
	if err := t.found(e, true); err != nil {
		return err
	}
	id := belay.ExecutionID(e.id(0))
	lane.Due = append(lane.Due, id)
	if s[0] == nil || t.specs[id] {
		return nil
	}
	spec, err := scanSpec(s)
	t.specs[id] = true
	t.rows.Specs = append(t.rows.Specs, spec)
	return err
}

// next reads when the next execution in a lane is ready.
func (t *tx) next(r columns) error {
	k := r.int(0)
	lane := &t.rows.Ready[k]
	for _, l := range t.looks {
		if int64(l.n) == k && len(lane.Due) >= l.Limit {
			return nil
		}
	}
	lane.Next = r.time(1)
	if soon := t.cutoff.Add(lockedRetry); int(r.int(2)) > len(lane.Due) && (lane.Next == 0 || lane.Next > soon) {
		lane.Next = soon
	}
	return nil
}
