package test

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// Rule: an operator sets a webhook, tests it, sees its deliveries and the refused requests, replays a delivery, pauses
// and removes the webhook; all with the command line, through a server.
func TestWebhooksFromTheCommandLine(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve()
	hooks := func(args ...string) result {
		t.Helper()
		return p.belay(append([]string{"--server", a.url, "webhooks"}, args...)...)
	}
	set := []string{
		"set", "build", "--scheme", "github", "--secret", "GITHUB_HOOK", "--filter", `event.type == "push"`,
		"--input", `{"commit": "${{ event.data.after }}"}`, "--label", `from=${{ event.headers["x-from"] ?? "a, b" }}`,
		"review",
	}
	hooks("ls").want(0).showing("no webhooks")
	hooks(set...).want(0).showing("build is created (version 1)", a.url+"/hooks/build",
		`secrets: {allow: ["GITHUB_HOOK for webhook:build"]}`)
	if r := hooks(set...).want(0).showing("build is unchanged (version 1)"); strings.Contains(r.out, "secrets") {
		t.Errorf("a put without a change says what to do next\n%s", r)
	}
	hooks(append(set, "--secret", "NEW_HOOK")...).want(0).showing("build is changed (version 2)",
		`["GITHUB_HOOK for webhook:build", "NEW_HOOK for webhook:build"]`)
	hooks(append(set, "--if-version", "1")...).want(73).saying("the version of the webhook is 2, not 1")
	hooks("ls").want(0).showing("NAME", "build", "github", "review")

	must(t, os.WriteFile(p.path("push.json"), []byte(`{"after": "3f2a9c1"}`), 0o600))
	push := []string{
		"test", "build", "--id", "d-1", "--type", "push", "--body", "@" + p.path("push.json"), "-o", "json",
	}
	first := delivered(t, hooks(push...).want(0), belay.DeliveryStarted)
	if again := delivered(t, hooks(push...).want(0), belay.DeliveryDuplicate); again.Execution != first.Execution {
		t.Errorf("the execution of the duplicate is %s, not %s", again.Execution, first.Execution)
	}
	delivered(t, hooks("test", "build", "--type", "star", "-o", "json").want(0), belay.DeliveryFiltered)
	hooks("test", "build", "--id", "d-2", "--type", "push", "--body", "[1]").want(1).
		showing("d-2", "failed").saying("belay: failed: webhook: input: ")
	p.belay("--server", a.url, "get", first.Execution.String(), "-o", "json").want(0).
		showing(`"commit": "3f2a9c1"`, `"webhook": "build"`, `"from": "a, b"`, `"trigger": "webhook"`)

	hooks("pause", "build", "--reason", "it moves").want(0).showing("build is paused")
	replayed := delivered(t, hooks("replay", "build", "d-1", "-o", "json").want(0), belay.DeliveryStarted)
	if replayed.Execution == first.Execution || replayed.By != "replay" {
		t.Errorf("the replay has started %s by %q; the first execution is %s", replayed.Execution, replayed.By,
			first.Execution)
	}
	hooks("delivery", "build", "d-1").want(0).showing("replay", "started", `"after": "3f2a9c1"`)
	hooks("delivery", "build", "none").want(66).saying("does not remember this delivery")
	hooks("deliveries", "build").want(0).showing("d-1", "d-2", "push, test", "push, replay", "star, test")
	if r := hooks("deliveries", "build", "--outcome", "failed").want(0); strings.Contains(r.out, "d-1") {
		t.Errorf("the list has deliveries with other outcomes\n%s", r)
	}
	a.want(http.StatusServiceUnavailable, "POST", "/hooks/build", `{}`) // the server has no rule for the secrets
	hooks("get", "build").want(0).showing(a.url+"/hooks/build", "GITHUB_HOOK or NEW_HOOK", "it moves",
		"2 started, 1 filtered, 1 failed", "cannot read the secrets")
	p.belay("webhooks", "get", "build").want(0).showing("cannot read the secrets") // through the data directory
	p.belay("webhooks", "deliveries", "build").want(0).showing("d-1")

	hooks("resume", "build").want(0).showing("build is resumed")
	hooks("rm", "build").want(0).showing("build is removed")
	hooks("get", "build").want(66).saying("there is no webhook build")
}

// Rule: an operator subscribes workflows to events and publishes events with the command line, without a server too.
func TestEventsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.belay("webhooks", "set", "ship", "--scheme", "cloudevents", "--filter", `event.type == "paid"`, "ship").want(0).
		showing("ship is created", "belay publish")
	p.belay("webhooks", "set", "x", "--scheme", "cloudevents", "--secret", "A", "ship").want(64).saying("has no secret")
	event := []string{"publish", "--type", "paid", "--source", "/shop", "--id", "7", "--body", `{"n": 1}`}
	p.belay(event...).want(0).showing("7 ", "ship", "started")
	_, a := p.serve()
	remote := func(args ...string) result { return p.belay(append([]string{"--server", a.url}, args...)...) }
	remote(event...).want(0).showing("duplicate")
	remote("publish", "--type", "other", "--source", "/shop").want(0).showing("no webhook wants it")
	must(t, os.WriteFile(p.path("events.json"), []byte(`[{"specversion": "1.0", "id": "8", "source": "/shop",
		"type": "paid", "data": {"n": 2}}, {"specversion": "1.0", "id": "7", "source": "/other", "type": "paid"}]`), 0o600))
	if r := remote("publish", "--file", p.path("events.json")).want(0); strings.Count(r.out, "started") != 2 {
		t.Errorf("%s", r)
	}
	remote("publish").want(64).saying("--type and --source")
	remote("ls", "--label", "webhook=ship").want(0).showing("ship")
	remote("webhooks", "get", "ship").want(0).showing("3 started", "/v1/cloudevents")
	id := strings.TrimSpace(remote("submit", "order", "--key", "7").want(0).out)
	remote("webhooks", "set", "paid", "--scheme", "cloudevents", "--filter", `event.type == "settled"`, "--signal", "paid",
		"--signal-workflow", "order", "--signal-key", "event.data.order", "--signal-payload", `["${{ event.id }}"]`).want(0)
	remote("webhooks", "set", "x", "--scheme", "cloudevents", "--signal", "paid", "order").want(64).saying("not both")
	remote("publish", "--type", "settled", "--source", "/bank", "--id", "b1", "--body", `{"order": 7}`).want(0).
		showing("paid", "signalled", id)
	remote("webhooks", "get", "paid").want(0).showing("signals", "the execution of order with the key event.data.order",
		"1 signalled")
	remote("webhooks", "ls").want(0).showing("signal paid")
	remote("webhooks", "set", "strict", "--scheme", "cloudevents", "--input", `"${{ event.data.a.b }}"`, "w").want(0)
	remote("publish", "--type", "odd", "--source", "/s", "--body", "1").want(1).showing("strict", "failed")
}

// delivered reads a delivery from the JSON of a command, and checks its outcome.
func delivered(t *testing.T, r result, outcome belay.WebhookOutcome) belay.WebhookDelivery {
	t.Helper()
	var d belay.WebhookDelivery
	if err := json.Unmarshal([]byte(r.out), &d); err != nil || d.Outcome != outcome {
		t.Fatalf("%v: the outcome is %q, want %q\n%s", err, d.Outcome, outcome, r)
	}
	return d
}
