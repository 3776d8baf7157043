package postgres

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

// A lane is there while something is ready in it, and what it is stands in whatever
// that is. The table of lanes is written for servers that know no newer schema than
// the fourth, and looked at by them alone: what is missing in it is missed by nobody
// else.
const (
	// They are found by leaps through the index.
	selectReadyLanes = `
WITH RECURSIVE lanes (id, at) AS (
    (SELECT lane, ready_at FROM executions WHERE ready_at IS NOT NULL ORDER BY lane, ready_at LIMIT 1)
    UNION ALL
    SELECT n.lane, n.ready_at
    FROM lanes
    CROSS JOIN LATERAL (
        SELECT lane, ready_at FROM executions WHERE ready_at IS NOT NULL AND lane > lanes.id ORDER BY lane, ready_at LIMIT 1
    ) n
)
SELECT id, at
FROM lanes`

	selectLanes = `
SELECT u.id, e.queue, e.workflow, e.version, s.priority, s.worker_labels
FROM (SELECT unnest($1::bigint[]) AS id) u
CROSS JOIN LATERAL (
    SELECT id, queue, workflow, version FROM executions WHERE lane = u.id AND ready_at IS NOT NULL ORDER BY ready_at, id LIMIT 1
) e
CROSS JOIN LATERAL (SELECT priority, worker_labels FROM specs WHERE execution = e.id ORDER BY generation DESC LIMIT 1) s`
)

// leaps remembers the ready lanes while looking for them takes long: somebody holds
// on to an old snapshot, and what was claimed since still lies in the index.
type leaps struct {
	mu    sync.Mutex
	lanes []store.LaneHint
	again time.Time
}

// The answer to a long look is given again for leapShare times as long as it took, and
// for longLooked at most.
const (
	leapShare  = 20
	longLooked = 30 * time.Second
)

// ReadyLanes implements store.Store.
func (s *Store) ReadyLanes(ctx context.Context) ([]store.LaneHint, error) {
	s.leaps.mu.Lock()
	defer s.leaps.mu.Unlock()
	began := time.Now()
	if began.Before(s.leaps.again) {
		return slices.Clone(s.leaps.lanes), nil
	}
	var all []store.LaneHint
	err := s.query(store.Urgent(ctx), func(p *pipe) {
		all, began = nil, time.Now() // once connected
		p.add(selectReadyLanes, func(r columns) error {
			all = append(all, store.LaneHint{Lane: machine.LaneID(r.int(0)), At: r.time(1)})
			return nil
		})
	})
	if took := time.Since(began); err == nil && took > s.options.LongLook {
		s.leaps.again = began.Add(min(leapShare*took, longLooked))
		s.leaps.lanes = slices.Clone(all)
	}
	return all, classify("lanes", err)
}

// Lanes implements store.Store.
func (s *Store) Lanes(ctx context.Context, ids []machine.LaneID) ([]machine.Lane, error) {
	var all []machine.Lane
	ids = unique(ids)
	err := s.query(store.Urgent(ctx), func(p *pipe) {
		all = nil
		ints(p.add(selectLanes, func(r columns) error {
			labels, err := table.ParseLabels(r.text(5))
			all = append(all, machine.Lane{
				ID: machine.LaneID(r.int(0)), Queue: r.text(1), Workflow: r.text(2), Version: r.text(3), Priority: int(r.int(4)), Labels: labels,
			})
			return err
		}), int8s, ids, func(id machine.LaneID) int64 { return int64(id) })
	})
	slices.SortFunc(all, func(a, b machine.Lane) int { return cmp.Compare(a.ID, b.ID) })
	return all, classify("lanes", err)
}

// lanes are those that were written not long ago. Others may have deleted them since,
// so they are written again now and then.
type lanes struct {
	mu    sync.Mutex
	all   map[machine.LaneID]struct{}
	begun time.Time
}

const (
	laneWritten = 10 * time.Minute
	maxLanes    = 1 << 16
)

func (l *lanes) unknown(all []machine.Lane) (left []machine.Lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) > maxLanes || time.Since(l.begun) > laneWritten {
		l.all, l.begun = make(map[machine.LaneID]struct{}), time.Now()
	}
	for _, lane := range all {
		if _, known := l.all[lane.ID]; !known {
			left = append(left, lane)
		}
	}
	return left
}

func (l *lanes) note(all []machine.Lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lane := range all {
		l.all[lane.ID] = struct{}{}
	}
}

// laneSweep is a pass over the table of lanes for rows that no execution needs. It is
// made now and then, a few rows at a time: a row that is missed has no meaning.
type laneSweep struct {
	mu    sync.Mutex
	again time.Time // when the next pass begins
	last  machine.LaneID
	used  map[machine.LaneID]bool // in which something is owned or rests, when the pass began
}

const (
	lanePass  = time.Hour
	laneStep  = 500
	readsUsed = `
SELECT DISTINCT lane FROM executions WHERE worker IS NOT NULL
UNION
SELECT DISTINCT lane FROM executions WHERE ready_at IS NULL AND worker IS NULL AND state < 6`
	selectUnused = `
SELECT l.id, r.id IS NOT NULL
FROM lanes l
LEFT JOIN LATERAL (SELECT id FROM executions WHERE lane = l.id AND ready_at IS NOT NULL LIMIT 1) r ON true
WHERE l.id > $1::bigint
ORDER BY l.id
LIMIT $2::bigint`
	deleteLanes = "DELETE FROM lanes WHERE id = ANY($1::bigint[])"
)

// pruneLanes goes on with the pass, or begins one if it is time. Deleting a row takes
// no other lock, and nobody waits for it but who writes the same row.
func (s *Store) pruneLanes(ctx context.Context) error {
	if s.options.ReadOnly {
		return nil
	}
	x := &s.sweep
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.used == nil {
		if time.Now().Before(x.again) {
			return nil
		}
		x.again = time.Now().Add(lanePass)
		used := make(map[machine.LaneID]bool)
		err := s.query(store.Urgent(ctx), func(p *pipe) {
			p.add(readsUsed, func(r columns) error {
				used[machine.LaneID(r.int(0))] = true
				return nil
			})
		})
		if err != nil {
			return err
		}
		x.used, x.last = used, -1
	}
	var unused []machine.LaneID
	rows := 0
	err := s.query(store.Urgent(ctx), func(p *pipe) {
		unused, rows = nil, 0
		p.add(selectUnused, func(r columns) error {
			rows++
			x.last = machine.LaneID(r.int(0))
			if !r.bool(1) && !x.used[x.last] {
				unused = append(unused, x.last)
			}
			return nil
		}).int(int64(x.last)).int(laneStep)
	})
	if err != nil || rows < laneStep {
		x.used = nil // the pass is over
	}
	if err != nil || len(unused) == 0 {
		return err
	}
	return s.ask(ctx, func(p *pipe) {
		ints(p.add(deleteLanes, nil), int8s, unused, func(id machine.LaneID) int64 { return int64(id) })
	})
}

// ask runs statements on a writer, each committed by itself.
func (s *Store) ask(ctx context.Context, statements func(*pipe)) error {
	c, err := s.writers.take(ctx)
	if err != nil {
		return err
	}
	defer func() { s.writers <- c }()
	return s.transact(ctx, c, func(ctx context.Context) error {
		p := c.pipe()
		statements(p)
		return p.run(ctx)
	})
}
