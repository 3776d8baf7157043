package machine

import (
	"testing"

	"github.com/belaydev/belay"
)

// A change to an object names the version that it replaces. A change that names another version
// is refused and writes nothing.
func TestAChangeToAnotherVersionIsRefused(t *testing.T) {
	ref := ObjectRef{"thing", "a"}
	for _, c := range []struct {
		there, expected int64
		code            belay.Code
	}{
		{0, 0, ""}, {0, 1, belay.CodeNotFound}, {1, 0, belay.CodeConflict}, {2, 1, belay.CodeConflict}, {2, 2, ""},
		{2, 3, belay.CodeConflict},
	} {
		rows := &Rows{Now: began}
		if c.there > 0 {
			rows.Objects = []*Object{{ObjectRef: ref, Version: c.there, Body: []byte("old")}}
		}
		w := newWorld(rows)
		r, err := w.put("change it", put{
			ref: ref, expected: c.expected, next: 7, body: []byte("new"), action: "change", actor: "me",
			reason: "because", op: belay.OpID{9},
		})
		if c.code != "" {
			if belay.CodeOf(err) != c.code || !w.out.Empty() {
				t.Errorf("%+v: %v, and %+v", c, err, w.out)
			}
			continue
		}
		want := &Object{ObjectRef: ref, Version: c.there + 1, Was: c.there, NextAt: 7, UpdatedAt: began,
			UpdatedBy: "me", Body: []byte("new")}
		audit := &Audit{At: began, Actor: "me", ObjectRef: ref, Version: c.there + 1, Action: "change",
			Reason: "because", Op: belay.OpID{9}}
		if err != nil || !same(w.out.Objects, []*Object{want}) || !same(w.out.Audit, []*Audit{audit}) {
			t.Errorf("%+v: %v, %+v", c, err, w.out)
		}
		if c.there > 0 && string(rows.Objects[0].Body) != "old" {
			t.Errorf("%+v: the loaded object was changed", c)
		}
		if !same(r.Object, want.copy()) {
			t.Errorf("%+v: the reply is %+v", c, r.Object)
		}
		if _, err := w.put("change it", put{ref: ref, expected: c.there + 1, body: []byte("newer")}); err != nil {
			t.Errorf("%+v: the same again: %v", c, err)
		}
		if o := w.out.Objects; len(o) != 1 || o[0].Was != c.there || o[0].Version != c.there+2 ||
			len(w.out.Audit) != 2 {
			t.Errorf("%+v: changed twice in one fold: %+v", c, w.out)
		}
		if _, err := w.put("change it", put{ref: ref, expected: c.there + 2,
			actor: "a\nb"}); belay.CodeOf(err) != belay.CodeInvalid {
			t.Errorf("an actor of two lines: %v", err)
		}
	}
}
