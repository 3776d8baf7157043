package storetest

import (
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

func applying(name, text string) *machine.ApplyDocument {
	return &machine.ApplyDocument{DocumentApply: belay.DocumentApply{Name: name, Text: text, Actor: "ci"}}
}

func removing(name string, version int) *machine.ChangeDocument {
	return &machine.ChangeDocument{DocumentChange: belay.DocumentChange{
		Name: name, Action: belay.DocumentRemove, Version: version, Actor: "me", Reason: "old",
	}}
}

// oneObject reads one object, nil if there is none.
func (e *env) oneObject(ref machine.ObjectRef) *machine.Object {
	e.Helper()
	f := e.query(store.Query{Of: store.OneObject, Kind: ref.Kind, Name: ref.Name})
	if len(f.Objects) == 0 {
		return nil
	}
	if len(f.Objects) > 1 || f.Next != "" || f.Objects[0].ObjectRef != ref {
		e.Errorf("one object: %+v", f)
	}
	return f.Objects[0]
}

// documentOf reads the versions of a document.
func (e *env) documentOf(name string) belay.DocumentVersions {
	e.Helper()
	v, err := machine.DocumentView(e.oneObject(machine.DocumentRef(name)))
	if err != nil {
		e.Fatal(err)
	}
	return v
}

var documentCases = []testCase{
	{"a version keeps its text, and lists of documents have no texts", func(e *env) {
		long := strings.Repeat("é", belay.MaxDocument/2)
		for i, text := range []string{"first", long, "a \\ ' \" $1 ? \t\n"} {
			if r := e.ok(applying("nightly", text)); r.Document.Version != i+1 || r.Replayed {
				e.Errorf("applied %+v", r)
			}
			e.clock.Advance(time.Second)
			if o := e.oneObject(machine.TextRef("nightly", i+1)); o == nil || string(o.Body) != text {
				e.Errorf("the text of version %d is %+v", i+1, o)
			}
		}
		if r := e.ok(applying("nightly", "a \\ ' \" $1 ? \t\n")); !r.Replayed || r.Document.Version != 3 {
			e.Errorf("the same text makes a version: %+v", r)
		}
		e.ok(applying("nightly.2", "x"))
		v := e.documentOf("nightly")
		if len(v.Versions) != 3 || v.Default != 3 || v.Versions[0].Version != 3 || v.Versions[1].Size != len(long) ||
			v.Versions[2].CreatedBy != "ci" {
			e.Errorf("versions %+v", v)
		}
		for _, o := range e.query(store.Query{Of: store.Objects, Kind: machine.DocumentObject}).Objects {
			if len(o.Body) > 2000 {
				e.Errorf("the object of the document %s has %d bytes", o.Name, len(o.Body))
			}
		}
		if o := e.oneObject(machine.DocumentRef("nightl")); o != nil {
			e.Errorf("found %+v", o)
		}
	}},
	{"a removed version is gone with its text, and its number is not used again", func(e *env) {
		e.ok(applying("nightly", "one"))
		e.ok(applying("nightly", "two"))
		e.ok(applying("other", "two"))
		e.ok(removing("nightly", 2))
		if o := e.oneObject(machine.TextRef("nightly", 2)); o != nil {
			e.Errorf("the text is kept: %+v", o)
		}
		if r := e.ok(applying("nightly", "two")); r.Document.Version != 3 {
			e.Errorf("applied %+v", r.Document)
		}
		e.ok(removing("nightly", 0))
		texts := e.query(store.Query{Of: store.Objects, Kind: machine.TextObject}).Objects
		if len(texts) != 1 || texts[0].ObjectRef != machine.TextRef("other", 1) {
			e.Errorf("texts %+v", texts)
		}
		if r := e.ok(applying("nightly", "one")); r.Document.Version != 4 {
			e.Errorf("applied %+v", r.Document)
		}
	}},
	{"a batch may add, remove and add versions of one document", func(e *env) {
		replies := e.fold(applying("nightly", "one"), removing("nightly", 1), applying("nightly", "one"),
			applying("nightly", "two"), removing("nightly", 2))
		for i, r := range replies {
			if r.Err != nil {
				e.Errorf("command %d: %v", i, r.Err)
			}
		}
		if v := e.documentOf("nightly"); len(v.Versions) != 1 || v.Versions[0].Version != 3 {
			e.Errorf("versions %+v", v)
		}
		texts := e.query(store.Query{Of: store.Objects, Kind: machine.TextObject}).Objects
		if len(texts) != 1 || string(texts[0].Body) != "two" {
			e.Errorf("texts %+v", texts)
		}
	}},
	{"only the stored version of an object is deleted", func(e *env) {
		first := object("a", "x", "1")
		e.mustWrite(&machine.Changes{Objects: []*machine.Object{first}})
		for what, wrong := range map[string]*machine.Object{
			"another version": {ObjectRef: first.ObjectRef, Was: 2, Gone: true},
			"another object":  {ObjectRef: machine.ObjectRef{Kind: "a", Name: "y"}, Was: 1, Gone: true},
		} {
			err := e.write(&machine.Changes{Objects: []*machine.Object{object("a", "z", "2"), wrong}})
			if belay.CodeOf(err) != belay.CodeInternal {
				e.Errorf("%s is deleted: %v", what, err)
			}
			e.same("after "+what, []*machine.Object{first}, e.query(store.Query{Of: store.Objects, Kind: "a"}).Objects)
		}
		e.mustWrite(&machine.Changes{Objects: []*machine.Object{{ObjectRef: first.ObjectRef, Was: 1, Gone: true}}})
		e.same("deleted", (*machine.Object)(nil), e.oneObject(first.ObjectRef))
	}},
	{"retention keeps documents", func(e *env) {
		e.ok(applying("nightly", "one"))
		e.clock.Advance(1000 * time.Hour)
		if _, err := e.store.Prune(e.Context(), store.Retention{Before: e.now()}, 100); err != nil {
			e.Fatal(err)
		}
		if o := e.oneObject(machine.TextRef("nightly", 1)); o == nil || len(e.documentOf("nightly").Versions) != 1 {
			e.Error("the document is gone")
		}
	}},
}

// documents applies, deprecates and removes versions of documents.
func (g *guide) documents() {
	g.must(applying("nightly", "one"))
	g.must(applying("nightly", "two"))
	for _, a := range []belay.DocumentAction{belay.DocumentDeprecate, belay.DocumentRestore, belay.DocumentRemove} {
		g.must(&machine.ChangeDocument{DocumentChange: belay.DocumentChange{Name: "nightly", Action: a, Version: 1}})
	}
}

func (w *walker) applyDocument() machine.Command {
	c := applying(one(w, "nightly", "weekly"), one(w, "one", "two", "three"))
	c.IfVersion, c.IfNew = one(w, 0, 0, 0, 1, 2), false
	return c
}

func (w *walker) changeDocument() machine.Command {
	return &machine.ChangeDocument{DocumentChange: belay.DocumentChange{
		Name:    one(w, "nightly", "weekly"),
		Action:  one(w, belay.DocumentDeprecate, belay.DocumentRestore, belay.DocumentRemove),
		Version: w.number(1, 4),
	}}
}
