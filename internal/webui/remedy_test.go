package webui

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// The page of an execution shows what the explanation recommends as links to forms and pages. A visitor without the
// scope reads which scope is missing. After a deed on another thing the browser returns to the execution.
func TestRemedies(t *testing.T) {
	f, at := running(), here+id(1).String()
	f.why.Execution = id(1)
	f.why.Remedies = []belay.Remedy{
		{Do: "cancel", Of: belay.RemedyExecution, ID: id(1).String(), Title: "Do", Text: "ends it"},
		{Do: "resume", Of: belay.RemedyGate, ID: "queue:mail/now", Title: "Do", Text: "ends the pause"},
		{Do: belay.RemedySignal, Of: belay.RemedyExecution, ID: id(1).String(), Signal: "a&b", Title: "Do",
			Text: "sends it"},
		{Do: belay.RemedyLook, Of: belay.RemedyExecution, ID: id(2).String(), Title: "Do", Text: "shows why"},
		{Do: belay.RemedyLook, Of: belay.RemedyExecution, ID: "//evil.example", Title: "Do", Text: "shows nothing"},
		{Do: "unheard", Of: belay.RemedyGate, ID: "queue:x", Title: "Do", Text: "does nothing"},
		{Do: "pause", Of: "universe", ID: "x", Title: "Do", Text: "does nothing"},
	}
	links := func(scopes ...belay.Scope) (all []string) {
		for _, a := range send(t, f, by(at, nil, scopes...)).root.class("remedies")[0].all("a") {
			all = append(all, a.attr["href"])
		}
		return all
	}
	resume := "/act?do=resume&id=queue%3Amail%2Fnow&of=gate&back=" + id(1).String()
	want := []string{at + "/cancel", resume, at + "/signal", here + id(2).String()}
	if got := links(belay.ScopeOperate, belay.ScopeSubmit); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the page recommends %q, want %q", got, want)
	}
	if got := links(); len(got) != 1 {
		t.Errorf("a reader is offered %q", got)
	}
	send(t, f, by(at, nil)).says("Your key does not have the scope operate")
	if a := send(t, f, by(want[2], nil, belay.ScopeSubmit)); !strings.Contains(a.body, `value="a&amp;b"`) {
		t.Errorf("the form does not name the signal\n%s", a.body)
	}

	form := make(url.Values)
	for _, x := range send(t, f, by(resume, nil, belay.ScopeOperate)).root.class("act")[0].all("input") {
		form.Set(x.attr["name"], x.attr["value"])
	}
	for back, to := range map[string]string{
		id(1).String():      at + "?done=gate.resume",
		"//evil.example/":   "/queues?gate=queue%3Amail%2Fnow",
		"https://evil.test": "/queues?gate=queue%3Amail%2Fnow",
	} {
		form.Set("back", back)
		a := send(t, f, by(deedPath, form, belay.ScopeOperate))
		if got := a.header.Get("Location"); a.status != http.StatusSeeOther || got != to {
			t.Errorf("back to %q: %d to %q, want %q", back, a.status, got, to)
		}
	}
	send(t, f, by(at+"?done=gate.resume", nil)).says("Done: Resume.")
}
