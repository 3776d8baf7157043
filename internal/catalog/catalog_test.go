package catalog_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/catalog"
	"github.com/belaydev/belay/internal/trigger"
)

// run is the submission of a text.
func run(t *testing.T, text string, own ...belay.Notification) belay.Submission {
	t.Helper()
	input, err := json.Marshal(map[string]string{"document": text, "file": "d.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	return belay.Submission{Workflow: "document", Input: input, Notify: own}
}

// Rule: the notifications of a document follow those of the submission; an entry that sends the same requests counts
// once, and a completed submission stays as it is.
func TestNotificationsOfADocumentAreAdded(t *testing.T) {
	hook := func(url string, on ...belay.State) belay.Notification { return belay.Notification{URL: url, On: on} }
	a := hook("https://a/")
	ends := hook("https://a/", belay.Failed, belay.Succeeded)
	event := a
	event.Format = belay.FormatEvent
	signed := a
	signed.Secret = "${{ secrets.X }}"
	for text, x := range map[string]struct{ own, want []belay.Notification }{
		"name: d":                                                   {[]belay.Notification{a}, []belay.Notification{a}},
		"notify: [{url: 'https://a/'}]":                             {nil, []belay.Notification{a}},
		"notify: [{url: 'https://a/'}] ":                            {[]belay.Notification{a}, []belay.Notification{a}},
		"notify: [{url: 'https://a/', on: [failed]}]":               {[]belay.Notification{event}, []belay.Notification{event}},
		"notify: [{url: 'https://a/', secret: '${{ secrets.X }}'}]": {[]belay.Notification{a}, []belay.Notification{a, signed}},
		"notify: [{url: 'https://a/', on: [succeeded, failed]}]":    {[]belay.Notification{ends}, []belay.Notification{ends}},
		"notify: [{url: 'https://b/'}, {url: 'https://b/'}]":        {[]belay.Notification{a}, []belay.Notification{a, hook("https://b/")}},
		"{\"notify\": [{\"url\": \"https://a/\"}]}":                 {nil, []belay.Notification{a}},
		"\"n\\u006ftify\": [{url: 'https://a/'}]":                   {nil, []belay.Notification{a}},
		"notify: [":           {[]belay.Notification{a}, []belay.Notification{a}}, // no document
		"- notify":            {nil, nil},
		"description: notify": {nil, nil},
		"tasks: [{id: a, uses: command, notify: [{url: 'https://a'}]}]": {nil, nil},
	} {
		s := run(t, text, x.own...)
		got, err := catalog.Notified(s)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if d := cmp.Diff(x.want, got.Notify); d != "" {
			t.Errorf("%q: %s", text, d)
		}
		again, err := catalog.Notified(got)
		if err != nil || cmp.Diff(got, again) != "" {
			t.Errorf("%q again: %s, %v", text, cmp.Diff(got, again), err)
		}
		s.Parent = &belay.Lease{}
		if child, err := catalog.Notified(s); err != nil || len(child.Notify) != len(x.own) {
			t.Errorf("%q as a child: %+v, %v", text, child.Notify, err)
		}
		s.Parent, s.Workflow = nil, "w"
		if other, err := catalog.Notified(s); err != nil || len(other.Notify) != len(x.own) {
			t.Errorf("%q for another workflow: %+v, %v", text, other.Notify, err)
		}
	}
}

// Rule: a wrong notification of a document is an error with its position, and without a credential.
func TestWrongNotificationsOfADocument(t *testing.T) {
	_, err := catalog.Notified(run(t, "name: d\nnotify:\n  - url: https://me:hunter2@a/\n"))
	if belay.CodeOf(err) != belay.CodeInvalid || !strings.Contains(err.Error(), "d.yaml:3:10: ") ||
		strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

// Rule: the mistakes of triggers that only the rules know have the position of their key.
func TestMistakesOfTriggersHavePositions(t *testing.T) {
	const tasks = "tasks: [{id: a, uses: command, with: {run: 'true'}}]\n"
	for on, want := range map[string]string{
		"schedules: {x: {cron: 99 3 * * *}}":                                               `d.yaml:2:18: schedule d.x: the cron expression`,
		"schedules: {x: {every: 1h, time_zone: Europe/Berlin}}":                            `d.yaml:2:18: schedule d.x: time_zone is for cron`,
		"schedules: {x: {every: 1h, labels: {document: e}}}":                               `d.yaml:2:18: schedule d.x: Belay sets the label document`,
		"schedules: {x: {}}":                                                               `d.yaml:2:18: schedule d.x: the schedule has no times`,
		"schedules: {x: {cron: '@daily', time_zone: Mars/Base}}":                           `d.yaml:2:18: schedule d.x: `,
		"schedules: {x: {every: 1h, labels: {schedule: other}}}":                           `d.yaml:2:18: schedule d.x: the label schedule`,
		"webhooks: {x: {scheme: github}}":                                                  `d.yaml:2:17: webhook d.x: a webhook has one secret`,
		"webhooks: {x: {scheme: github, secrets: [whsec_plain]}}":                          `d.yaml:2:17: webhook d.x: a secret of a webhook is a reference`,
		"webhooks: {x: {scheme: hmac, secrets: ['${{ secrets.X }}']}}":                     `d.yaml:2:17: webhook d.x: the scheme hmac needs`,
		"webhooks: {x: {scheme: cloudevents, signal: {name: a, key: event.id}}}":           `d.yaml:2:17: webhook d.x: a signal names`,
		"webhooks: {x: {scheme: cloudevents, hmac: {header: X-S}}}":                        `d.yaml:2:17: webhook d.x: hmac is for the scheme hmac`,
		"webhooks: {x: {scheme: cloudevents, labels: {webhook: other}}}":                   `d.yaml:2:17: webhook d.x: the label webhook`,
		"webhooks: {x: {scheme: hmac, hmac: {header: Host}, secrets: ['${{secrets.X}}']}}": `d.yaml:2:17: webhook d.x: hmac.header cannot be`,
	} {
		d, problems := catalog.Parse("d.yaml", []byte("name: d\non: {"+on+"}\n"+tasks))
		if d != nil || len(problems) != 1 || !strings.HasPrefix(problems.Error(), want) ||
			strings.Contains(problems.Error(), "whsec_plain") {
			t.Errorf("%s: %v, want %s", on, problems, want)
		}
		if _, err := catalog.Triggers("apply", "d", "name: d\non: {"+on+"}\n"); belay.CodeOf(err) != belay.CodeInvalid {
			t.Errorf("%s is applied: %v", on, err)
		}
	}
}

// store has what Plan reads.
type store struct {
	schedules map[string]belay.ScheduleInfo
	webhooks  map[string]belay.WebhookInfo
	has       belay.DocumentVersions
}

func missing(what, name string) error {
	return &belay.Error{Code: belay.CodeNotFound, Message: fmt.Sprintf("there is no %s %s", what, name)}
}

func (s *store) DocumentVersions(_ context.Context, name string) (belay.DocumentVersions, error) {
	if len(s.has.Versions) == 0 {
		return s.has, missing("document", name)
	}
	return s.has, nil
}

func (s *store) Schedule(_ context.Context, name string) (belay.ScheduleInfo, error) {
	if x, ok := s.schedules[name]; ok {
		return x, nil
	}
	return belay.ScheduleInfo{}, missing("schedule", name)
}

func (s *store) Webhook(_ context.Context, name string) (belay.WebhookInfo, error) {
	if x, ok := s.webhooks[name]; ok {
		return x, nil
	}
	return belay.WebhookInfo{}, missing("webhook", name)
}

// Rule: a plan names the changes that an apply would make, or its refusal.
func TestPlan(t *testing.T) {
	const text = "name: d\non: {schedules: {a: {every: 1h, input: {n: [1, '<']}}}, " +
		"webhooks: {x: {scheme: github, secrets: ['${{ secrets.X }}']}}}\n"
	triggers, err := catalog.Triggers("apply", "d", text)
	if err != nil {
		t.Fatal(err)
	}
	stored := catalog.PutSchedule(triggers.Schedules[0], &trigger.Calendar{})
	stored.Judge()
	s := &store{schedules: map[string]belay.ScheduleInfo{}, webhooks: map[string]belay.WebhookInfo{}}
	plan := func(text, want string) {
		t.Helper()
		changes, err := catalog.Plan(t.Context(), s, "d", text)
		var all []string
		for _, c := range changes {
			all = append(all, fmt.Sprintf("%s %s %s", c.Kind, c.Name, c.Change))
		}
		got := strings.Join(all, ", ")
		if err != nil {
			got = string(belay.CodeOf(err))
		}
		if got != want {
			t.Errorf("the plan is %q, want %q: %v", got, want, err)
		}
	}
	plan(text, "schedule d.a created, webhook d.x created")
	s.has = belay.DocumentVersions{
		Versions: []belay.DocumentVersion{{}}, Schedules: []string{"d.a", "d.b"}, Webhooks: []string{"d.y"},
	}
	s.schedules["d.a"] = belay.ScheduleInfo{Schedule: stored.Schedule, DefinedBy: "d"}
	plan(text, "webhook d.x created, schedule d.b removed, webhook d.y removed")
	plan(strings.Replace(text, "1h", "2h", 1), "schedule d.a changed, webhook d.x created, schedule d.b removed, "+
		"webhook d.y removed")
	plan("name: d\n", "schedule d.a removed, schedule d.b removed, webhook d.y removed")
	s.webhooks["d.x"] = belay.WebhookInfo{}
	plan(text, "conflict")
	plan("name: d\non: {schedules: {a: {every: 1h, labels: {document: e}}}}\n", "invalid")
	plan("name: e\non: {schedules: {a: {every: 1h}}}\n", "invalid")
}
