package postgres

import (
	"context"
	"slices"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

var (
	lockObjects = "SELECT o.* FROM (SELECT unnest($1::text[]) AS kind, unnest($2::text[]) AS name) u CROSS JOIN " +
		"LATERAL (SELECT " +
		table.Objects.Names() + " FROM objects WHERE kind = u.kind AND name = u.name FOR NO KEY UPDATE) o"

	insertObjects = insert(table.Objects)
	insertAudit   = insert(table.Trail)

	changeObjects = `
UPDATE objects o
SET version = u.version, next_at = u.next_at, updated_at = u.updated_at, updated_by = u.updated_by, body = u.body
FROM (
    SELECT unnest($1::text[]) AS kind, unnest($2::text[]) AS name, unnest($3::bigint[]) AS version, unnest($4::bigint[]) AS next_at,
           unnest($5::bigint[]) AS updated_at, unnest($6::text[]) AS updated_by, unnest($7::bytea[]) AS body, unnest($8::bigint[]) AS was
) u
WHERE o.kind = u.kind AND o.name = u.name AND o.version = u.was`
)

var (
	updateObjects = counted(changeObjects, 8)
	deleteObjects = counted(`
DELETE FROM objects o
USING (SELECT unnest($1::text[]) AS kind, unnest($2::text[]) AS name, unnest($3::bigint[]) AS was) u
WHERE o.kind = u.kind AND o.name = u.name AND o.version = u.was`, 3)
)

// loadObjects locks and loads objects in the order of their kinds and names.
func (t *tx) loadObjects(p *pipe, refs []machine.ObjectRef) {
	if len(refs) == 0 {
		return
	}
	slices.SortFunc(refs, machine.ObjectRef.Compare)
	s := p.add(lockObjects, into(table.Objects, &t.rows.Objects))
	texts(s, refs, func(r machine.ObjectRef) string { return string(r.Kind) })
	texts(s, refs, func(r machine.ObjectRef) string { return r.Name })
}

// loadReferred makes another round trip if the loaded rows refer to objects and gates. It reads the
// clock again after the new locks.
func (t *tx) loadReferred(ctx context.Context, need machine.Need) error {
	more := need.Further(t.rows)
	if more.None() && len(need.Members) == 0 {
		return nil
	}
	p := t.pipe()
	t.loadObjects(p, more.Objects)
	t.loadOps(p, more.Ops)
	t.countGates(p, more, need.Members)
	t.readClock(p)
	return p.run(ctx)
}

// writeObjects adds objects, or replaces or deletes the versions that the changes name, and writes
// rows of the audit log.
func (t *tx) writeObjects(p *pipe, c *machine.Changes) error {
	all := slices.SortedFunc(slices.Values(c.Objects), func(a, b *machine.Object) int { return a.Compare(b.ObjectRef) })
	gone, all := split(all, func(o *machine.Object) bool { return o.Gone })
	fresh, changed := split(all, func(o *machine.Object) bool { return o.Was == 0 })
	size := func(o *machine.Object) int { return len(o.Body) }
	for rows := range pieces(fresh, size) {
		bind(p.add(insertObjects, nil), table.Objects, rows)
	}
	for rows := range pieces(changed, size) {
		s := change(p, updateObjects, "objects", len(rows))
		bind(s, table.Objects, rows)
		ints(s, int8s, rows, func(o *machine.Object) int64 { return o.Was })
		s.int(int64(len(rows)))
	}
	if len(gone) > 0 {
		s := change(p, deleteObjects, "objects", len(gone))
		texts(s, gone, func(o *machine.Object) string { return string(o.Kind) })
		texts(s, gone, func(o *machine.Object) string { return o.Name })
		ints(s, int8s, gone, func(o *machine.Object) int64 { return o.Was })
		s.int(int64(len(gone)))
	}
	if len(c.Audit) > 0 {
		bind(p.add(insertAudit, nil), table.Trail, c.Audit)
	}
	return nil
}

var (
	// The list leaves out the bodies that do not fit into the page.
	listObjects = `WITH page AS (
    SELECT ` + table.Objects.Names() + `, octet_length(body)::bigint + 200 AS size
    FROM objects
    WHERE kind = $1::text AND name > $2::text
    ORDER BY name
    LIMIT $3::bigint
)
SELECT kind, name, version, next_at, updated_at, updated_by, CASE WHEN sum(size) OVER (ORDER BY name) - size < $4::bigint THEN body END, size
FROM page
ORDER BY name`

	listAudit = selecting(table.Trail) + `
WHERE (at, kind, name, version) < ($1::bigint, $2::text, $3::text, $4::bigint)
ORDER BY at DESC, kind DESC, name DESC, version DESC
LIMIT $5::bigint`
)

// Query implements store.Store.
func (s *Store) Query(ctx context.Context, q store.Query) (store.Found, error) {
	last, err := q.Start()
	if err != nil {
		return store.Found{}, err
	}
	var f *store.Filling
	limit, bytes := q.Bounds()
	limit++ // to find out whether there is a next page
	err = s.query(ctx, func(p *pipe) {
		f = q.Fill()
		full := false
		switch q.Of {
		case store.OneObject:
			p.add(selectObject, into(table.Objects, &f.Objects)).string(string(q.Kind)).string(q.Name)
		case store.OneGate:
			showGate(p, q, f, limit-1)
		case store.NeedingLanes:
			listNeedingLanes(p, f, limit-1)
		case store.Needing:
			listNeeding(p, q, f, s.Now(), limit-1)
		case store.DueLanes:
			listDueLanes(p, f, s.Now(), limit-1)
		case store.Objects:
			p.add(listObjects, func(r columns) error {
				o, err := table.Scan(table.Objects, r)
				full = full || err == nil && !f.Object(o, r.int(7)-store.RowBytes)
				return err
			}).string(string(q.Kind)).string(q.After).int(limit).int(bytes)
		case store.Trail:
			p.add(listAudit, func(r columns) error {
				a, err := table.Scan(table.Trail, r)
				full = full || err == nil && !f.Audit(a)
				return err
			}).int(int64(last.Audit.At)).string(string(last.Audit.Kind)).string(last.Audit.Name).
				int(last.Audit.Version).int(limit)
		case store.Letters:
			listLettersOf(p, q, last.Letter, f, limit-1)
		case store.Runs:
			listRunsOf(p, q, last.Run, f, limit-1)
		}
	})
	if err != nil {
		return store.Found{}, classify("list", err)
	}
	return f.Found, nil
}
