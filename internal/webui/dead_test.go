package webui

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// The page shows the groups with their counts and times, and links each group to its dead letters.
func TestDeadLettersAreGrouped(t *testing.T) {
	f := &fake{}
	for i := range 130 {
		f.groups.Groups = append(f.groups.Groups, belay.DeadLetterGroup{
			Fingerprint: fmt.Sprintf("f%d", i), Workflow: "review", Reason: "max_retries", Count: 200 - i,
			First: ago(time.Hour), Last: ago(time.Minute), Message: "no such branch\nmore", Newest: id(3),
		})
	}
	f.groups.Examined, f.groups.More = 10_000, true
	a := get(t, f, "/dead?workflow=review")
	if q := f.dead[0]; q.Resolution != "open" || q.Workflow != "review" {
		t.Errorf("the page asks for %+v", q)
	}
	rows := a.root.class("cards")[0].all("tr")
	if len(rows) != mostGroups+1 {
		t.Fatalf("%d rows, want a head and %d", len(rows), mostGroups)
	}
	want := "review max retries 200 no such branch … 1h0m ago 1m0s ago " + shortID(id(3))
	if got := rows[1].words(); got != want {
		t.Errorf("a group is listed as %q", got)
	}
	a.says("in 130 groups of review", "30 smaller groups are not shown", "Only the newest 10000 dead letters",
		"all workflows")
	if href := rows[1].all("a")[0].attr["href"]; href != "/dead?fingerprint=f0" {
		t.Errorf("the group leads to %s", href)
	}
}

// The page of an execution that failed shows its dead letter, with the notes and the forms that resolve it, which lead
// back to the page. An execution that has been reopened and one without a dead letter show none.
func TestExecutionShowsItsDeadLetter(t *testing.T) {
	f := running()
	at := here + id(1).String()
	f.inputs = map[belay.ExecutionID]json.RawMessage{id(1): nil}
	get(t, f, at).saysNot("Dead letters with the same error")
	f.one.State, f.one.Generation = belay.Failed, 2
	f.fingerprint = "f0"
	for i := range 25 {
		f.notes = append(f.notes, belay.DeadLetterNote{At: ago(time.Minute), By: "anna",
			Text: fmt.Sprintf("<note %d>", i)})
	}
	a := send(t, f, by(at, nil, belay.ScopeOperate))
	a.says("Dead letter open noted 1m0s ago by anna: <note 5>", "<note 24> 5 earlier notes", "Fixed", "Not needed")
	a.saysNot("<note 4>")
	var forms []string
	for _, l := range a.root.all("a") {
		if strings.HasPrefix(l.attr["href"], deedPath) {
			q, _ := url.ParseQuery(l.attr["href"][len(deedPath)+1:])
			forms = append(forms, q.Get("do")+" "+q.Get("id")+" "+q.Get("back"))
		}
	}
	of := " " + id(1).String() + ".2 " + id(1).String()
	if want := "fix" + of + ", discard" + of + ", note" + of; strings.Join(forms, ", ") != want {
		t.Errorf("the forms are %q, want %q", forms, want)
	}
	get(t, f, at).says("Dead letter open")
	f.inputs = nil
	get(t, f, at).saysNot("Dead letters with the same error")
}

// The list of a group shows each dead letter with its error, notes and resolution, in pages.
func TestDeadLettersOfAGroup(t *testing.T) {
	f := &fake{}
	for i := range 70 {
		f.letters = append(f.letters, belay.DeadLetter{Execution: id(byte(i)), Generation: 2, Workflow: "review",
			Reason: "timeout", Message: strings.Repeat("long ", 1000), At: ago(time.Minute)})
	}
	l := &f.letters[0]
	l.Message, l.Resolution, l.ResolvedBy, l.ResolvedAt = "too slow", belay.ResolvedFixed, "anna", ago(time.Second)
	l.FailedBy = belay.FailedByMonitor
	l.Notes = []belay.DeadLetterNote{{By: "bob", Text: "first"}, {By: "anna", Text: "moved the file"}}
	f.groups = belay.DeadLetterGroups{Groups: []belay.DeadLetterGroup{{Fingerprint: "f0", Count: 70}}, More: true}
	first := get(t, f, "/dead?fingerprint=f0&resolution=all")
	if q := f.dead[1]; q.Fingerprint != "f0" || q.Resolution != "all" || q.Workflow != "review" || q.Cursor != "" {
		t.Errorf("the count asks for %+v", q)
	}
	if h := first.root.class("summary"); len(h) != 1 || h[0].words() != "too slow" {
		t.Error("the page has no heading with the error")
	}
	first.says("at least 70 dead letters with this error")
	f.dead = f.dead[:1]
	if q := f.dead[0]; q.Fingerprint != "f0" || q.Resolution != "all" || q.Limit != lettersSize {
		t.Errorf("the page asks for %+v", q)
	}
	first.says("review timeout", "too slow", "ended by the execution_timeout_monitor", "noted by anna: moved the file",
		"1 earlier note", "fixed 1s ago by anna", "generation 2")
	if len(first.body) > 128<<10 {
		t.Errorf("the page has %d bytes", len(first.body))
	}
	second := get(t, f, nextOf(first))
	if q := f.dead[1]; q.Fingerprint != "f0" || q.Resolution != "all" || q.Cursor == "" {
		t.Errorf("the second page asks for %+v", q)
	}
	if n := len(second.root.class("cards")[0].all("tr")); n != 21 || nextOf(second) != "" {
		t.Errorf("the second page has %d rows, want 21", n)
	}
	f.letters, f.dead = f.letters[:2], nil
	get(t, f, "/dead?fingerprint=f0").says("2 open dead letters with this error")
	if len(f.dead) != 1 {
		t.Errorf("a group with one page is counted with %d reads", len(f.dead))
	}
	if a := get(t, f, "/dead?resolution=nonsense"); a.status != 400 {
		t.Errorf("an unknown resolution: %d", a.status)
	}
}
