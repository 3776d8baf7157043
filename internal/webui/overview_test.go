package webui

import (
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// The overview names each matter that needs a person, the urgent ones first, with a link to its page.
func TestOverviewSaysWhatNeedsAttention(t *testing.T) {
	f := waitingIn()
	f.letters = []belay.DeadLetter{
		{Workflow: "b", At: ago(time.Minute), Message: "new"}, {Workflow: "a", At: ago(time.Hour), Message: "old"},
	}
	f.gates = gatesOf()
	f.workers = append(f.workers, manyWorkers(0, 2)...)
	f.workers[1].EndedAt = ago(time.Minute)
	f.workers[2].EndedAt = ago(2 * time.Hour)
	failed := belay.ScheduleSlot{Outcome: belay.SlotFailed, Text: "no such document"}
	f.schedules = []belay.ScheduleInfo{{Schedule: belay.Schedule{Name: "nightly"},
		Recent: []belay.ScheduleSlot{failed}}}
	a := get(t, f, "/")
	var got []string
	for _, li := range a.root.class("alerts")[0].all("li") {
		got = append(got, li.all("a")[0].attr["href"]+" "+li.words())
	}
	want := []string{
		"/dead act 2 open dead letters the newest 1m0s ago, of b: new",
		"/queues act 1 queue with executions for which no worker is connected gpu: train (1)",
		"/queues act 2 circuit breakers not closed target:pay, target:shop",
		"/schedules/nightly act the newest slot of the schedule nightly has failed no such document",
		"/queues look 1 execution due for more than a minute in default",
		"/workers look 1 worker lost in the last hour w-0.",
		"/queues?gate=queue%3Agpu look 1 pause of queues, workflows or targets queue:gpu for 1m0s",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the overview names\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The overview leads to each agent and each execution of a document that waits for a person.
func TestOverviewSaysWhoWaitsForAnAnswer(t *testing.T) {
	waits := func(n byte, workflow, code, text string) belay.Execution {
		return belay.Execution{ID: id(n), Workflow: workflow, State: belay.Waiting,
			Reason: &belay.Reason{Code: code, Text: text}}
	}
	all := []belay.Execution{
		waits(1, "agent", "signal", `signal "answer-1"`), waits(2, "order", "signal", `signal "paid"`),
		waits(3, "document", "child", "child build"), waits(4, "document", "child", `child build, signal "ok"`),
	}
	for range mostNames {
		all = append(all, waits(9, "document", "signal", `signal "old"`))
	}
	all[0].Labels = map[string]string{"prompt": "mend the test"}
	f := &fake{}
	f.list = func(q belay.Filter) (belay.Page, error) {
		var p belay.Page
		for i := range all {
			if len(q.States) == 1 && q.States[0] == all[i].State && q.Workflow == all[i].Workflow {
				p.Executions = append(p.Executions, all[i])
			}
		}
		return p, nil
	}
	var got []string
	for _, li := range get(t, f, "/").root.class("alerts")[0].all("li") {
		got = append(got, li.all("a")[0].attr["href"]+" "+li.words())
	}
	want := []string{here + id(1).String() + "/job look an agent waits for an answer mend the test"}
	for range mostNames {
		want = append(want, here+id(9).String()+` look document waits for a person or a signal signal "old"`)
	}
	want = append(want, "/executions?state=waiting&workflow=document look 1 further execution waiting for a person or "+
		"a signal")
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the overview names\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The overview counts executions by state, with links to their lists, and shows the newest ones.
func TestOverviewCountsExecutions(t *testing.T) {
	var asked []belay.Filter
	f := listed(many(16), &asked)
	a := get(t, f, "/overview")
	a.says("all 16", "pending 2", "failed 2", "0 workers")
	if n := len(a.root.class("list")[0].all("tr")); n != newest+1 {
		t.Errorf("%d rows, want a head and %d", n, newest)
	}
	for _, l := range a.root.class("counts")[0].all("a") {
		if q := query(t, l).Get("state"); l.words() != "all 16" && !strings.HasPrefix(l.words(), q) {
			t.Errorf("%q leads to %s", l.words(), l.attr["href"])
		}
	}
	get(t, &fake{}, "/").says("Nothing does")
}
