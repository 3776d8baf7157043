package test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"os/user"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// Rule: the history, the audit and the page of an execution show who has sent each signal: the name of the key, by
// HTTP, on a page and in a command, whatever name the request gives; or the user of a command on the host. A document
// shows who has approved it.
func TestSignalsNameTheirSenders(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve()
	secret := func(name, scope string) string {
		return strings.TrimSpace(p.belay("keys", "create", "--name", name, "--scope", scope).want(0).out)
	}
	admin, ci, rita := secret("anna", "admin"), secret("robot", "read,submit"), secret("rita", "read,submit")
	own, err := user.Current()
	must(t, err)
	as := func(key string) []string { return []string{"Authorization", "Bearer " + key} }
	a.put("deliver", deliverDocument, as(admin)...)
	id := a.want(http.StatusCreated, "POST", "/v1/executions", `{"document": "deliver", "input": {"city": "Oslo"}}`,
		as(ci)...).string("id")
	until(t, "the document waits for the approval", func() bool {
		return a.call("GET", "/v1/executions/"+id, "", as(ci)...).string("state") == "waiting"
	})
	at := "/executions/" + id + "/signal"
	person := visit(t, a.url, rita)
	page := person.wants(http.StatusOK, "GET", at, nil)
	if !strings.Contains(page, "Approve or refuse") || !strings.Contains(page, "May the parcel go?") {
		t.Errorf("the form of the approval has no question:\n%s", page)
	}
	op := opField.FindStringSubmatch(page)
	if op == nil {
		t.Fatalf("the form has no operation id:\n%s", page)
	}

	a.want(http.StatusAccepted, "POST", "/v1"+at, `{"name": "by-http", "actor": "mallory"}`, as(ci)...)
	p.belay("signal", id, "by-user").want(0)
	p.start(withEnv(p.command("signal", "--server", a.url, id, "by-command"), "BELAY_KEY="+ci)).wait(patience).want(0)
	person.wants(http.StatusSeeOther, "POST", at, url.Values{
		"op": {op[1]}, "signal": {"allow"}, "approval": {"yes"}, "mode": {"fields"}, "f0": {"0"}, "actor": {"mallory"},
	})

	senders := map[string]string{"by-http": "robot", "by-user": own.Username, "by-command": "robot", "allow": "rita"}
	shown := p.belay("get", id).want(0).out
	page = person.wants(http.StatusOK, "GET", "/executions/"+id, nil)
	audit := p.belay("audit", "--kind", "execution", "--name", id, "--action", "signal").want(0).out
	for name, actor := range senders {
		if !strings.Contains(page, name+" · by "+actor) {
			t.Errorf("the page does not show the signal %s by %s", name, actor)
		}
		for what, text := range map[string]string{"belay get": shown, "belay audit": audit} {
			if !hasLine(text, name, actor) {
				t.Errorf("%s shows no signal %s by %s:\n%s", what, name, actor, text)
			}
		}
	}
	if got := a.senders(id, as(ci)...); !maps.Equal(got, senders) {
		t.Errorf("the history has signals by %v, want %v", got, senders)
	}
	for _, text := range []string{shown, page, audit} {
		if strings.Contains(text, "mallory") {
			t.Errorf("the name in a request is shown:\n%s", text)
		}
	}
}

// senders returns the actors of the signals in the history of an execution, by the names of the signals.
func (a api) senders(id string, headers ...string) map[string]string {
	a.t.Helper()
	var history struct{ Events []belay.Event }
	got := a.want(http.StatusOK, "GET", "/v1/executions/"+id+"/history", "", headers...)
	must(a.t, json.Unmarshal([]byte(got.text), &history))
	all := make(map[string]string)
	for _, ev := range history.Events {
		if ev.Kind == "signal" {
			all[ev.Name] = ev.Actor
		}
	}
	return all
}

// hasLine reports whether one line of a text has all parts.
func hasLine(text string, parts ...string) bool {
	for line := range strings.Lines(text) {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			return true
		}
	}
	return false
}
