package machine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/belaydev/belay"
)

// ObjectKind says what an object is: which codec reads its body, and which commands
// change it.
type ObjectKind string

// ObjectRef names an object: its name is its own within its kind.
type ObjectRef struct {
	Kind ObjectKind
	Name string
}

// Compare orders objects by kind and name, as stores lock them.
func (r ObjectRef) Compare(other ObjectRef) int {
	return cmp.Or(cmp.Compare(r.Kind, other.Kind), cmp.Compare(r.Name, other.Name))
}

// Object is the row of a thing that is not an execution and changes rarely. Stores keep
// its body as bytes; the codec of its kind gives them their meaning.
type Object struct {
	ObjectRef
	Version   int64 // 1 when it was made, and one more with each command that changed it
	NextAt    Time  // when the rules must look at it again, 0 for never
	UpdatedAt Time
	UpdatedBy string // the actor of the newest change, empty if it named none
	Body      []byte // never changed in place

	// Was is, in a change, the version that it replaces: 0 adds the object.
	Was int64
}

// Audit is the trace of an action on something that is not one execution. It is written
// in the commit that carries the action out, once for each version of an object.
type Audit struct {
	At    Time
	Actor string
	ObjectRef
	Version        int64 // that the object has since
	Action, Reason string
	Op             belay.OpID
}

// Refer names the objects that rows refer to. The rows that commands name are loaded
// first; then a store asks this once, and loads what it names before it reads its clock.
// Where nothing is named it makes no further trip. No row refers to an object yet.
func Refer(*Rows) []ObjectRef { return nil }

// Further are the objects to load beside those that the need names, each once: what the
// rows refer to that are loaded.
func (n *Need) Further(rows *Rows) []ObjectRef {
	if n.Refer == nil {
		return nil
	}
	var more []ObjectRef
	for _, ref := range n.Refer(rows) {
		if !slices.Contains(n.Objects, ref) && !slices.Contains(more, ref) {
			more = append(more, ref)
		}
	}
	return more
}

// codec reads and writes the bodies of one kind of objects, which are JSON: then a
// migration can make them too. A field that a body does not have is zero, and one that is
// not known here is passed over.
type codec[B any] struct{ kind ObjectKind }

// ref names the object of the kind.
func (c codec[B]) ref(name string) ObjectRef { return ObjectRef{c.kind, name} }

func (c codec[B]) decode(o *Object) (*B, error) {
	b := new(B)
	err := json.Unmarshal(o.Body, b)
	if o.Kind != c.kind {
		err = fmt.Errorf("it is a %s", o.Kind)
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

// put is what a command makes of an object, and what the audit says of it.
type put struct {
	ref      ObjectRef
	expected int64 // the version that the command has seen, 0 for an object that is not there
	next     Time
	body     []byte

	action, actor, reason string
	op                    belay.OpID
}

// object is the row as it stands at this point of the fold, nil if there is none.
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

// put writes an object and its audit, and answers with the object. It refuses a change to
// another version than the one that is there, which another command has written
// meanwhile.
func (w *world) put(op string, p put) (Reply, error) {
	if err := checkName(op, "the actor", p.actor, false); err != nil {
		return Reply{}, err
	}
	o := w.object(p.ref)
	switch {
	case o == nil && p.expected != 0:
		return Reply{}, refuse(belay.CodeNotFound, op, "there is no %s %s", p.ref.Kind, p.ref.Name)
	case o != nil && p.expected == 0:
		return Reply{}, refuse(belay.CodeConflict, op, "there is a %s %s already", p.ref.Kind, p.ref.Name)
	case o != nil && o.Version != p.expected:
		return Reply{}, refuse(belay.CodeConflict, op, "the %s %s has version %d by now, not %d: read it again",
			p.ref.Kind, p.ref.Name, o.Version, p.expected)
	case o == nil:
		o = &Object{ObjectRef: p.ref}
	}
	if !slices.Contains(w.out.Objects, o) {
		c := *o // as it was loaded, it stays
		o, c.Was = &c, c.Version
		w.out.Objects = append(w.out.Objects, o)
	}
	o.Version, o.NextAt, o.UpdatedAt, o.UpdatedBy, o.Body = o.Version+1, p.next, w.Now, p.actor, p.body
	w.out.Audit = append(w.out.Audit, &Audit{
		At: w.Now, Actor: p.actor, ObjectRef: p.ref, Version: o.Version, Action: p.action, Reason: p.reason, Op: p.op,
	})
	return Reply{Object: o.copy()}, nil
}

// copy is the row as it stands, for a reply that later commands of the fold must not
// change.
func (o *Object) copy() *Object {
	c := *o
	c.Was = 0
	return &c
}
