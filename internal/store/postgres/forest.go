package postgres

import (
	"context"
	"math"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store"
)

// forest reads the database for Prune on a reading connection, each read in a new snapshot. Prune
// locks the rows and checks the results again before it deletes.
type forest struct {
	*Store
	ctx     context.Context
	before  int64
	letters int64
}

const (
	selectBound = "SELECT id FROM executions WHERE id > $1::uuid AND id <= $2::uuid ORDER BY id OFFSET $3::bigint " +
		"LIMIT 1"
	selectRoots = `
SELECT e.id, e.seq, e.reason IS NOT DISTINCT FROM 'forgotten'
FROM executions e
LEFT JOIN LATERAL (SELECT true AS there FROM executions WHERE id = e.parent) p ON e.parent IS NOT NULL
WHERE e.id > $1::uuid AND e.id <= $2::uuid AND e.state >= 6 AND e.finished_at < $3::bigint AND p.there IS NULL
  AND NOT EXISTS (SELECT 1 FROM dead_letters WHERE execution = e.id AND resolution IS NULL AND at >= $5::bigint)
ORDER BY e.id
LIMIT $4::bigint`

	memberColumns = "SELECT c.id, c.parent, c.seq, c.state >= 6 AND c.finished_at < $1::bigint FROM executions c"
	selectMembers = memberColumns + " WHERE c.parent = ANY($3::uuid[]) LIMIT $2::bigint"
	selectLeaves  = memberColumns + " WHERE c.parent = $3::uuid AND c.state >= 6 AND c.finished_at < $1::bigint" +
		" AND NOT EXISTS (SELECT 1 FROM executions g WHERE g.parent = c.id) ORDER BY c.id LIMIT $2::bigint"
	selectNodes = memberColumns + " WHERE c.parent = $3::uuid AND c.state >= 6 AND c.finished_at < $1::bigint" +
		" AND EXISTS (SELECT 1 FROM executions g WHERE g.parent = c.id) ORDER BY c.id LIMIT $2::bigint"

	selectStoredBytes = "SELECT execution, bytes FROM blob_sums WHERE execution = ANY($1::uuid[])"
	selectWeights     = `
SELECT u.id, count(*), coalesce(sum(k.size), 0)::bigint
FROM (SELECT unnest($1::uuid[]) AS id) u
CROSS JOIN LATERAL (
    (SELECT octet_length(data) AS size FROM checkpoints WHERE execution = u.id LIMIT $2::bigint)
    UNION ALL
    (SELECT octet_length(payload) FROM signals WHERE execution = u.id LIMIT $2::bigint)
    UNION ALL
    (SELECT octet_length(output) FROM runs WHERE execution = u.id LIMIT $2::bigint)
    UNION ALL
    (SELECT 0 FROM actions WHERE execution = u.id LIMIT $2::bigint)
) k
GROUP BY u.id`
)

// Roots implements store.Forest.
func (f forest) Roots(s store.Stretch, limit int) (roots []store.Root, next belay.ExecutionID, more bool, err error) {
	err = f.query(f.ctx, func(p *pipe) {
		next, more = s.To, false
		p.add(selectBound, func(r columns) error {
			next, more = r.id(0), true
			return nil
		}).id(s.From).id(s.To).int(int64(s.Rows) - 1)
	})
	if err != nil {
		return nil, next, false, err
	}
	err = f.query(f.ctx, func(p *pipe) {
		roots = nil
		p.add(selectRoots, func(r columns) error {
			roots = append(roots, store.Root{ID: r.id(0), Seq: r.int(1), Forgotten: r.bool(2)})
			return nil
		}).id(s.From).id(next).int(f.before).int(boundOf(limit)).int(f.letters)
	})
	if limit > 0 && len(roots) == limit {
		next, more = roots[limit-1].ID, true
	}
	return roots, next, more, err
}

// Children implements store.Forest.
func (f forest) Children(of []belay.ExecutionID, limit int) ([]store.Member, error) {
	return f.members(selectMembers, limit, func(s *step) { idList(s, of) })
}

// Leaves implements store.Forest.
func (f forest) Leaves(of belay.ExecutionID, limit int) ([]store.Member, error) {
	return f.members(selectLeaves, limit, func(s *step) { s.id(of) })
}

// Nodes implements store.Forest.
func (f forest) Nodes(of belay.ExecutionID, limit int) ([]store.Member, error) {
	return f.members(selectNodes, limit, func(s *step) { s.id(of) })
}

func (f forest) members(text string, limit int, belowInterval func(*step)) (all []store.Member, err error) {
	err = f.query(f.ctx, func(p *pipe) {
		all = nil
		belowInterval(p.add(text, func(r columns) error {
			all = append(all, store.Member{ID: r.id(0), Parent: r.id(1), Seq: r.int(2), Over: r.bool(3)})
			return nil
		}).int(f.before).int(boundOf(limit)))
	})
	return all, err
}

// Weigh implements store.Forest.
func (f forest) Weigh(of []store.Member) (map[belay.ExecutionID]store.Weight, error) {
	var weights map[belay.ExecutionID]store.Weight
	var ids, heavy []belay.ExecutionID
	for _, m := range of {
		if ids = append(ids, m.ID); m.Seq > store.LightSeq {
			heavy = append(heavy, m.ID)
		}
	}
	err := f.query(f.ctx, func(p *pipe) {
		weights = make(map[belay.ExecutionID]store.Weight, len(of))
		for _, m := range of {
			weights[m.ID] = store.Weight{Rows: m.Seq}
		}
		if len(heavy) > 0 {
			s := p.add(selectWeights, func(r columns) error {
				weights[r.id(0)] = store.Weight{Rows: r.int(1), Bytes: r.int(2)}
				return nil
			})
			idList(s, heavy)
			s.int(store.FellRows + 1)
		}
		idList(p.add(selectStoredBytes, func(r columns) error {
			w := weights[r.id(0)]
			w.Bytes += r.int(1)
			weights[r.id(0)] = w
			return nil
		}), ids)
	})
	return weights, err
}

// boundOf returns a limit for a statement. A limit of 0 means no limit.
func boundOf(limit int) int64 {
	if limit <= 0 {
		return math.MaxInt64
	}
	return int64(limit)
}

var _ store.Forest = forest{}

// stillOver returns the members of those trees in which all executions have still ended before the
// retention limit.
func stillOver(trees map[belay.ExecutionID][]belay.ExecutionID,
	over map[belay.ExecutionID]bool) (ids []belay.ExecutionID) {
	for _, members := range trees {
		whole := true
		for _, id := range members {
			whole = whole && over[id]
		}
		if whole {
			ids = append(ids, members...)
		}
	}
	return ids
}
