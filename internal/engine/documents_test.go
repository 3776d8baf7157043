package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
)

// apply stores a text as a version of the document nightly.
func apply(t *testing.T, b belay.Backend, text string) belay.DocumentApplied {
	t.Helper()
	return must[belay.DocumentApplied](t)(b.ApplyDocument(t.Context(), belay.DocumentApply{
		Name: "nightly", Text: text, Actor: "ci",
	}))
}

// one submits one submission.
func one(t *testing.T, b belay.Backend, s belay.Submission) belay.Submitted {
	t.Helper()
	return must[[]belay.Submitted](t)(b.Submit(t.Context(), s))[0]
}

// textOf reads the text that an execution contains, and its label with the version.
func textOf(t *testing.T, b belay.Backend, id belay.ExecutionID) (text, version string) {
	t.Helper()
	x := must[belay.Execution](t)(b.Execution(t.Context(), id))
	var in struct{ Document, Hash, File string }
	if err := json.Unmarshal(x.Input, &in); err != nil || x.Workflow != "document" {
		t.Fatalf("the workflow %s with the input %s: %v", x.Workflow, x.Input, err)
	}
	if x.Labels[belay.LabelDocument] != "nightly" || in.File != "nightly@"+x.Labels[belay.LabelDocumentVersion] {
		t.Errorf("labels %v, file %s", x.Labels, in.File)
	}
	return in.Document, x.Labels[belay.LabelDocumentVersion]
}

func inMemory(t *testing.T, f func(t *testing.T, e *engine.Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(memory.New(time.Now), engine.Options{})
		defer e.Close()
		f(t, e)
	})
}

// Rule: an execution contains the text of the version that it was submitted with, whatever happens to
// the stored document later.
func TestAnExecutionKeepsItsVersion(t *testing.T) {
	inMemory(t, func(t *testing.T, e *engine.Engine) {
		apply(t, e, "one")
		first := one(t, e, belay.Submission{Document: "nightly", Input: []byte(`{"a":"<&>"}`)})
		apply(t, e, "two")
		second := one(t, e, belay.Submission{Document: "nightly", Labels: map[string]string{"team": "web"}})
		pinned := one(t, e, belay.Submission{Document: "nightly@1"})
		if first.Err != nil || second.Err != nil || pinned.Err != nil {
			t.Fatal(first.Err, second.Err, pinned.Err)
		}
		must[belay.DocumentVersion](t)(e.ChangeDocument(t.Context(), belay.DocumentChange{
			Name: "nightly", Action: belay.DocumentRemove,
		}))
		for id, want := range map[belay.ExecutionID]string{
			first.ID: "one 1", second.ID: "two 2", pinned.ID: "one 1",
		} {
			if text, version := textOf(t, e, id); text+" "+version != want {
				t.Errorf("%s runs %s %s, want %s", id, text, version, want)
			}
		}
		x := must[belay.Execution](t)(e.Execution(t.Context(), first.ID))
		if !strings.Contains(string(x.Input), `"input":{"a":"<&>"}`) {
			t.Errorf("the input is %s", x.Input)
		}
		page := must[belay.Page](t)(e.Executions(t.Context(), belay.Filter{
			Labels: map[string]string{belay.LabelDocument: "nightly", belay.LabelDocumentVersion: "2", "team": "web"},
		}))
		if len(page.Executions) != 1 || page.Executions[0].ID != second.ID {
			t.Errorf("by its labels: %+v", page.Executions)
		}
	})
}

