package sdktest

import (
	"github.com/belaydev/belay"
)

// apply stores a text as a version of a document.
func (e *env) apply(name, text string, with ...func(*belay.DocumentApply)) (belay.DocumentApplied, error) {
	a := belay.DocumentApply{Name: name, Text: text, Actor: "me"}
	for _, f := range with {
		f(&a)
	}
	return e.b.ApplyDocument(e.ctx, a)
}

var documents = []testCase{
	{"a stored document has versions, which executions keep", func(e *env) {
		first, err := e.apply("nightly", "one", func(a *belay.DocumentApply) { a.IfNew = true })
		if err != nil || first.Version != 1 || !first.Created || first.Size != 3 || first.CreatedAt.IsZero() {
			e.Fatalf("%+v, %v", first, err)
		}
		same, err := e.apply("nightly", "one")
		if err != nil || same.Created || same.DocumentVersion != first.DocumentVersion {
			e.Errorf("%+v, %v", same, err)
		}
		_, err = e.apply("nightly", "two", func(a *belay.DocumentApply) { a.IfNew = true })
		e.refused("apply as new", err, belay.CodeConflict, "")
		_, err = e.apply("nightly", "two", func(a *belay.DocumentApply) { a.IfVersion = 7 })
		e.refused("apply after version 7", err, belay.CodeConflict, "")
		old, err := e.b.Submit(e.ctx, belay.Submission{Document: "nightly", IdempotencyKey: "k", Input: []byte(`{"n":1}`)})
		e.must(err)
		e.must(old[0].Err)
		second, err := e.apply("nightly", "two", func(a *belay.DocumentApply) { a.IfVersion = 1 })
		if err != nil || second.Version != 2 {
			e.Errorf("%+v, %v", second, err)
		}
		again, err := e.b.Submit(e.ctx, belay.Submission{Document: "nightly", IdempotencyKey: "k", Input: []byte(`{"n":1}`)})
		if err != nil || again[0].Err != nil || again[0].ID != old[0].ID || !again[0].Replayed {
			e.Errorf("%+v, %v", again, err)
		}
		d, err := e.b.Document(e.ctx, "nightly", 0)
		if err != nil || d.Text != "two" || d.DocumentVersion != second.DocumentVersion {
			e.Errorf("%+v, %v", d, err)
		}
		d, err = e.b.Document(e.ctx, "nightly", 1)
		if err != nil || d.Text != "one" {
			e.Errorf("%+v, %v", d, err)
		}
	}},
	{"a version is deprecated, restored and removed", func(e *env) {
		for _, text := range []string{"one", "two", "three"} {
			_, err := e.apply("nightly", text)
			e.must(err)
		}
		change := func(action belay.DocumentAction, version int) belay.DocumentVersion {
			v, err := e.b.ChangeDocument(e.ctx, belay.DocumentChange{
				Name: "nightly", Version: version, Action: action, Actor: "me", Reason: "bad",
			})
			e.must(err)
			return v
		}
		if v := change(belay.DocumentDeprecate, 3); v.Deprecated == nil || v.Deprecated.By != "me" ||
			v.Deprecated.Reason != "bad" {
			e.Errorf("deprecated: %+v", v)
		}
		warned, err := e.b.Submit(e.ctx, belay.Submission{Document: "nightly@3"}, belay.Submission{Document: "nightly"})
		if err != nil || warned[0].Warning == "" || warned[1].Warning != "" {
			e.Errorf("%+v, %v", warned, err)
		}
		page, err := e.b.Documents(e.ctx, belay.DocumentFilter{})
		if err != nil || len(page.Documents) != 1 || page.Documents[0].Default != 2 || page.Documents[0].Count != 3 ||
			page.Documents[0].Newest.Version != 3 || page.Next != "" {
			e.Errorf("%+v, %v", page, err)
		}
		change(belay.DocumentRestore, 3)
		change(belay.DocumentRemove, 1)
		all, err := e.b.DocumentVersions(e.ctx, "nightly")
		if err != nil || all.Default != 3 || len(all.Versions) != 2 || all.Versions[1].Version != 2 {
			e.Errorf("%+v, %v", all, err)
		}
		_, err = e.b.ChangeDocument(e.ctx, belay.DocumentChange{
			Name: "nightly", Action: belay.DocumentRemove, IfVersion: 2,
		})
		e.refused("remove after version 2", err, belay.CodeConflict, "")
		change(belay.DocumentRemove, 0)
		_, err = e.b.Document(e.ctx, "nightly", 0)
		e.refused("read", err, belay.CodeNotFound, "")
		_, err = e.b.DocumentVersions(e.ctx, "nightly")
		e.refused("list", err, belay.CodeNotFound, "")
	}},
	{"names and versions that no document can have are refused", func(e *env) {
		for _, name := range []string{"", "..", "a/b", "a@1", "日本", "a?b", "a#b", "a%2fb"} {
			_, err := e.apply(name, "x")
			e.refused("apply "+name, err, belay.CodeInvalid, "")
			_, err = e.b.Document(e.ctx, name, 1)
			e.refused("read "+name, err, belay.CodeInvalid, "")
			_, err = e.b.DocumentVersions(e.ctx, name)
			e.refused("list "+name, err, belay.CodeInvalid, "")
			removal := belay.DocumentChange{Name: name, Version: 1, Action: belay.DocumentRemove}
			_, err = e.b.ChangeDocument(e.ctx, removal)
			e.refused("remove "+name, err, belay.CodeInvalid, "")
		}
		_, err := e.apply("d", "x")
		e.must(err)
		for _, c := range []belay.DocumentChange{
			{Name: "d", Action: belay.DocumentDeprecate}, {Name: "d", Version: -1, Action: belay.DocumentRemove},
			{Name: "d", Version: 1, Action: "burn"},
		} {
			_, err := e.b.ChangeDocument(e.ctx, c)
			e.refused("change", err, belay.CodeInvalid, "")
		}
	}},
}
