package sdktest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belaydev/belay"
)

// withTriggers is a document that defines triggers. Their lines are indented by four spaces.
func withTriggers(name, schedules, webhooks string) string {
	text := "name: " + name + "\n"
	if schedules+webhooks != "" {
		text += "on:\n"
	}
	if schedules != "" {
		text += "  schedules:\n" + schedules
	}
	if webhooks != "" {
		text += "  webhooks:\n" + webhooks
	}
	return text
}

// applied applies a document, and compares the changes of its triggers.
func (e *env) applied(name, text, want string) {
	e.Helper()
	d, err := e.apply(name, text)
	if err != nil {
		e.Fatalf("apply %q: %v", text, err)
	}
	var all []string
	for _, t := range d.Triggers {
		all = append(all, fmt.Sprintf("%s %s %s", t.Kind, t.Name, t.Change))
	}
	if got := strings.Join(all, ", "); got != want {
		e.Errorf("the apply of %q has changed %q, want %q", text, got, want)
	}
}

const (
	tick = "    tick: {every: 1m, overlap: allow_all, labels: {kind: night}, priority: 7}\n"
	push = "    push: {scheme: cloudevents, filter: event.type == \"push\"}\n"
	both = "schedule d.tick created, webhook d.push created"
)

var declared = []testCase{
	{"a document defines its schedules, until a version does not", func(e *env) {
		e.aligned()
		e.applied("d", withTriggers("d", tick, ""), "schedule d.tick created")
		s, err := e.b.Schedule(e.ctx, "d.tick")
		if err != nil || s.DefinedBy != "d" || s.Execution.Document != "d" || s.Version != 1 || s.UpdatedBy != "me" {
			e.Errorf("%+v, %v", s, err)
		}
		e.sleep(time.Minute)
		e.applied("d", withTriggers("d", tick, "")+"# another version\n", "")
		_, err = e.apply("d", "name: d\ntasks: [\n") // a slip removes no schedule
		if belay.CodeOf(err) != belay.CodeInvalid {
			e.Errorf("a text that cannot be parsed: %v", err)
		}
		e.sleep(time.Minute)
		s = e.slotsAre("d.tick", "[started:2]")
		for i, version := range []string{"2", "1"} {
			x := e.get(s.Recent[i].Execution)
			if x.Labels[belay.LabelDocumentVersion] != version || x.Labels["kind"] != "night" || x.Priority != 7 {
				e.Errorf("%+v", x)
			}
		}
		e.applied("d", withTriggers("d", strings.Replace(tick, "1m", "2m", 1), ""), "schedule d.tick changed")
		if s = e.slotsAre("d.tick", "[started:2]"); s.Version != 2 || s.Every != belay.Duration(2*time.Minute) {
			e.Errorf("%+v", s)
		}
		e.applied("d", withTriggers("d", "", ""), "schedule d.tick removed")
		_, err = e.b.Schedule(e.ctx, "d.tick")
		e.refused("read", err, belay.CodeNotFound, "")
		e.sleep(5 * time.Minute)
		if got := e.scheduled("d.tick"); got != "01:00 02:00" {
			e.Errorf("started %s", got)
		}
	}},

	{"a document defines its webhooks, and is removed with its triggers", func(e *env) {
		e.applied("d", withTriggers("d", tick, push), both)
		h, err := e.b.Webhook(e.ctx, "d.push")
		if err != nil || h.DefinedBy != "d" || h.Execution.Document != "d" || string(h.Execution.Input) != "null" {
			e.Errorf("%+v, %v", h, err)
		}
		if x := e.get(e.deliver("d.push", "1", "{}").Execution); x.Labels[belay.LabelDocument] != "d" {
			e.Errorf("%+v", x)
		}
		_, err = e.b.ReplayDelivery(e.ctx, belay.WebhookReplay{Webhook: "d.push", ID: "1"})
		e.must(err)
		e.applied("d", withTriggers("d", tick, push)+"# another version\n", "")
		if h, err = e.b.Webhook(e.ctx, "d.push"); err != nil || len(h.Recent) != 2 || h.Version != 1 {
			e.Errorf("%+v, %v", h, err)
		}
		all, err := e.b.DocumentVersions(e.ctx, "d")
		if err != nil || !slices.Equal(all.Schedules, []string{"d.tick"}) ||
			!slices.Equal(all.Webhooks, []string{"d.push"}) {
			e.Errorf("%+v, %v", all, err)
		}
		remove := func(version int) {
			e.Helper()
			_, err := e.b.ChangeDocument(e.ctx, belay.DocumentChange{
				Name: "d", Version: version, Action: belay.DocumentRemove,
			})
			e.must(err)
		}
		gone := func() {
			e.Helper()
			_, err = e.b.Webhook(e.ctx, "d.push")
			e.refused("read the webhook", err, belay.CodeNotFound, "")
			_, err = e.b.Schedule(e.ctx, "d.tick")
			e.refused("read the schedule", err, belay.CodeNotFound, "")
		}
		remove(1)
		_, err = e.b.Webhook(e.ctx, "d.push")
		e.must(err)
		remove(2)
		gone()
		e.sleep(time.Second)
		e.applied("d", withTriggers("d", tick, push), both)
		remove(0)
		gone()
	}},

	{"only the document changes and removes its triggers, but operators pause them", func(e *env) {
		e.aligned()
		e.applied("d", withTriggers("d", tick, push), both)
		s, err := e.b.Schedule(e.ctx, "d.tick")
		e.must(err)
		h, err := e.b.Webhook(e.ctx, "d.push")
		e.must(err)
		says := func(what string, err error) {
			e.Helper()
			e.refused(what, err, belay.CodeConflict, "")
			if !strings.Contains(err.Error(), "defined by the document d") {
				e.Errorf("%s: %v", what, err)
			}
		}
		_, err = e.b.PutSchedule(e.ctx, belay.SchedulePut{Schedule: s.Schedule})
		says("put the schedule", err)
		_, err = e.b.ChangeSchedule(e.ctx, belay.ScheduleChange{Name: "d.tick", Action: belay.ScheduleRemove})
		says("remove the schedule", err)
		_, err = e.b.PutWebhook(e.ctx, belay.WebhookPut{Webhook: h.Webhook})
		says("put the webhook", err)
		_, err = e.b.ChangeWebhook(e.ctx, belay.WebhookChange{Name: "d.push", Action: belay.WebhookRemove})
		says("remove the webhook", err)
		e.changeSchedule("d.tick", belay.SchedulePauseAction)
		e.changeSchedule("d.tick", belay.ScheduleRun)
		_, err = e.b.ChangeWebhook(e.ctx, belay.WebhookChange{Name: "d.push", Action: belay.WebhookPauseAction})
		e.must(err)
		e.applied("d", withTriggers("d", strings.Replace(tick, "1m", "2m", 1), push), "schedule d.tick changed")
		if s, err = e.b.Schedule(e.ctx, "d.tick"); err != nil || s.Paused == nil {
			e.Errorf("%+v, %v", s, err)
		}
		if h, err = e.b.Webhook(e.ctx, "d.push"); err != nil || h.Paused == nil {
			e.Errorf("%+v, %v", h, err)
		}
		e.changeSchedule("d.tick", belay.ScheduleResume)
	}},

	{"an apply that would take over a trigger, or whose triggers are wrong, changes nothing", func(e *env) {
		e.putSchedule("d.tick")
		_, err := e.apply("d", withTriggers("d", tick, push))
		if e.refused("apply", err, belay.CodeConflict, ""); !strings.Contains(err.Error(), "d.tick") {
			e.Error(err)
		}
		after, err := e.b.Schedule(e.ctx, "d.tick")
		if err != nil || after.Version != 1 || after.DefinedBy != "" {
			e.Errorf("%+v, %v", after, err)
		}
		_, err = e.b.Webhook(e.ctx, "d.push")
		e.refused("read the webhook", err, belay.CodeNotFound, "")
		const secrets = ", secrets: [\"${{ secrets.X }}\"]"
		for _, wrong := range [][2]string{
			{"    x: {cron: 99 3 * * *}\n"}, {"    x: {every: 1ms}\n"}, {"    x: {}\n"},
			{"    x: {cron: '@daily', every: 1h}\n"}, {"    x: {cron: '@daily', time_zone: Mars/Base}\n"},
			{"    a.b: {every: 1m}\n"}, {"    x: {every: 1m, name: y}\n"}, {"    x: {every: 1m, overlap: odd}\n"},
			{"", "    x: {scheme: github}\n"}, {"", "    x: {scheme: github, secrets: [plain]}\n"},
			{"", "    x: {scheme: cloudevents" + secrets + "}\n"}, {"", "    x: {scheme: hmac" + secrets + "}\n"},
			{"", "    x: {scheme: cloudevents, filter: input.x}\n"},
			{"", "    x: {scheme: cloudevents, signal: {name: a}}\n"},
		} {
			_, err = e.apply("d", withTriggers("d", wrong[0], wrong[1]))
			e.refused(wrong[0]+wrong[1], err, belay.CodeInvalid, "")
		}
		_, err = e.apply("d", withTriggers("e", tick, ""))
		e.refused("another name", err, belay.CodeInvalid, "")
		_, err = e.b.DocumentVersions(e.ctx, "d")
		e.refused("read the document", err, belay.CodeNotFound, "")
	}},

	{"a text that is submitted defines no triggers", func(e *env) {
		answers, err := e.b.Submit(e.ctx, belay.Submission{
			Workflow: "document", Input: []byte(`{"document": "name: d\non: {schedules: {tick: {every: 1m}}}"}`),
		})
		e.must(err)
		e.must(answers[0].Err)
		page, err := e.b.Schedules(e.ctx, belay.ScheduleFilter{})
		if err != nil || len(page.Schedules) > 0 {
			e.Errorf("%+v, %v", page, err)
		}
	}},

	{"applies at the same time follow each other, and the triggers of the last one are left", func(e *env) {
		var wg sync.WaitGroup
		for i := range 5 { // each apply can lose against four others
			wg.Go(func() {
				key := "    " + string(rune('a'+i))
				_, err := e.apply("d", withTriggers("d", key+": {every: 1m}\n", key+": {scheme: cloudevents}\n"))
				if err != nil {
					e.Errorf("apply %s: %v", key, err)
				}
			})
		}
		wg.Wait()
		d, err := e.b.Document(e.ctx, "d", 0)
		e.must(err)
		schedules, err := e.b.Schedules(e.ctx, belay.ScheduleFilter{})
		e.must(err)
		webhooks, err := e.b.Webhooks(e.ctx, belay.WebhookFilter{})
		e.must(err)
		if len(schedules.Schedules) != 1 || len(webhooks.Webhooks) != 1 {
			e.Fatalf("%d schedules and %d webhooks are left", len(schedules.Schedules), len(webhooks.Webhooks))
		}
		key := strings.TrimPrefix(schedules.Schedules[0].Name, "d.")
		if webhooks.Webhooks[0].Name != "d."+key || !strings.Contains(d.Text, "    "+key+": {every") {
			e.Errorf("the key %s is left, and the text is %s", key, d.Text)
		}
	}},
}
