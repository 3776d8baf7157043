package machine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/belaydev/belay"
)

// ObjectKind is the kind of an object. The kind determines the codec of the object's body and the
// commands that change the object.
type ObjectKind string

// ObjectRef names an object. Names are unique within a kind.
type ObjectRef struct {
	Kind ObjectKind
	Name string
}

// Compare orders objects by kind and name, the order in which stores lock them.
func (r ObjectRef) Compare(other ObjectRef) int {
	return cmp.Or(cmp.Compare(r.Kind, other.Kind), cmp.Compare(r.Name, other.Name))
}

// Object is the row of something that is not an execution and that changes rarely, such as a gate.
// Stores keep the body as bytes, which the codec of the object's kind decodes.
type Object struct {
	ObjectRef
	Version   int64 // 1 when the object is created, plus one with each change
	NextAt    Time  // when the sweeper must check the object, 0 for never
	UpdatedAt Time
	UpdatedBy string // the actor of the newest change, empty if the change named none
	Body      []byte // replaced as a whole, never changed in place

	// Was is the version that a change replaces or deletes, 0 if the change adds the object.
	Was int64
	// Gone says that a change deletes the object.
	Gone bool
}

// Audit records an action on something other than an execution. Audit is written in the commit of
// the action, once for each version of an object.
type Audit struct {
	At    Time
	Actor string
	ObjectRef
	Version        int64 // version of the object after the action
	Action, Reason string
	Op             belay.OpID
}

// Further names the data to which the first rows of a batch refer. After the first rows, a store
// locks, loads and counts this data in a second step, and then reads its clock.
type Further struct {
	// Objects are locked in the order of their kinds and names.
	Objects []ObjectRef
	// Counts are the gates whose places and executions the store counts, after it has locked the
	// gates' objects.
	Counts []belay.GateID
	// CountMembers is the number up to which the store counts the members of these gates. A limit
	// may have very many members, so only batches that need their number ask for a count.
	CountMembers int
	// Ops are operations of writes that a run sends after it has repeated a write. Such a write may
	// be a late first try, so the store looks up whether it has already carried out the operation.
	Ops []OpRef
}

// None reports whether there is nothing more to load.
func (f Further) None() bool { return len(f.Objects)+len(f.Counts)+len(f.Ops) == 0 }

// Further returns the data that the store must load in addition to the rows that the need names,
// without duplicates.
func (n *Need) Further(rows *Rows) Further {
	var f Further
	gate := func(id belay.GateID) {
		if !slices.Contains(f.Counts, id) {
			f.Counts, f.Objects = append(f.Counts, id), append(f.Objects, GateRef(id))
		}
	}
	for _, id := range n.Counts {
		gate(id)
	}
	named := func(e *Execution, all bool) {
		for _, p := range e.ownGates() {
			gate(e.gateOf(p))
		}
		if all {
			gate(e.gateOf(PlaceQueue))
			gate(e.gateOf(PlaceWorkflow))
		}
	}
	var ready map[belay.ExecutionID]bool
	for _, e := range rows.Executions {
		switch {
		case slices.Contains(n.Entering, e.ID):
			named(e, true)
		case e.Gates != nil:
			if ready == nil {
				ready = rows.due()
			}
			if ready[e.ID] {
				named(e, false)
			} else if e.Gates.Target != "" && slices.Contains(n.Reporting, e.ID) {
				gate(e.gateOf(PlaceTarget))
			}
		}
	}
	for _, id := range rows.LaneGates {
		gate(id)
	}
	f.Objects = append(f.Objects, n.usageRefs(rows)...)
	f.Ops = n.repeatedOps(rows)
	if n.CountMembers > 0 {
		// Each execution that the batch ends lowers the number of members by one.
		f.CountMembers = n.CountMembers + len(rows.Executions)
	}
	return f
}

// repeatedOps returns the operations that may be first tries of writes whose repetition the store
// has already carried out.
func (n *Need) repeatedOps(rows *Rows) (ops []OpRef) {
	if len(n.first) == 0 {
		return nil
	}
	for _, e := range rows.Executions {
		if e.Repeated == 0 || e.Repeated != e.Token {
			continue
		}
		for _, ref := range n.first {
			if ref.Execution == e.ID && !slices.Contains(n.Ops, ref) && !slices.Contains(ops, ref) {
				ops = append(ops, ref)
			}
		}
	}
	return ops
}

// due returns the due executions that a claim of the batch may take.
func (r *Rows) due() map[belay.ExecutionID]bool {
	all := make(map[belay.ExecutionID]bool)
	for i := range r.Ready {
		for _, id := range r.Ready[i].Due {
			all[id] = true
		}
	}
	return all
}

