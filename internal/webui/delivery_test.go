package webui

import (
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// newsTo makes a delivery of a notification as a list has it.
func newsTo(n byte, target, of, key string) belay.Execution {
	labels := make(map[string]string)
	for name, value := range map[string]string{belay.LabelNotificationTarget: target, belay.LabelNotification: of} {
		if value != "" {
			labels[name] = value
		}
	}
	return belay.Execution{ID: id(n), Workflow: belay.NotificationWorkflow, State: belay.Succeeded,
		Trigger: belay.TriggerNotification, Labels: labels, Key: belay.NotificationPrefix + key}
}

// A row of a delivery names its target and what it reports, without another read. A delivery that lacks the facts, and
// an execution that only looks like a delivery, keep their names.
func TestDeliveriesSayWhatTheyReport(t *testing.T) {
	of := id(9).String()
	forged := newsTo(6, "chat", of, of+":1:target:chat")
	forged.Trigger = belay.TriggerManual
	all := []belay.Execution{
		newsTo(1, "chat", of, of+":1:target:chat"), newsTo(2, "", of, of+":1:0"),
		newsTo(3, "chat", "", "alert:dead_letter:"+of+":chat"), newsTo(4, "chat", "", "alert:test:"+of+":chat"),
		newsTo(5, "chat", "", "odd"), forged,
	}
	want := []string{
		"notification to chat reports the end of " + of, "notification reports the end of " + of,
		"notification to chat reports the alert dead letter", "notification to chat is a test", "http", "http",
	}
	var asked []belay.Filter
	a := get(t, listed(all, &asked), "/executions")
	rows := a.root.class("list")[0].all("tr")[1:]
	for i, r := range rows {
		if got := r.all("th")[0].words(); got != want[i]+" "+id(byte(i+1)).String() {
			t.Errorf("row %d is named %q, want %q", i, got, want[i])
		}
	}
	if l := rows[0].all("a"); len(l) != 2 || l[1].attr["href"] != here+of || len(asked) != 1 {
		t.Errorf("%d links, %d reads", len(l), len(asked))
	}
	for _, s := range hostile {
		checkTame(t, get(t, listed([]belay.Execution{newsTo(1, s, s, s), newsTo(2, s, "", "alert:"+s+":x")}, &asked),
			"/executions"))
	}
}

// The overview lists the newest executions without deliveries, of which a failure may have many, and says how many it
// has left out; the counts contain all.
func TestOverviewLeavesDeliveriesOut(t *testing.T) {
	all := many(30)
	for i := range 25 {
		all[i] = newsTo(byte(i), "chat", id(9).String(), "x")
	}
	f := &fake{list: func(q belay.Filter) (belay.Page, error) {
		if !q.Count {
			return belay.Page{}, nil
		}
		p := belay.Page{Executions: all, Counts: &belay.StateCounts{States: map[belay.State]int{belay.Succeeded: 30}}}
		return p, nil
	}}
	a := get(t, f, "/")
	a.says("all 30", "25 deliveries of notifications are not listed here")
	if rows := a.root.class("list")[0].all("tr"); len(rows) != 6 || strings.Contains(rows[1].words(), "notification") {
		t.Errorf("%d rows, want a head and 5", len(rows))
	}
	all = all[:1]
	a = get(t, f, "/")
	a.says("A delivery of a notification is not listed here")
	a.saysNot("Nothing has been submitted yet")
}
