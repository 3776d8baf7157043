package test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/belaydev/belay"
)

// Rule: an operator sets a target of notifications with the command line and tests it. The target then gets the ends
// that it selects, and alerts. belay notify get shows the deliveries, and belay notify ls no part of a URL that may be
// a credential.
func TestTargetsOfNotificationsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	var mu sync.Mutex
	got := make(map[string]int) // requests by path and type
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var ev struct{ Type string }
		if err == nil {
			err = json.Unmarshal(body, &ev)
		}
		if err != nil {
			t.Errorf("%v: %s", err, body)
		}
		mu.Lock()
		got[r.URL.Path+" "+ev.Type]++
		mu.Unlock()
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusGone)
		}
	}))
	defer receiver.Close()
	_, a := p.serve("--http-egress", receiver.Listener.Addr().String())
	targets := func(args ...string) result {
		t.Helper()
		return p.belay(append([]string{"--server", a.url, "notify"}, args...)...)
	}
	set := []string{
		"set", "ops", "--url", receiver.URL + "/hunter2", "--alert", "dead_letter", "--on", "failed",
		"--workflow", "pay*",
	}
	targets("ls").want(0).showing("no targets of notifications")
	targets(set...).want(0).showing("ops is created (version 1)", "belay notify test ops")
	targets(append(set, "--queue", "q")...).want(0).showing("ops is changed (version 2)")
	targets(append(set, "--if-version", "1")...).want(73).saying("the version of the target is 2, not 1")
	targets(append(set, "--new")...).want(73)
	targets(set...).want(0).showing("ops is changed (version 3)")
	if r := targets("ls").want(0).showing(receiver.URL, "failed, dead_letter", "workflow pay*"); strings.Contains(r.out,
		"hunter2") {
		t.Errorf("the list has the path\n%s", r)
	}

	targets("test", "ops").want(0).showing("ops has received the test", "succeeded")
	targets("set", "bad", "--url", receiver.URL+"/bad").want(0)
	targets("test", "bad").want(1).showing("failed").saying("bad has not received the test: ", "410 Gone")
	var tested struct {
		Execution belay.ExecutionID
		Received  bool
		Why       string
	}
	r := targets("test", "bad", "-o", "json").want(1)
	err := json.Unmarshal([]byte(r.out), &tested)
	if err != nil || tested.Received || !strings.Contains(tested.Why, "410") {
		t.Errorf("%v\n%s", err, r)
	}
	targets("test", "none").want(66).saying("belay notify ls")

	fails := func(workflow string) (id string) {
		t.Helper()
		id = strings.TrimSpace(p.belay("--server", a.url, "submit", workflow, "--external").want(0).out)
		lock := a.want(http.StatusCreated, "POST", "/v1/executions/"+id+"/lock", `{"owner":"me"}`)
		a.want(http.StatusOK, "POST", lock.header.Get("Location")+"/release",
			`{"outcome":"fail","error":{"message":"no funds","class":"permanent"}}`,
			"Lease-Id", lock.header.Get("Lease-Id"), "Lease-Token", lock.header.Get("Lease-Token"))
		return id
	}
	fails("other")
	id := fails("pay-in")
	until(t, "the end and the alert have arrived", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return got["/hunter2 execution.failed"] == 1 && got["/hunter2 alert.dead_letter"] == 1
	})
	targets("get", "ops").want(0).showing(receiver.URL+"/hunter2", "a test", id+" failed", "dead_letter")
	targets("pause", "ops", "--reason", "it moves").want(0).showing("ops is paused")
	targets("test", "ops").want(0).showing("ops has received the test")
	targets("get", "ops").want(0).showing("it moves")
	targets("resume", "ops").want(0).showing("ops is resumed")
	targets("rm", "ops").want(0).showing("ops is removed")
	targets("get", "ops").want(66).saying("there is no target of notifications ops")
	mu.Lock()
	defer mu.Unlock()
	if got["/hunter2 execution.failed"] != 1 || got["/hunter2 alert.test"] != 2 || got["/bad alert.test"] != 2 {
		t.Errorf("%v", got)
	}
}
