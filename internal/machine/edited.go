package machine

import (
	"fmt"
	"slices"

	"github.com/belaydev/belay"
)

// edited is the part of the body of a schedule or webhook that describes the changes by operators.
type edited struct {
	// Edit counts the changes of the terms. Unlike the version of the object, it does not count
	// what the object has started.
	Edit      int     `json:"edit"`
	CreatedAt Time    `json:"created_at"`
	EditedAt  Time    `json:"edited_at"`
	EditedBy  string  `json:"edited_by,omitempty"`
	Paused    *paused `json:"paused,omitempty"`
	Done      []edit  `json:"done,omitempty"`
	// Document is the name of the document that defines the object; empty if an operator does.
	Document string `json:"document,omitempty"`
}

type paused struct {
	At     Time   `json:"at"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// edit is a change by an operator. Its repetition, after its reply was lost, must not undo the
// change of another operator.
type edit struct {
	Op     belay.OpID `json:"op"`
	Action string     `json:"action"`
	Edit   int        `json:"edit"`
}

// maxEdits is how many changes an object remembers.
const maxEdits = 8

// change records that an operator changes the terms.
func (b *edited) change(now Time, actor string) {
	b.Edit++
	b.EditedAt, b.EditedBy = now, actor
}

// expect refuses a change that expects another version. what is the kind of the object, and exists says whether there
// is one.
func (b *edited) expect(op, what string, exists bool, version int, none bool) error {
	switch {
	case none && exists:
		return refuse(belay.CodeConflict, op, "the %s exists; its version is %d", what, b.Edit)
	case version > 0 && !exists:
		return refuse(belay.CodeConflict, op, "there is no such %s, and so no version %d", what, version)
	case version > 0 && b.Edit != version:
		return refuse(belay.CodeConflict, op, "the version of the %s is %d, not %d: read it again", what, b.Edit,
			version)
	}
	return nil
}

// free refuses a change of the terms of an object that a document defines.
func (b *edited) free(op, what string) error {
	if b.Document == "" {
		return nil
	}
	return refuse(belay.CodeConflict, op, "the %s is defined by the document %s; change the document", what, b.Document)
}

// repeated reports whether a change was carried out before, and refuses another change with its operation.
func (b *edited) repeated(op string, change edit) (bool, error) {
	if change.Op.IsZero() {
		return false, nil
	}
	i := slices.IndexFunc(b.Done, func(d edit) bool { return d.Op == change.Op })
	switch {
	case i < 0:
		return false, nil
	case b.Done[i].Action != change.Action:
		return true, refuse(belay.CodeIdempotencyMismatch, op, "the operation %s was another change", change.Op)
	}
	return true, nil
}

// remember records a change for its repetition. It returns the reason for the audit.
func (b *edited) remember(change edit, reason string) string {
	if !change.Op.IsZero() {
		change.Edit = b.Edit
		b.Done = append(slices.Clone(b.Done[max(0, len(b.Done)-maxEdits+1):]), change)
	}
	about := fmt.Sprintf("version %d", b.Edit)
	if reason != "" {
		about += ": " + reason
	}
	return about
}

// total is the number of all objects of a kind, in an object of its own, under the name in the plural.
type total map[string]int

// count adds by to the number of objects whose total is ref, and refuses a number above the limit. name is the name of
// these objects in the plural.
func (w *world) count(op string, of codec[total], name string, by, most int) error {
	write, err := w.counting(op, of, name, by, most)
	if err == nil {
		write()
	}
	return err
}

// counting is like count, but leaves the change to the function that it returns.
func (w *world) counting(op string, of codec[total], name string, by, most int) (write func(), err error) {
	if by == 0 {
		return func() {}, nil
	}
	n := total{}
	ref := of.ref("all")
	if o := w.object(ref); o != nil {
		b, err := of.decode(o)
		if err != nil {
			return nil, err
		}
		n = *b
	}
	if n[name] += by; by > 0 && n[name] > most {
		return nil, refuse(belay.CodeConflict, op, "there can be %d %s; remove one that is not needed", most,
			name)
	}
	body, err := of.encode(&n)
	if err != nil {
		return nil, err
	}
	return func() {
		o := w.rewrite(ref)
		o.Version, o.UpdatedAt, o.Body = o.Version+1, w.Now, body
	}, nil
}

// checkEdit checks what every change by an operator names.
func checkEdit(op, actor, reason string, version int, none bool) error {
	if version < 0 || version > 0 && none {
		return refuse(belay.CodeInvalid, op, "if_version is a version from 1, and excludes if_new")
	}
	return checkActor(op, actor, reason)
}
