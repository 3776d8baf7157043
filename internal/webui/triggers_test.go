package webui

import (
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // a machine may lack the time zones

	"github.com/belaydev/belay"
)

// The pages of schedules show their times, their next slots and the executions of the last ones.
func TestSchedulesAreShown(t *testing.T) {
	f := &fake{}
	f.schedules = []belay.ScheduleInfo{{
		Schedule: belay.Schedule{Name: "nightly", Cron: "0 3 * * *", TimeZone: "Europe/Berlin",
			Execution: belay.Submission{Document: "report@2", Queue: "slow", Input: []byte(`{"day":1}`)}},
		DefinedBy: "report", Version: 3, NextAt: noon.Add(time.Hour), Next: []time.Time{noon.Add(time.Hour)},
		Recent: []belay.ScheduleSlot{{Slot: ago(time.Hour), At: ago(time.Hour), Outcome: belay.SlotStarted,
			Execution: id(5)},
			{Slot: ago(2 * time.Hour), At: ago(2 * time.Hour), Outcome: belay.SlotMissed, Count: 4}},
		Slots: map[belay.ScheduleOutcome]int64{belay.SlotStarted: 9, belay.SlotMissed: 4},
	}, {
		Schedule: belay.Schedule{Name: "often", Every: belay.Duration(time.Minute),
			Execution: belay.Submission{Workflow: "x"}},
		Paused: &belay.SchedulePause{At: ago(time.Minute), By: "anna", Reason: "holidays"},
	}}
	f.list = func(q belay.Filter) (belay.Page, error) {
		if len(q.IDs) != 1 {
			t.Errorf("the page asks for %+v", q)
		}
		return belay.Page{Executions: []belay.Execution{{ID: id(5), State: belay.Failed}}}, nil
	}
	list := get(t, f, "/schedules")
	list.says("nightly defined by report active 0 3 * * * in Europe/Berlin report@2 in 1h0m started 1h0m ago "+
		shortID(id(5))+" failed 9 started, 4 missed", "often paused for 1m0s by anna: holidays every 1m0s x")
	one := get(t, f, "/schedules/nightly")
	one.says("nightly active", "skip", "Queue slow", "Version 3", "Fri 2026-11-20 14:00:00 CET in 1h0m", "missed",
		shortID(id(5))+" failed",
		"4 slots", `"day": 1`)
	if links := one.root.class("cards")[0].all("a"); len(links) != 1 || links[0].attr["href"] != here+id(5).String() {
		t.Errorf("the links to executions are %v", links)
	}
}

// The pages of webhooks show their newest deliveries with their executions.
func TestWebhooksAreShown(t *testing.T) {
	f := &fake{}
	f.webhooks = []belay.WebhookInfo{{
		Webhook: belay.Webhook{Name: "build", Scheme: belay.SchemeGitHub, Filter: `event.type == "push"`,
			Secrets: []string{"${{ secrets.GITHUB_HOOK }}"}, Execution: belay.Submission{Workflow: "review"}},
		Recent: []belay.WebhookDelivery{
			{ID: "d-2", Type: "push", At: ago(time.Second), Outcome: belay.DeliveryFailed, Bytes: 12,
				Text: "no commit"},
			{ID: "d-1", Type: "push", At: ago(time.Minute), Outcome: belay.DeliveryStarted, Bytes: 2048,
				Execution: id(4)},
		},
		Deliveries: map[belay.WebhookOutcome]int64{belay.DeliveryStarted: 1, belay.DeliveryFailed: 1},
	}}
	f.list = func(belay.Filter) (belay.Page, error) {
		return belay.Page{Executions: []belay.Execution{{ID: id(4), State: belay.Running}}}, nil
	}
	get(t, f, "/webhooks").says("build failing github review failed 1s ago push · no commit · 12 bytes",
		"1 started, 1 failed")
	a := get(t, f, "/webhooks/build")
	a.says(`event.type == "push"`, "d-1", shortID(id(4))+" running", "push · 2.0 KiB", "belay webhooks get build")
	a.saysNot("GITHUB_HOOK")
}

// Long lists of schedules and webhooks have pages.
func TestTriggersArePaged(t *testing.T) {
	f := &fake{}
	for i := range 120 {
		name := fmt.Sprintf("t-%03d", i)
		f.schedules = append(f.schedules, belay.ScheduleInfo{Schedule: belay.Schedule{Name: name}})
		f.webhooks = append(f.webhooks, belay.WebhookInfo{Webhook: belay.Webhook{Name: name}})
	}
	for _, path := range []string{"/schedules", "/webhooks"} {
		pages, rows := 0, 0
		for next := path; next != ""; pages++ {
			a := get(t, f, next)
			rows += len(a.root.class("cards")[0].all("tr")) - 1
			next = nextOf(a)
		}
		if pages != 3 || rows != 120 {
			t.Errorf("%s: %d pages show %d rows, want 3 and 120", path, pages, rows)
		}
	}
}

