package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
)

func TestTargetFlags(t *testing.T) {
	const hook = "https://ops.example.org/hook"
	target := func(n belay.Notification, with ...func(*belay.NotificationTarget)) *belay.NotificationTarget {
		x := &belay.NotificationTarget{Name: "ops", Notification: n}
		for _, f := range with {
			f(x)
		}
		return x
	}
	for _, x := range []struct {
		args []string
		want *belay.NotificationTarget // nil if the flags are refused
	}{
		{[]string{"--url", hook}, target(belay.Notification{URL: hook})},
		{[]string{"--slack", "SLACK_URL"}, target(belay.Notification{
			URL: "${{ secrets.SLACK_URL }}", Format: belay.FormatSlack,
		})},
		{[]string{"--slack", "${{ secrets.SLACK_URL }}", "--format", "slack"}, target(belay.Notification{
			URL: "${{ secrets.SLACK_URL }}", Format: belay.FormatSlack,
		})},
		{
			[]string{
				"--url", hook, "--format", "event", "--secret", "OPS", "--on", "failed,cancelled", "--on", "succeeded",
			},
			target(belay.Notification{
				URL: hook, Format: belay.FormatEvent, Secret: "${{ secrets.OPS }}",
				On: []belay.State{belay.Failed, belay.Cancelled, belay.Succeeded},
			}),
		},
		{
			[]string{
				"--url", hook, "--alert", "dead_letter,no_worker", "--workflow", "a*", "--workflow", "b",
				"--queue", "q", "--label", "team=web", "--label", "a=b=c",
			},
			target(belay.Notification{URL: hook}, func(x *belay.NotificationTarget) {
				x.Alerts = []belay.Alert{belay.AlertDeadLetter, belay.AlertNoWorker}
				x.Workflows, x.Queues = []string{"a*", "b"}, []string{"q"}
				x.Labels = map[string]string{"team": "web", "a": "b=c"}
			}),
		},
		{[]string{"--exchange", "ex", "--routing-key", "k", "--alert", "dead_letter"}, target(belay.Notification{},
			func(x *belay.NotificationTarget) {
				x.Exchange, x.RoutingKey, x.Alerts = "ex", "k", []belay.Alert{belay.AlertDeadLetter}
			})},
		{[]string{"--exchange", "ex", "--slack", "S"}, nil},
		{[]string{"--exchange", "ex", "--secret", "S"}, nil},
		{[]string{"--url", hook, "--routing-key", "k"}, nil},
		{[]string{"--url", hook, "--on", "pending"}, nil},
		{[]string{"--url", hook, "--on", "failed,failed"}, nil},
		{[]string{"--url", hook, "--alert", "test"}, nil},
		{[]string{"--url", hook, "--workflow", "a*b*c*d*e*f"}, nil},
		{[]string{"--url", hook, "--label", "team"}, nil},
	} {
		var f targetFlags
		c := &cobra.Command{}
		f.register(c)
		if err := c.ParseFlags(x.args); err != nil {
			t.Fatal(err)
		}
		got, err := f.target("ops")
		if (err == nil) != (x.want != nil) || err == nil && !reflect.DeepEqual(&got, x.want) {
			t.Errorf("%q: %+v, %v", x.args, got, err)
		}
	}
}

