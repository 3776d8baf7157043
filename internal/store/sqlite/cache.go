package sqlite

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// cacheRows is how many rows one generation of the cache holds.
const cacheRows = 8192

// cache holds rows of executions as they stand in the database, since reading
// one costs as much as writing it. It belongs to the writer and is touched only
// in its transactions. It is never wrong: rows come in when they are read or
// when a commit that wrote them succeeded; anything that goes wrong empties it,
// and so does a change by another connection, which SQLite tells by its data
// version. Rows in it are never changed in place.
//
// There are two generations: what was not asked for while the young one filled
// up is forgotten.
type cache struct {
	young, old map[belay.ExecutionID]*machine.Execution
	version    int64
}

func (c *cache) get(id belay.ExecutionID) *machine.Execution {
	if e := c.young[id]; e != nil {
		return e
	}
	e := c.old[id]
	if e != nil {
		c.put(e)
	}
	return e
}

func (c *cache) put(e *machine.Execution) {
	if c.young == nil || len(c.young) >= cacheRows {
		c.old, c.young = c.young, make(map[belay.ExecutionID]*machine.Execution)
	}
	c.young[e.ID] = e
}

func (c *cache) forget(ids []belay.ExecutionID) {
	for _, id := range ids {
		delete(c.young, id)
		delete(c.old, id)
	}
}

func (c *cache) drop() { c.young, c.old = nil, nil }

// fresh empties the cache if another connection has written since. The
// transaction has begun, so that none can write from now on.
func (c *cache) fresh(t *tx) error {
	return t.query(t.ctx, "PRAGMA data_version", func(r columns) error {
		if v := r.int(0); v != c.version {
			c.drop()
			c.version = v
		}
		return nil
	})
}

// keep takes in what a commit wrote.
func (c *cache) keep(written []*machine.Execution) {
	for _, e := range written {
		row := working(e)
		row.New, row.Attention = false, false
		c.put(row)
	}
}