// The pages of targets show what they get and their newest deliveries, and nothing of a URL but its host, since
// its path may be a credential.
func TestNotificationsAreShown(t *testing.T) {
	f := &fake{}
	notify := belay.Notification{URL: "https://hooks.example.org/T0/secret-path", Secret: "${{ secrets.HOOK }}",
		On: []belay.State{belay.Failed, belay.Cancelled}}
	f.targets = []belay.NotificationTargetInfo{
		{NotificationTarget: belay.NotificationTarget{Name: "on-call", Notification: notify,
			Workflows: []string{"billing-*"},
			Alerts:    []belay.Alert{belay.AlertDeadLetter}},
			Paused: &belay.NotificationPause{At: ago(time.Minute), By: "anna"}},
		{NotificationTarget: belay.NotificationTarget{Name: "events", Exchange: "ends"}},
	}
	f.list = func(q belay.Filter) (belay.Page, error) {
		if q.Labels[belay.LabelNotificationTarget] != "on-call" || q.Limit != deliveriesSize {
			t.Errorf("the page asks for %+v", q)
		}
		deliveries := many(8)
		for i := range deliveries {
			if deliveries[i].State == belay.Pending {
				deliveries[i].Gate = "target:hooks"
			}
		}
		return belay.Page{Executions: deliveries, Next: "more"}, nil
	}
	list, one := get(t, f, "/notifications"), get(t, f, "/notifications/on-call")
	list.says("on-call paused for 1m0s by anna https://hooks.example.org failed, cancelled dead letter "+
		"workflows: billing-*",
		"events active exchange ends succeeded, failed, cancelled none all executions")
	one.says("on-call paused", "1 of them failed", "Older deliveries may exist: belay notify get on-call",
		"Deliveries wait at the gate target:hooks")
	if !strings.Contains(one.body, `href="/queues?gate=target%3Ahooks"`) {
		t.Error("no link to the gate at which deliveries wait")
	}
	for _, a := range []*answer{list, one} {
		if strings.Contains(a.body, "secret-path") || strings.Contains(a.body, "HOOK") {
			t.Error("the page shows the path of a URL or the name of a secret")
		}
	}
}

// The pages of documents show their versions, text and tasks.
func TestDocumentsAreShown(t *testing.T) {
	f := &fake{}
	for i := range 60 {
		f.documents = append(f.documents, belay.Document{Text: "name: nightly\n",
			DocumentVersion: belay.DocumentVersion{Name: "nightly", Version: 60 - i, Size: 14,
				CreatedAt: ago(time.Hour), CreatedBy: "anna"}})
	}
	f.documents[2].Text = "name: <b>daily</b>\n"
	f.documents[0].Deprecated = &belay.Deprecation{At: ago(time.Minute), By: "bob", Reason: "wrong"}
	f.stored.tasks = []belay.Task{{ID: "list", Uses: "command"},
		{ID: "work", Uses: "http, for each", Needs: []string{"list"}}}
	get(t, f, "/workflows").says("nightly 60 60 deprecated for 1m0s by bob: wrong submissions get " +
		"version 59 1h0m ago anna")
	a := get(t, f, "/workflows/nightly")
	a.says("nightly version 59 current", "name: nightly", "list: command list command work: http, for each",
		"10 older versions not listed", "nightly.daily")
	if rows := len(a.root.class("cards")[0].all("tr")); rows != mostVersions+1 {
		t.Errorf("%d rows, want a head and %d", rows, mostVersions)
	}
	if n := len(a.root.class("edge")); n != 1 {
		t.Errorf("the graph has %d arrows, want 1", n)
	}
	if !strings.Contains(a.body, `href="/executions?label=document%3Dnightly&amp;workflow=document"`) {
		t.Error("no link to the executions of this document alone")
	}
	get(t, f, "/workflows/nightly?version=60").says("nightly version 60 deprecated", "by bob: wrong",
		"Changes since version 59 The texts are equal.")
	get(t, f, "/workflows/nightly?version=58").says("Changes since version 57 --- version 57 +++ version 58",
		"-name: nightly +name: <b>daily</b>")
	get(t, f, "/workflows/nightly?version=1").saysNot("Changes since")
	f.failure, f.stored.tasks = nil, nil
	if a := get(t, f, "/workflows/nightly"); a.status != 200 || len(a.root.class("graph")) != 0 {
		t.Errorf("a text without tasks: %d", a.status)
	}
}
