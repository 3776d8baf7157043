package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

func applyText(name, text string, with ...func(*belay.DocumentApply)) *ApplyDocument {
	c := &ApplyDocument{DocumentApply: belay.DocumentApply{Name: name, Text: text, Actor: "ci"}}
	for _, w := range with {
		w(&c.DocumentApply)
	}
	return c
}

func changeText(action belay.DocumentAction, name string, version int) *ChangeDocument {
	return &ChangeDocument{DocumentChange: belay.DocumentChange{
		Name: name, Action: action, Version: version, Actor: "me",
	}}
}

// versions reads the numbers of the versions of a document, the newest first, with a minus if a
// version is deprecated, and the default version.
func (s *stage) versions(name string) string {
	s.t.Helper()
	o := s.objects[DocumentRef(name)]
	if o == nil {
		return "none"
	}
	v, err := DocumentView(o)
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, x := range v.Versions {
		n := fmt.Sprint(x.Version)
		if x.Deprecated != nil {
			n = "-" + n
		}
		out = append(out, n)
		if s.objects[TextRef(name, x.Version)] == nil {
			s.t.Errorf("version %d has no text", x.Version)
		}
	}
	return fmt.Sprintf("%s default %d", strings.Join(out, " "), v.Default)
}

// documentStep is a change of the document d, and the versions after it.
type documentStep struct {
	c    Command
	code belay.Code // empty if the command is accepted
	want string
}

// documentSteps are changes of one document, one after the other.
func documentSteps() []documentStep {
	ifVersion := func(n int) func(*belay.DocumentApply) {
		return func(a *belay.DocumentApply) { a.IfVersion = n }
	}
	ifNew := func(a *belay.DocumentApply) { a.IfNew = true }
	expecting := func(c *ChangeDocument, n int) *ChangeDocument { c.IfVersion = n; return c }
	return []documentStep{
		{changeText(belay.DocumentRemove, "d", 0), belay.CodeNotFound, "none"},
		{applyText("d", "a", ifVersion(1)), belay.CodeConflict, "none"},
		{applyText("d", "a", ifNew), "", "1 default 1"},
		{applyText("d", "a", ifNew), belay.CodeConflict, "1 default 1"},
		{applyText("d", "a"), "", "1 default 1"},
		{applyText("d", "b", ifVersion(2)), belay.CodeConflict, "1 default 1"},
		{applyText("d", "b", ifVersion(1)), "", "2 1 default 2"},
		{applyText("d", "b", ifVersion(1)), belay.CodeConflict, "2 1 default 2"},
		{applyText("d", "b", ifVersion(-1)), belay.CodeInvalid, "2 1 default 2"},
		{applyText("d", "a"), "", "3 2 1 default 3"}, // an older text again is a new version
		{changeText(belay.DocumentDeprecate, "d", 3), "", "-3 2 1 default 2"},
		{changeText(belay.DocumentDeprecate, "d", 3), "", "-3 2 1 default 2"},
		{changeText(belay.DocumentDeprecate, "d", 4), belay.CodeNotFound, "-3 2 1 default 2"},
		{changeText(belay.DocumentDeprecate, "d", 0), belay.CodeInvalid, "-3 2 1 default 2"},
		{changeText("burn", "d", 1), belay.CodeInvalid, "-3 2 1 default 2"},
		{applyText("d", "a"), "", "-3 2 1 default 2"},
		{changeText(belay.DocumentDeprecate, "d", 1), "", "-3 2 -1 default 2"},
		{changeText(belay.DocumentDeprecate, "d", 2), "", "-3 -2 -1 default 0"},
		{changeText(belay.DocumentRestore, "d", 1), "", "-3 -2 1 default 1"},
		{expecting(changeText(belay.DocumentRemove, "d", 3), 2), belay.CodeConflict, "-3 -2 1 default 1"},
		{expecting(changeText(belay.DocumentRemove, "d", 3), 3), "", "-2 1 default 1"},
		{changeText(belay.DocumentRemove, "d", 3), belay.CodeNotFound, "-2 1 default 1"},
		{applyText("d", "a"), "", "4 -2 1 default 4"},
		{changeText(belay.DocumentRemove, "d", 0), "", " default 0"},
		{changeText(belay.DocumentRemove, "d", 0), belay.CodeNotFound, " default 0"},
		{applyText("d", "a", ifVersion(4)), belay.CodeConflict, " default 0"},
		{applyText("d", "a", ifNew), "", "5 default 5"},
	}
}