// Rule: belay refuses a wrong target before it asks a server, and says what to do. The error repeats neither a secret
// nor a URL.
func TestWrongTargetsAreRefused(t *testing.T) {
	dir := t.TempDir() + "/data"
	for _, c := range []struct {
		args []string
		want string
		code int
	}{
		{nil, "takes the name of a target", 64},
		{[]string{"ops"}, "say with --url where the requests go", 64},
		{[]string{"ops", "--url", "https://a/hunter2", "--slack", "S"}, "--url or --slack, not both", 64},
		{[]string{"ops", "--url", "https://a/hunter2", "--exchange", "ex"}, "--exchange, or --url or --slack", 64},
		{[]string{"ops", "--exchange", "ex", "--format", "slack"}, "the format event", 65},
		{[]string{"ops", "--slack", "S", "--format", "event"}, "--url '${{ secrets.NAME }}'", 64},
		{[]string{"ops", "--slack", "https://hooks.slack.com/services/hunter2"}, "Do not give the secret itself", 64},
		{[]string{"ops", "--url", "https://a/", "--secret", "whsec_hunter2"}, "Do not give the secret itself", 64},
		{[]string{"ops", "--url", "https://a/hunter2", "--format", "xml"}, "it can be event or slack", 64},
		{[]string{"ops", "--url", "https://a/hunter2", "--on", "ended"}, "it can be failed, succeeded, cancelled", 64},
		{[]string{"ops", "--url", "https://a/hunter2", "--alert", "fire"}, "dead_letter, breaker_open, no_worker", 64},
		{[]string{"ops", "--url", "https://a/hunter2", "--label", "x"}, "of the form name=value", 64},
		{[]string{"ops", "--url", "https://me:hunter2@a/"}, "sign the requests with a secret instead", 65},
		{[]string{"ops", "--url", "ftp://a/hunter2"}, "must be an http or https URL", 65},
		{[]string{"o/s", "--url", "https://a/hunter2"}, "the name of a target", 65},
	} {
		code, out, errs := belayIn(t, dir, append([]string{"notify", "set"}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.want) || strings.Contains(errs, "hunter2") {
			t.Errorf("%q: exit code %d, want %d and %q in\n%s%s", c.args, code, c.code, c.want, out, errs)
		}
	}
}

// Rule: an operator sets, reads, pauses, resumes and removes targets in a data directory. The list shows no part of a
// URL that may be a credential. Without a server nothing sends a test, and belay says so at once.
func TestAnOperatorChangesTargets(t *testing.T) {
	dir := t.TempDir() + "/data"
	must := func(want string, args ...string) string {
		t.Helper()
		code, out, errs := belayIn(t, dir, append([]string{"notify"}, args...)...)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("belay notify %s: exit code %d, want %q in\n%s%s", strings.Join(args, " "), code, want, out, errs)
		}
		return out
	}
	set := []string{
		"set", "ops", "--url", "https://ops.example.org/hook/hunter2?key=${{ secrets.KEY }}", "--secret", "SIGN",
		"--alert", "dead_letter", "--workflow", "billing-*", "--label", "team=web",
	}
	must(`allow: ["KEY for http to ops.example.org", "SIGN for http to ops.example.org"]`, append(set, "--new")...)
	if out := must("ops is unchanged (version 1)", set...); strings.Contains(out, "secrets") {
		t.Errorf("a put without a change says what to do next\n%s", out)
	}
	must(`allow: ["SLACK_URL for http"]`, "set", "slack", "--slack", "SLACK_URL", "--on", "succeeded,failed")
	list := must("https://ops.example.org  dead_letter", "ls", "-o", "wide") + must("billing-*, label team=web", "ls")
	if !strings.Contains(list, "secret SLACK_URL") || strings.Contains(list, "hunter2") {
		t.Errorf("belay notify ls:\n%s", list)
	}
	must("hunter2?key=${{ secrets.KEY }}", "get", "ops")
	must("Servers with broker.url", "set", "events", "--exchange", "orders.events", "--routing-key", "a.b")
	must("exchange orders.events   failed, succeeded, cancelled", "ls")
	if got := must("exchange   orders.events\n", "get", "events"); !strings.Contains(got, "key        a.b\n") {
		t.Errorf("belay notify get events:\n%s", got)
	}
	must("ops is paused", "pause", "ops", "--reason", "it moves")
	must("it moves", "get", "ops")
	must("ops is resumed", "resume", "ops")
	must("state      pending", "test", "ops", "--wait", "0")
	code, out, errs := belayIn(t, dir, "notify", "test", "ops")
	if code != 1 || !strings.Contains(errs, "ops has not received the test: no server runs") {
		t.Errorf("belay notify test: exit code %d\n%s%s", code, out, errs)
	}
	must("a test", "get", "ops")
	var got struct {
		URL        string
		Deliveries []struct {
			State          belay.State
			TriggerPayload belay.AlertPayload `json:"trigger_payload"`
		}
	}
	text := must("", "get", "ops", "-o", "json")
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Deliveries) != 2 ||
		got.Deliveries[1].TriggerPayload.Alert != belay.AlertTest || !strings.Contains(got.URL, "hunter2") {
		t.Errorf("%v: %+v", err, got)
	}
	code, out, _ = belayIn(t, dir, "__complete", "notify", "get", "")
	if code != 0 || !strings.Contains(out, "ops\thttps://ops.example.org, dead_letter\n") {
		t.Errorf("the completion of names: exit code %d\n%s", code, out)
	}
	code, out, _ = belayIn(t, dir, "__complete", "notify", "set", "ops", "--alert", "")
	if code != 0 || !strings.Contains(out, "breaker_open\n") {
		t.Errorf("the completion of --alert: exit code %d\n%s", code, out)
	}
	must("ops is removed", "rm", "ops")
	code, _, errs = belayIn(t, dir, "notify", "get", "ops")
	if code != 66 || !strings.Contains(errs, "belay notify ls") {
		t.Errorf("get a removed target: exit code %d: %s", code, errs)
	}
	for _, wait := range []string{"-1s", "2h"} {
		if code, _, errs = belayIn(t, dir, "notify", "test", "slack", "--wait", wait); code != 64 {
			t.Errorf("--wait %s: exit code %d: %s", wait, code, errs)
		}
	}
}

// Rule: the list of targets shows scheme and host of a URL, or the secret with which it begins, and nothing else of it.
func TestReceiversAreShownWithoutCredentials(t *testing.T) {
	for url, want := range map[string]string{
		"https://example.org":                            "https://example.org",
		"https://example.org:8443/hunter2":               "https://example.org:8443",
		"https://example.org?hunter2":                    "https://example.org",
		"https://me:hunter2@example.org/":                "https://example.org",
		"https://example.org/${{ secrets.A }}":           "https://example.org",
		"${{ secrets.A }}":                               "secret A",
		"${{secrets.A}}/hunter2?to=https://example.org/": "secret A",
		"hunter2": "-",
	} {
		x := belay.NotificationTarget{Notification: belay.Notification{URL: url}}
		if got := receiverOf(&x); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}

// Rule: belay names the rules that allow the requests of a target to use its secrets.
func TestRulesForTheSecretsOfATarget(t *testing.T) {
	for _, x := range []struct{ url, secret, want string }{
		{"https://example.org/", "", ""},
		{"https://example.org:8443/", "${{ secrets.S }}", "S for http to example.org:8443"},
		{"https://example.org/${{ secrets.A }}?b=${{ secrets.B }}&c=${{ secrets.A }}", "${{ secrets.B }}",
			"A for http to example.org; B for http to example.org"},
		{"${{ secrets.A }}", "${{ secrets.S }}", "A for http; S for http to HOST"},
		{"${{ secrets.A }}/${{ secrets.B }}", "", "A for http to HOST; B for http to HOST"},
	} {
		to := belay.NotificationTarget{Notification: belay.Notification{URL: x.url, Secret: x.secret}}
		names, rules := rulesFor(&to)
		if got := strings.Join(rules, "; "); got != x.want || len(names) != len(rules) {
			t.Errorf("%s signed with %q: %q for %q, want %q", x.url, x.secret, rules, names, x.want)
		}
	}
}
