package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

func (s *Store) loadObjects(rows *machine.Rows, refs []machine.ObjectRef) {
	for _, ref := range refs {
		if o := s.objects[ref]; o != nil {
			rows.Objects = append(rows.Objects, copyObject(o))
		}
	}
}

// checkObjects refuses a new object that exists already, a change that does not replace the stored
// version, and a row of the audit log that exists already.
func (t *tx) checkObjects(c *machine.Changes) error {
	for _, o := range c.Objects {
		was := int64(0)
		if there := t.objects[o.ObjectRef]; there != nil {
			was = there.Version
		}
		if was != o.Was {
			return refused("object", o.ObjectRef)
		}
	}
	for _, a := range c.Audit {
		if _, there := slices.BinarySearchFunc(t.audit, a, compareAudit); there {
			return refused("audit of", a.ObjectRef)
		}
	}
	return nil
}

// writeObjects stores objects and rows of the audit log.
func (t *tx) writeObjects(c *machine.Changes) {
	for _, o := range c.Objects {
		if o.Gone {
			delete(t.objects, o.ObjectRef)
			continue
		}
		next := copyObject(o)
		next.Was = 0
		t.objects[o.ObjectRef] = next
	}
	for _, a := range c.Audit {
		i, _ := slices.BinarySearchFunc(t.audit, a, compareAudit)
		t.audit = slices.Insert(t.audit, i, copyOf(a))
	}
}

// Query implements store.Store.
func (s *Store) Query(ctx context.Context, q store.Query) (store.Found, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, "list"); err != nil {
		return store.Found{}, err
	}
	last, err := q.Start()
	if err != nil {
		return store.Found{}, err
	}
	f := q.Fill()
	switch q.Of {
	case store.Objects:
		s.listObjects(q, f)
	case store.OneObject:
		if o := s.objects[machine.ObjectRef{Kind: q.Kind, Name: q.Name}]; o != nil {
			f.Objects = append(f.Objects, copyObject(o))
		}
	case store.OneGate:
		s.showGate(q, f)
	case store.NeedingLanes, store.Needing:
		s.listNeeding(q, f)
	case store.DueLanes:
		s.listDueLanes(q, f)
	case store.Letters:
		s.listLetters(q, f, last.Letter)
	case store.Runs:
		s.listRuns(q, f, last.Run)
	case store.Trail:
		for _, a := range slices.Backward(s.audit) {
			if compareAudit(a, &last.Audit) < 0 && !f.Audit(copyOf(a)) {
				break
			}
		}
	}
	return f.Found, nil
}

func (s *Store) listObjects(q store.Query, f *store.Filling) {
	var all []*machine.Object
	for _, o := range s.objects {
		if o.Kind == q.Kind && o.Name > q.After {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *machine.Object) int { return cmp.Compare(a.Name, b.Name) })
	for _, o := range all {
		if !f.Object(copyObject(o), int64(len(o.Body))) {
			break
		}
	}
}

func compareAudit(a, b *machine.Audit) int {
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Version, b.Version))
}

func copyObject(o *machine.Object) *machine.Object {
	c := *o
	c.Body = slices.Clone(o.Body)
	return &c
}