// Rule: each change of a document leads from one list of versions to another, or is refused.
func TestDocumentsChangeByTheRules(t *testing.T) {
	s := newStage(t)
	for _, x := range documentSteps() {
		if s.pass(time.Second); x.code == "" {
			s.do(x.c)
		} else {
			s.refused(x.c, x.code)
		}
		if got := s.versions("d"); got != x.want {
			t.Fatalf("after %+v: %s, want %s", x.c, got, x.want)
		}
	}
	texts := 0
	for ref := range s.objects {
		if ref.Kind == TextObject {
			texts++
		}
	}
	if texts != 1 {
		t.Errorf("%d texts are kept, want 1", texts)
	}
}

// Rule: hostile names and texts are refused before anything is written.
func TestHostileDocumentsAreRefused(t *testing.T) {
	s := newStage(t)
	for _, name := range []string{
		"", ".", "..", "a/b", "../x", "a@1", "a b", "naïve", "日本", "-x", "_x", "a\x00", "a\n", "a%2fb",
		strings.Repeat("a", belay.MaxDocumentName+1),
	} {
		s.refused(applyText(name, "x"), belay.CodeInvalid)
		s.refused(changeText(belay.DocumentRemove, name, 1), belay.CodeInvalid)
	}
	for text, code := range map[string]belay.Code{
		"": belay.CodeInvalid, "\xff": belay.CodeInvalid, "a\x00b": belay.CodeInvalid,
		strings.Repeat("a", belay.MaxDocument+1): belay.CodePayloadTooLarge,
	} {
		s.refused(applyText("d", text), code)
	}
	for _, wrong := range []string{strings.Repeat("a", belay.MaxName+1), "a\nb", "\xff"} {
		s.refused(applyText("d", "x", func(a *belay.DocumentApply) { a.Actor = wrong }), belay.CodeInvalid)
		s.refused(applyText("d", "x", func(a *belay.DocumentApply) { a.Reason = wrong }), belay.CodeInvalid)
	}
}

// Rule: a repetition of a change changes nothing, even if another operator has changed the document
// since.
func TestARepeatedChangeOfADocumentChangesNothing(t *testing.T) {
	s := newStage(t)
	op := func(n byte) belay.OpID { return belay.OpID{n} }
	named := func(n byte) func(*belay.DocumentApply) { return func(a *belay.DocumentApply) { a.Op = op(n) } }
	s.do(applyText("d", "mine", named(1)))
	s.do(applyText("d", "theirs", named(2)))
	if r := s.do(applyText("d", "mine", named(1))); !r.Replayed || r.Document.Version != 1 {
		t.Errorf("repeated: %+v", r)
	}
	s.refused(applyText("d", "other", named(1)), belay.CodeIdempotencyMismatch)
	all := changeText(belay.DocumentRemove, "d", 0)
	all.Op = op(3)
	s.do(all)
	s.do(applyText("d", "new", named(4)))
	if r := s.do(all); !r.Replayed || s.versions("d") != "3 default 3" {
		t.Errorf("repeated: %+v, and %s", r, s.versions("d"))
	}
}

// Rule: the numbers of documents and of versions are bounded, and removed ones do not count.
func TestDocumentsAreBounded(t *testing.T) {
	s := newStage(t)
	for i := range belay.MaxDocumentVersions {
		if _, replies, err := s.fold(applyText("d", fmt.Sprint(i))); err != nil || replies[0].Err != nil {
			t.Fatal(err, replies)
		}
	}
	s.refused(applyText("d", "one more"), belay.CodeConflict)
	s.do(changeText(belay.DocumentRemove, "d", 1))
	s.do(applyText("d", "one more"))
	body, err := countCodec.encode(&total{"documents": belay.MaxDocuments})
	if err != nil {
		t.Fatal(err)
	}
	s.objects[countRef].Body = body
	s.refused(applyText("e", "x"), belay.CodeConflict)
	s.do(changeText(belay.DocumentRemove, "d", 2))
	s.do(applyText("d", "two more"))
	s.do(changeText(belay.DocumentRemove, "d", 0))
	s.do(applyText("e", "x"))
	s.refused(applyText("d", "x"), belay.CodeConflict)
}

// Rule: the audit names the actor, the action, the version and the reason of each change.
func TestChangesOfDocumentsAreInTheAudit(t *testing.T) {
	s := newStage(t)
	s.do(applyText("d", "a", func(a *belay.DocumentApply) { a.Reason = "first" }))
	s.do(applyText("d", "a"))
	s.do(changeText(belay.DocumentDeprecate, "d", 1))
	s.do(changeText(belay.DocumentRemove, "d", 0))
	var got []string
	for _, a := range s.audit {
		got = append(got, fmt.Sprintf("%s %s %s %s: %s", a.Actor, a.Action, a.Kind, a.Name, a.Reason))
	}
	want := "ci apply document d: version 1: first\nme deprecate document d: version 1\nme remove document d: all versions"
	if strings.Join(got, "\n") != want {
		t.Errorf("audit:\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}