// Rule: a repeated submission finds its first execution, although there is another newest version, or
// none, by now. Another input, or another version by name, is another submission.
func TestARepeatedSubmissionKeepsItsVersion(t *testing.T) {
	inMemory(t, func(t *testing.T, e *engine.Engine) {
		apply(t, e, "one")
		byKey := belay.Submission{Document: "nightly", IdempotencyKey: "k", Input: []byte(`{"day": 1, "n": 1e1}`)}
		byID := belay.Submission{Document: "nightly", ID: belay.ExecutionID{1, 6: 0x70, 8: 0x80}}
		key, id := one(t, e, byKey), one(t, e, byID)
		repeat := func(when string) {
			again := byKey
			again.Input = []byte(`{"n":10,"day":1}`)
			for _, s := range []belay.Submission{byKey, again, byID} {
				want := key.ID
				if s.IdempotencyKey == "" {
					want = id.ID
				}
				if got := one(t, e, s); got.Err != nil || !got.Replayed || got.ID != want {
					t.Errorf("%s: %+v, want %s", when, got, want)
				}
			}
		}
		repeat("at once")
		apply(t, e, "two")
		repeat("after an apply")
		other, later := byKey, byKey
		other.Input, later.Document = []byte(`{"day": 2}`), "nightly@2"
		for _, s := range []belay.Submission{other, later} {
			if got := one(t, e, s); belay.CodeOf(got.Err) != belay.CodeIdempotencyMismatch {
				t.Errorf("%+v: %+v", s, got)
			}
		}
		same := byKey
		same.Document = "nightly@1"
		if got := one(t, e, same); got.Err != nil || !got.Replayed || got.ID != key.ID {
			t.Errorf("the same version by name: %+v", got)
		}
		for _, version := range []int{2, 1} {
			c := belay.DocumentChange{Name: "nightly", Version: version, Action: belay.DocumentDeprecate}
			must[belay.DocumentVersion](t)(e.ChangeDocument(t.Context(), c))
		}
		repeat("after all versions were deprecated")
		c := belay.DocumentChange{Name: "nightly", Action: belay.DocumentRemove}
		must[belay.DocumentVersion](t)(e.ChangeDocument(t.Context(), c))
		repeat("after the document was removed")
		fresh := one(t, e, belay.Submission{Document: "nightly", IdempotencyKey: "other"})
		if belay.CodeOf(fresh.Err) != belay.CodeNotFound {
			t.Errorf("a removed document runs: %+v", fresh)
		}
	})
}

// Rule: a batch may mix documents and workflows, and each submission has its own answer.
func TestABatchWithDocuments(t *testing.T) {
	inMemory(t, func(t *testing.T, e *engine.Engine) {
		apply(t, e, "one")
		list := []belay.Submission{
			{Workflow: "w"}, {Document: "nightly"}, {Document: "weekly"}, {Document: "nightly", Workflow: "w"},
			{Document: "nightly", Version: "2"}, {Document: "../x"}, {Document: "nightly@0"}, {Document: "nightly@9"},
			{Document: "nightly", Labels: map[string]string{belay.LabelDocument: "weekly"}},
			{Document: "nightly", Input: []byte(`{`)},
			{Document: "nightly", Input: []byte(`"` + strings.Repeat("a", belay.MaxPayload-10) + `"`)},
			{Document: "nightly", Workflow: "document"}, {Document: "nightly@01"}, {},
		}
		want := []belay.Code{
			"", "", belay.CodeNotFound, belay.CodeInvalid, belay.CodeInvalid, belay.CodeInvalid, belay.CodeInvalid,
			belay.CodeNotFound, belay.CodeInvalid, belay.CodeInvalid, belay.CodePayloadTooLarge, "", belay.CodeInvalid,
			belay.CodeInvalid,
		}
		out := must[[]belay.Submitted](t)(e.Submit(t.Context(), list...))
		for i := range list {
			code := belay.Code("")
			if out[i].Err != nil {
				code = belay.CodeOf(out[i].Err)
			}
			if code != want[i] || code == "" && (out[i].ID.IsZero() || out[i].ID != list[i].ID) {
				t.Errorf("%d: %+v, want %q", i, out[i], want[i])
			}
		}
	})
}

