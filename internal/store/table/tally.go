package table

import (
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store"
)

// TallyExecutions counts executions that have not ended. Such an execution has a ready time, an owner, or neither;
// for each of these cases there is an index that contains only these rows. The columns are a state, a queue or NULL,
// and the numbers of all executions, of the due ones, and of the owned ones. NULL stands for the queues beyond the
// store.MaxTallied with the most executions, and for the executions that have neither a ready time nor an owner: for
// those, the index has the state, but not the queue. now is the placeholder of the time.
func TallyExecutions(now string) string {
	return fmt.Sprintf(`
WITH work AS MATERIALIZED (
    SELECT queue, state, count(*) AS n, sum(CASE WHEN ready_at <= %s THEN 1 ELSE 0 END) AS due, 0 AS owned
    FROM executions
    WHERE ready_at IS NOT NULL
    GROUP BY queue, state
    UNION ALL
    SELECT queue, state, count(*), 0, count(*)
    FROM executions
    WHERE worker IS NOT NULL AND ready_at IS NULL
    GROUP BY queue, state
),
ranks AS (
    SELECT queue, row_number() OVER (ORDER BY sum(due + owned) DESC, queue) AS place FROM work GROUP BY queue
)
SELECT work.state, CASE WHEN ranks.place <= %d THEN work.queue END AS named,
       CAST(sum(work.n) AS BIGINT), CAST(sum(work.due) AS BIGINT), CAST(sum(work.owned) AS BIGINT)
FROM work
JOIN ranks ON ranks.queue = work.queue
GROUP BY work.state, named
UNION ALL
SELECT state, NULL, count(*), 0, 0
FROM executions
WHERE ready_at IS NULL AND worker IS NULL AND state < 6
GROUP BY state`, now, store.MaxTallied)
}

// TallyGates counts the taken places of each gate, and the executions that wait at it. The columns are the name of the
// gate, or NULL for the gates beyond the store.MaxTallied with the most of both, and the two numbers. held is the
// condition that a place is taken. Both tables have an index that contains only the rows that are counted.
func TallyGates(held string) string {
	return fmt.Sprintf(`
WITH used AS MATERIALIZED (
    SELECT gate, count(*) AS held, 0 AS waiting FROM places WHERE %s GROUP BY gate
    UNION ALL
    SELECT gate, 0, count(*) FROM executions WHERE gate IS NOT NULL GROUP BY gate
),
ranks AS (
    SELECT gate, row_number() OVER (ORDER BY sum(held + waiting) DESC, gate) AS place FROM used GROUP BY gate
)
SELECT CASE WHEN ranks.place <= %d THEN used.gate END AS named,
       CAST(sum(used.held) AS BIGINT), CAST(sum(used.waiting) AS BIGINT)
FROM used
JOIN ranks ON ranks.gate = used.gate
GROUP BY named`, held, store.MaxTallied)
}

// AddExecutions adds a row of TallyExecutions to a tally.
func AddExecutions(t *store.Tally, state belay.State, queue string, n, due, owned int64) {
	if state.Terminal() {
		return
	}
	t.Executions[state] += n
	if queue != "" || due+owned > 0 {
		t.AddQueue(store.QueueLoad{Queue: queue, Due: due, Owned: owned})
	}
}
