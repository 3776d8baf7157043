package webui

import (
	"fmt"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// waitingIn makes executions that wait in three queues. A worker takes the workflow build of the queue default.
func waitingIn() *fake {
	wait := func(n byte, queue, workflow string, since time.Duration) belay.Execution {
		return belay.Execution{ID: id(n), Queue: queue, Workflow: workflow, State: belay.Pending, CreatedAt: ago(since),
			Reason: &belay.Reason{Code: "queued"}}
	}
	all := []belay.Execution{
		wait(1, "default", "build", time.Minute/2), wait(2, "default", "build", 2*time.Minute),
		wait(3, "gpu", "train", time.Hour),
		wait(4, "run:xyz", "command", time.Second),
	}
	all[0].Gate, all[3].External = "limit:crawler", true
	f := &fake{why: belay.Explanation{Summary: "It waits, since `anna` paused it."}}
	f.list = func(q belay.Filter) (belay.Page, error) { return belay.Page{Executions: all}, nil }
	f.workers = []belay.Worker{{
		WorkerSpec: belay.WorkerSpec{Name: "w", Workflows: []belay.Registration{{Workflow: "build"}}},
		State:      belay.WorkerOpen,
	}}
	return f
}

// The page shows for each queue how many executions wait, since when and why, the longest wait first, and names
// queues whose executions no connected worker takes.
func TestQueuesAreListed(t *testing.T) {
	a := get(t, waitingIn(), "/queues")
	rows := a.root.class("cards")[0].all("tr")
	if len(rows) != 4 {
		t.Fatalf("%d rows, want a head and 3", len(rows))
	}
	for i, want := range []string{
		"gpu train no worker 1 0 1h0m ago " + shortID(id(3)) + " 1 queued no worker is connected for train (1) " +
			"Its oldest: It waits, since anna paused it.",
		"default build waiting 2 1 2m0s ago " + shortID(id(2)) + " 1 at the gate limit:crawler 1 queued Its " +
			"oldest: It waits, since anna paused it.",
		"belay run command waiting 1 0 1s ago " + shortID(id(4)) + " 1 queued Its oldest: It waits, " +
			"since anna paused it.",
	} {
		if got := rows[i+1].words(); got != want {
			t.Errorf("row %d is %q, want %q", i, got, want)
		}
	}
}

// An execution that a gate holds does not need a worker yet: the page does not call its queue one without workers.
func TestExecutionsAtAGateNeedNoWorker(t *testing.T) {
	f := waitingIn()
	f.list = func(belay.Filter) (belay.Page, error) {
		return belay.Page{Executions: []belay.Execution{{ID: id(1), Queue: "default", Workflow: "http",
			State: belay.Pending, CreatedAt: ago(time.Minute), Gate: "target:shop"}}}, nil
	}
	row := get(t, f, "/queues").root.class("cards")[0].all("tr")[1].words()
	want := "default http waiting 1 1 1m0s ago " + shortID(id(1)) + " 1 at the gate target:shop Its oldest: " +
		"It waits, since anna paused it."
	if row != want {
		t.Errorf("the queue is %q, want %q", row, want)
	}
}

// A worker whose version or labels differ does not take an execution.
func TestWorkersThatFit(t *testing.T) {
	w := belay.Worker{State: belay.WorkerOpen, WorkerSpec: belay.WorkerSpec{
		Queues: []string{"gpu"}, Workflows: []belay.Registration{{Workflow: "train", Version: "2"}},
		Labels: map[string]string{"zone": "a", "disk": "ssd"},
	}}
	e := belay.Execution{Queue: "gpu", Workflow: "train", Version: "2", WorkerLabels: map[string]string{"zone": "a"}}
	for name, c := range map[string]struct {
		change func(*belay.Worker, *belay.Execution)
		want   bool
	}{
		"equal":   {func(*belay.Worker, *belay.Execution) {}, true},
		"queue":   {func(_ *belay.Worker, e *belay.Execution) { e.Queue = "default" }, false},
		"version": {func(_ *belay.Worker, e *belay.Execution) { e.Version = "" }, false},
		"label":   {func(w *belay.Worker, _ *belay.Execution) { w.Labels = map[string]string{"zone": "b"} }, false},
		"missing": {func(_ *belay.Worker, e *belay.Execution) { e.WorkerLabels = map[string]string{"x": ""} }, false},
		"ended":   {func(w *belay.Worker, _ *belay.Execution) { w.State = belay.WorkerLost }, false},
		"outside": {func(w *belay.Worker, _ *belay.Execution) { w.External = true }, false},
		"default": {func(w *belay.Worker, e *belay.Execution) { w.Queues, e.Queue = nil, "default" }, true},
	} {
		w, e := w, e
		c.change(&w, &e)
		if got := takes([]belay.Worker{w})(&e); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// With thousands of queues and executions the page stays small and says what it leaves out.
func TestManyQueues(t *testing.T) {
	f := waitingIn()
	f.list = func(q belay.Filter) (belay.Page, error) {
		all := make([]belay.Execution, q.Limit)
		for i := range all {
			all[i] = belay.Execution{ID: id(byte(i)), Queue: fmt.Sprint("queue-", i), Workflow: "x",
				State: belay.Pending, CreatedAt: ago(time.Hour)}
		}
		return belay.Page{Executions: all, Next: "more"}, nil
	}
	a := get(t, f, "/queues")
	a.says("More than 1000 executions wait", "further queues with shorter waits are not shown")
	if n := len(a.root.class("cards")[0].all("tr")); n != mostQueues+1 {
		t.Errorf("%d rows, want a head and %d", n, mostQueues)
	}
	waiting, _ := f.list(belay.Filter{Limit: mostQueues + 1})
	f.list = func(belay.Filter) (belay.Page, error) { return waiting, nil }
	f.workers = nil
	get(t, f, "/queues").says("1 further queue with shorter waits is not shown")
}
