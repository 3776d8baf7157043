package sqlite

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// cacheRows is the maximum number of rows in each of the two maps of the cache.
const cacheRows = 8192

// cache keeps rows of executions as the database has them, because reading a row costs as much as
// writing it. Only the transactions of the writing connection use the cache. It is never out of
// date: a row is added when it is read, or when a commit that wrote it has succeeded. Any error
// empties the cache, and so does a change by another connection, which SQLite reports through
// data_version. Rows in the cache are never changed in place.
//
// The cache has two maps. When young is full, it becomes old, and the cache drops those rows of the
// previous old map that were not read since it became old.
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

// dropIfStale empties the cache if another connection has written to the database since the last
// transaction. The present transaction has begun already, so no other connection can write until it
// ends.
func (c *cache) dropIfStale(t *tx) error {
	return t.query(t.ctx, "PRAGMA data_version", func(r columns) error {
		if v := r.int(0); v != c.version {
			c.drop()
			c.version = v
		}
		return nil
	})
}

// add adds the rows that a commit has written.
func (c *cache) add(written []*machine.Execution) {
	for _, e := range written {
		row := copyOf(e)
		row.New, row.Attention = false, false
		c.put(row)
	}
}
