package sqlite

import (
	"context"
	"errors"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

var (
	selectObjects = selecting(table.Objects)
	selectObject  = selectObjects + " WHERE kind = ? AND name = ?"
	listObjects   = selectObjects + " WHERE kind = ? AND name > ? ORDER BY name LIMIT ?"
	insertObjects = insertInto(table.Objects)
	changeObject  = change(table.Objects, "version, next_at, updated_at, updated_by, body",
		"kind, name").and("version = ?")
	insertAudit = insertInto(table.Trail)
)

const deleteObject = "DELETE FROM objects WHERE kind = ? AND name = ? AND version = ?"

// loadObjects loads the objects that the commands need, and then those to which the loaded rows
// refer.
func (t *tx) loadObjects(rows *machine.Rows, need machine.Need) error {
	if err := t.loadThese(rows, unique(need.Objects)); err != nil {
		return err
	}
	if err := t.findLaneGates(rows, unique(need.LaneGates)); err != nil {
		return err
	}
	more := need.Further(rows)
	if err := t.loadThese(rows, more.Objects); err != nil {
		return err
	}
	if err := t.loadOps(rows, more.Ops); err != nil {
		return err
	}
	return t.loadGates(rows, more, need.Members)
}

func (t *tx) loadThese(rows *machine.Rows, refs []machine.ObjectRef) error {
	for _, ref := range refs {
		t.args.text(string(ref.Kind))
		t.args.text(ref.Name)
		err := t.query(t.ctx, selectObject, into(table.Objects, &rows.Objects))
		if err != nil {
			return err
		}
	}
	return nil
}

// writeObjects adds objects, or replaces or deletes the versions that the changes name, and writes
// rows of the audit log.
func (t *tx) writeObjects(c *machine.Changes) error {
	for _, o := range c.Objects {
		if o.Was == 0 {
			if err := insertObjects.add(t, o); err != nil {
				return err
			}
			continue
		}
		text := changeObject.text
		if o.Gone {
			text = deleteObject
			t.args.text(string(o.Kind)).text(o.Name)
		} else {
			bind(&t.args, changeObject.Table, o)
		}
		t.args.int(o.Was)
		if err := t.changed("object", o.ObjectRef, text); err != nil {
			return err
		}
	}
	return insertAudit.add(t, c.Audit...)
}

// errFull ends a query when a page of a list is full.
var errFull = errors.New("the page is full")

// Query implements store.Store.
func (s *Store) Query(ctx context.Context, q store.Query) (store.Found, error) {
	last, err := q.Start()
	if err != nil {
		return store.Found{}, err
	}
	f := q.Fill()
	limit, _ := q.Bounds()
	err = s.read(ctx, func(ctx context.Context, c *conn) error {
		switch q.Of {
		case store.NeedingLanes, store.Needing:
			return c.listNeeding(ctx, q, f, s.Now(), limit)
		case store.DueLanes:
			return c.listDueLanes(ctx, f, s.Now(), limit)
		default:
		}
		err := c.list(ctx, q, &last, f, limit+1) // reads one row more, to find out whether there is a next page
		if errors.Is(err, errFull) {
			return nil
		}
		return err
	})
	return f.Found, classify("list", err)
}

func (c *conn) list(ctx context.Context, q store.Query, last *store.Last, f *store.Filling, limit int64) error {
	if q.Of == store.OneGate {
		return c.showGate(ctx, q, f, limit-1)
	}
	if q.Of == store.OneObject {
		c.args.text(string(q.Kind)).text(q.Name)
		return c.query(ctx, selectObject, into(table.Objects, &f.Objects))
	}
	if q.Of == store.Objects {
		c.args.text(string(q.Kind))
		c.args.text(q.After)
		c.args.int(limit)
		return c.query(ctx, listObjects, func(r columns) error {
			o, err := table.Scan(table.Objects, r)
			if err == nil && !f.Object(o, int64(len(o.Body))) {
				err = errFull
			}
			return err
		})
	}
	if q.Of == store.Letters {
		return c.listLettersOf(ctx, q, last.Letter, f, limit-1)
	}
	if q.Of == store.Runs {
		return c.listRunsOf(ctx, q, last.Run, f, limit-1)
	}
	c.args.int(int64(last.Audit.At))
	c.args.text(string(last.Audit.Kind))
	c.args.text(last.Audit.Name)
	c.args.int(last.Audit.Version)
	c.args.int(limit)
	return c.query(ctx, selectTrail, func(r columns) error {
		a, err := table.Scan(table.Trail, r)
		if err == nil && !f.Audit(a) {
			err = errFull
		}
		return err
	})
}

var selectTrail = selecting(table.Trail) + `
WHERE (at, kind, name, version) < (?, ?, ?, ?)
ORDER BY at DESC, kind DESC, name DESC, version DESC
LIMIT ?`