// codec encodes and decodes the bodies of one kind of object. Bodies are JSON so that migrations
// can write them too. A missing field is zero; an unknown field is ignored.
type codec[B any] struct{ kind ObjectKind }

// ref names an object of the codec's kind.
func (c codec[B]) ref(name string) ObjectRef { return ObjectRef{c.kind, name} }

func (c codec[B]) decode(o *Object) (*B, error) {
	b := new(B)
	err := json.Unmarshal(o.Body, b)
	if o.Kind != c.kind {
		err = fmt.Errorf("its kind is %s", o.Kind)
	}
	if err != nil {
		return nil, &belay.Error{
			Code: belay.CodeInternal, Message: fmt.Sprintf("the %s %s cannot be read", c.kind, o.Name), Err: err,
		}
	}
	return b, nil
}

func (c codec[B]) encode(b *B) ([]byte, error) {
	body, err := json.Marshal(b)
	if err != nil {
		return nil, &belay.Error{
			Code: belay.CodeInvalid, Message: "this cannot be written as a " + string(c.kind), Err: err,
		}
	}
	return body, nil
}

// put is a command's change of an object, and its entry in the audit.
type put struct {
	ref      ObjectRef
	expected int64 // the version that the command read, 0 for a new object
	next     Time
	body     []byte

	action, actor, reason string
	op                    belay.OpID
}

// object returns the row of an object in its state after the earlier commands of the batch, nil if
// there is no such object.
func (w *world) object(ref ObjectRef) *Object {
	for _, all := range [][]*Object{w.out.Objects, w.Objects} {
		for _, o := range all {
			if o.ObjectRef == ref {
				return o
			}
		}
	}
	return nil
}

// put writes an object and its audit, and answers with the object. put refuses the change if the
// object does not have the expected version, because another command has changed the object since.
func (w *world) put(op string, p put) (Reply, error) {
	if err := checkName(op, "the actor", p.actor, false); err != nil {
		return Reply{}, err
	}
	o := w.object(p.ref)
	exists := o != nil && !o.Gone // an earlier command of the batch may have removed it
	switch {
	case !exists && p.expected != 0:
		return Reply{}, refuse(belay.CodeNotFound, op, "there is no %s %s", p.ref.Kind, p.ref.Name)
	case exists && p.expected == 0:
		return Reply{}, refuse(belay.CodeConflict, op, "there is a %s %s already", p.ref.Kind, p.ref.Name)
	case exists && o.Version != p.expected:
		return Reply{}, refuse(belay.CodeConflict, op, "the %s %s has version %d by now, not %d: read it again",
			p.ref.Kind, p.ref.Name, o.Version, p.expected)
	}
	o = w.rewrite(p.ref)
	o.Gone = false
	o.Version, o.NextAt, o.UpdatedAt, o.UpdatedBy, o.Body = o.Version+1, p.next, w.Now, p.actor, p.body
	w.out.Audit = append(w.out.Audit, &Audit{
		At: w.Now, Actor: p.actor, ObjectRef: p.ref, Version: o.Version, Action: p.action, Reason: p.reason, Op: p.op,
	})
	return Reply{Object: o.copy()}, nil
}

// rewrite returns the row of an object for the caller to change, and adds it to the changes. If
// there is no such object, the row is new.
func (w *world) rewrite(ref ObjectRef) *Object {
	o := w.object(ref)
	if o == nil {
		o = &Object{ObjectRef: ref}
	}
	if !slices.Contains(w.out.Objects, o) {
		c := *o // the loaded row stays unchanged
		o, c.Was = &c, c.Version
		w.out.Objects = append(w.out.Objects, o)
	}
	return o
}

// add adds an object that is written once. Its audit is that of another object, which every change of
// this object changes too, and whose lock therefore protects this object.
func (w *world) add(ref ObjectRef, actor string, body []byte) {
	w.out.Objects = append(w.out.Objects, &Object{
		ObjectRef: ref, Version: 1, UpdatedAt: w.Now, UpdatedBy: actor, Body: body,
	})
}

// remove deletes an object that add has added, in this batch or in an earlier one.
func (w *world) remove(ref ObjectRef) {
	added := func(o *Object) bool { return o.ObjectRef == ref }
	if n := len(w.out.Objects); n > 0 {
		if w.out.Objects = slices.DeleteFunc(w.out.Objects, added); len(w.out.Objects) < n {
			return
		}
	}
	w.out.Objects = append(w.out.Objects, &Object{ObjectRef: ref, Version: 1, Was: 1, Gone: true})
}

// copy returns a copy of the row for a reply, because later commands of the batch may change the
// row.
func (o *Object) copy() *Object {
	c := *o
	c.Was = 0
	return &c
}