// Rule: a deprecated version runs only if a submission names it, and the answer warns.
func TestADeprecatedVersionWarns(t *testing.T) {
	inMemory(t, func(t *testing.T, e *engine.Engine) {
		apply(t, e, "one")
		apply(t, e, "two")
		must[belay.DocumentVersion](t)(e.ChangeDocument(t.Context(), belay.DocumentChange{
			Name: "nightly", Version: 2, Action: belay.DocumentDeprecate, Reason: "it deletes too much",
		}))
		usual := one(t, e, belay.Submission{Document: "nightly"})
		if _, version := textOf(t, e, usual.ID); version != "1" || usual.Warning != "" {
			t.Errorf("version %s, warning %q", version, usual.Warning)
		}
		named := one(t, e, belay.Submission{Document: "nightly@2"})
		_, version := textOf(t, e, named.ID)
		if version != "2" || !strings.Contains(named.Warning, "it deletes too much") {
			t.Errorf("version %s, warning %q", version, named.Warning)
		}
		must[belay.DocumentVersion](t)(e.ChangeDocument(t.Context(), belay.DocumentChange{
			Name: "nightly", Version: 1, Action: belay.DocumentDeprecate,
		}))
		if s := one(t, e, belay.Submission{Document: "nightly"}); belay.CodeOf(s.Err) != belay.CodeConflict {
			t.Errorf("all versions are deprecated: %+v", s)
		}
	})
}

// Rule: lists of documents are in the order of names, page by page, without removed documents.
func TestDocumentsAreListed(t *testing.T) {
	inMemory(t, func(t *testing.T, e *engine.Engine) {
		for i := range 7 {
			a := belay.DocumentApply{Name: fmt.Sprint("d", i), Text: "x"}
			must[belay.DocumentApplied](t)(e.ApplyDocument(t.Context(), a))
		}
		removal := belay.DocumentChange{Name: "d3", Action: belay.DocumentRemove}
		must[belay.DocumentVersion](t)(e.ChangeDocument(t.Context(), removal))
		var names []string
		for f := (belay.DocumentFilter{Limit: 2}); ; {
			page := must[belay.DocumentPage](t)(e.Documents(t.Context(), f))
			for _, d := range page.Documents {
				names = append(names, d.Name)
			}
			if f.Cursor = page.Next; f.Cursor == "" {
				break
			}
		}
		if got := strings.Join(names, " "); got != "d0 d1 d2 d4 d5 d6" {
			t.Errorf("names %s", got)
		}
		_, err := e.DocumentVersions(t.Context(), "d3")
		refusal(t, err, belay.CodeNotFound, "")
	})
}

// raceApplies lets n changes that expect the same newest version race between two servers.
func raceApplies(t *testing.T, here, there belay.Backend) {
	t.Helper()
	const n = 16
	for round := range 5 {
		var wg sync.WaitGroup
		errs := make([]error, n)
		for i := range n {
			b := []belay.Backend{here, there}[i%2]
			wg.Go(func() {
				_, errs[i] = b.ApplyDocument(context.WithoutCancel(t.Context()), belay.DocumentApply{
					Name: "raced", Text: fmt.Sprint(round, i), IfVersion: round, IfNew: round == 0,
				})
			})
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			switch {
			case err == nil:
				won++
			case belay.CodeOf(err) != belay.CodeConflict:
				t.Error(err)
			}
		}
		v := must[belay.DocumentVersions](t)(here.DocumentVersions(t.Context(), "raced"))
		if won != 1 || v.Versions[0].Version != round+1 {
			t.Errorf("round %d: %d have won, and the newest version is %d", round, won, v.Versions[0].Version)
		}
	}
}

// Rule: of several changes that expect the same newest version one is made.
func TestOneOfManyAppliesWins(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		s := memory.New(time.Now)
		here, there := engine.New(s, engine.Options{}), engine.New(s, engine.Options{})
		defer here.Close()
		defer there.Close()
		raceApplies(t, here, there)
	})
	t.Run("postgres", func(t *testing.T) {
		url := database(t)
		raceApplies(t, start(t, url, withHints), start(t, url, withHints))
	})
}
