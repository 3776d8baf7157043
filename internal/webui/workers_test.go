package webui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// manyWorkers makes connected workers and ended ones.
func manyWorkers(open, ended int) []belay.Worker {
	all := make([]belay.Worker, open+ended)
	for i := range all {
		all[i] = belay.Worker{
			WorkerSpec: belay.WorkerSpec{ID: belay.WorkerID{0: byte(i), 15: byte(i >> 8)},
				Name: fmt.Sprintf("w-%d.", i), Capacity: 4},
			State: belay.WorkerOpen, Running: 1, HeartbeatAt: ago(time.Second), ExpiresAt: noon.Add(time.Second),
		}
		if i >= open {
			all[i].State, all[i].EndReason = belay.WorkerLost, "its session ran out of time"
			all[i].EndedAt = ago(time.Hour)
		}
	}
	return all
}

// The page shows for each worker its slots, the work that it takes, its heartbeat and its runs.
func TestWorkersAreListed(t *testing.T) {
	f := running()
	w := &f.workers[0]
	w.Capacity, w.Running, w.State = 8, 2, belay.WorkerUnhealthy
	w.Queues, w.Workflows = []string{"gpu", "run:x"}, []belay.Registration{{Workflow: "train", Version: "2"}}
	w.Labels, w.Mailbox = map[string]string{"zone": "a"}, "belay.w9"
	w.HealthError, w.UnhealthySince = "connection refused", ago(time.Minute)
	f.workers = append(f.workers, manyWorkers(0, 1)...)
	f.list = func(q belay.Filter) (belay.Page, error) {
		if len(q.States) != 2 || !q.Children {
			t.Errorf("the page asks for the runs with %+v", q)
		}
		return belay.Page{Executions: []belay.Execution{*f.one, {ID: id(7), Workflow: "other"}}}, nil
	}
	a := get(t, f, "/workers")
	a.says("1 worker, 2 of 8 slots in use", "anna's laptop", "unhealthy", "2 of 8", "queues: gpu workflows: train 2",
		"labels: zone=a", "messages through belay.w9", "3s ago expires in 12s",
		"its probe has failed for 1m0s: connection refused", "process 4711 on anna", "review and 1 more",
		"w-0.", "lost 1h0m ago", "its session ran out of time")
	a.saysNot("run:x", "other")
	if link := a.root.class("cards")[0].all("a"); len(link) != 1 || link[0].attr["href"] != here+id(1).String() {
		t.Errorf("the links to runs are %v", link)
	}
}

// The sessions of one process that were drained are one row, so that they do not hide a worker that was lost.
func TestDrainedSessionsAreOneRow(t *testing.T) {
	f := &fake{workers: manyWorkers(0, 40)}
	for i := range f.workers[:39] {
		f.workers[i].Name, f.workers[i].State, f.workers[i].EndReason = "http", belay.WorkerDrained, "drained"
	}
	a := get(t, f, "/workers")
	if rows := a.root.class("cards")[0].all("tr"); len(rows) != 3 {
		t.Errorf("%d rows, want a head and 2", len(rows))
	}
	a.says("drained 1h0m ago and 38 earlier sessions of the same worker", "w-39.", "lost")
	a.saysNot("belay workers ls --all")
}

// A large fleet has several pages, which together show each worker once.
func TestWorkersArePaged(t *testing.T) {
	f := &fake{workers: manyWorkers(120, 300)}
	seen, pages := "", 0
	for next := "/workers"; next != ""; pages++ {
		a := get(t, f, next)
		for _, row := range a.root.class("cards")[0].all("th") {
			seen += row.words()
		}
		if ended := len(a.root.class("cards")[1].all("tr")); ended != mostEnded+1 {
			t.Errorf("%d rows of ended workers, want a head and %d", ended, mostEnded)
		}
		a.says("120 workers", "belay workers ls --all")
		next = nextOf(a)
	}
	if pages != 3 {
		t.Errorf("%d pages, want 3", pages)
	}
	for i := range 120 {
		if n := strings.Count(seen, fmt.Sprintf("w-%d.", i)); n != 1 {
			t.Fatalf("worker %d is shown %d times", i, n)
		}
	}
}

// nextOf returns the address of the next page, or an empty text on the last one.
func nextOf(a *answer) string {
	for _, l := range a.root.all("a") {
		if l.attr["rel"] == "next" {
			return l.attr["href"]
		}
	}
	return ""
}

// Sessions that have ended are listed by their ends, the newest first, and not by their begins.
func TestEndedWorkersAreSortedByTheirEnds(t *testing.T) {
	f := &fake{workers: manyWorkers(0, 3)}
	for i, end := range []time.Duration{time.Hour, time.Minute, 2 * time.Hour} {
		f.workers[i].Name, f.workers[i].EndedAt = []string{"b", "a", "c"}[i], ago(end)
	}
	var got []string
	for _, r := range get(t, f, "/workers").root.class("cards")[0].all("tr")[1:] {
		got = append(got, r.words()[:1])
	}
	if strings.Join(got, "") != "abc" || f.workers[0].Name != "b" {
		t.Errorf("the order is %v", got)
	}
}
