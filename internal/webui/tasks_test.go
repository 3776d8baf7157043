package webui

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// documented makes a Backend with an execution of a document.
func documented(tasks ...belay.Task) *fake {
	f := running()
	f.one.Workflow, f.tasks = "document", tasks
	return f
}

// The page of a document has a graph and a list with the states of its tasks.
func TestTheTasksOfADocument(t *testing.T) {
	f := documented(
		belay.Task{
			ID: "build", Uses: "command", State: belay.TaskSucceeded, Execution: id(8), Attempt: 2,
			StartedAt: ago(time.Minute),
			EndedAt:   ago(time.Second), Output: json.RawMessage(`{"exit_code":0}`),
		},
		belay.Task{
			ID: "each", Uses: "command", Needs: []string{"build"}, State: belay.TaskFailed,
			Error: "1 of 3 items failed",
			Items: &belay.TaskItems{Total: 3, Succeeded: 2, Failed: 1},
		},
		belay.Task{
			ID: "ask", Uses: "approval", Needs: []string{"build"}, State: belay.TaskWaiting,
			Question: &belay.TaskQuestion{Signal: "ship", Approval: true, Message: "ship it?"},
		},
		belay.Task{
			ID: "upload", Uses: "http", Needs: []string{"each", "ask"}, State: belay.TaskSucceeded,
			ByHand: &belay.TaskByHand{By: "ann", Note: "done in the shop"},
		},
		belay.Task{ID: "undo", Uses: "command", Needs: []string{"build"}, Compensates: true, State: belay.TaskPending},
	)
	a := get(t, f, here+id(1).String())
	checkTame(t, a)
	for _, want := range []string{
		`href="/executions/` + id(8).String(), "59s", "2 of 3 items done, 1 failed", "1 of 3 items failed", "ship it?",
		"belay signal " + id(1).String() + " ship --payload", "skipped by hand by ann: done in the shop",
		"undoes build after a failure", "output: {&#34;exit_code&#34;:0}", `class="box succeeded"`, `class="edge undoes"`,
		"failed · 2/3",
	} {
		if !strings.Contains(a.body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(a.body, `class="box `); n != 5 {
		t.Errorf("the graph has %d boxes", n)
	}
	if n := strings.Count(a.body, `class="edge`); n != 5 {
		t.Errorf("the graph has %d arrows", n)
	}
}

// Tasks stand to the right of the tasks that they need, and no two boxes are at one place.
func TestTheGraphHasAnOrder(t *testing.T) {
	tasks := []belay.Task{
		{ID: "d", Needs: []string{"b", "c"}}, {ID: "b", Needs: []string{"a"}}, {ID: "c", Needs: []string{"a", "gone"}},
		{ID: "a"}, {ID: "x", Needs: []string{"y"}}, {ID: "y", Needs: []string{"x"}},
	}
	g := graphOf(tasks)
	at := map[string]box{}
	places := map[string]bool{}
	for _, n := range g.Nodes {
		at[n.Name] = n
		places[fmt.Sprint(n.X, n.Y)] = true
	}
	if at["a"].X >= at["b"].X || at["b"].X != at["c"].X || at["c"].X >= at["d"].X || len(places) != len(tasks) {
		t.Errorf("%+v", g.Nodes)
	}
}

// A page of a thousand tasks has a list without a graph, and is bounded in size whatever the texts of the tasks.
func TestManyTasks(t *testing.T) {
	var tasks []belay.Task
	for i := range 1200 {
		x := belay.Task{
			ID: fmt.Sprintf("t%d%s", i, strings.Repeat("x", 60)), Uses: strings.Repeat("ü", 200),
			State: belay.TaskFailed,
			Error: strings.Repeat("<", 300), Execution: id(7),
		}
		if i > 0 {
			x.Needs = []string{tasks[i-1].ID}
		}
		tasks = append(tasks, x)
	}
	a := get(t, documented(tasks...), here+id(1).String())
	if strings.Contains(a.body, `class="box`) || !strings.Contains(a.body, "too large for this page") ||
		strings.Count(a.body, "<tr>") < 1000 || len(a.body) > 4<<20 {
		t.Errorf("the page has %d bytes", len(a.body))
	}
	if g := graphOf(tasks[:mostNodes]); g == nil || len(g.Edges) != mostNodes-1 {
		t.Error("the largest graph is not drawn")
	}
}

// A hostile text in the fields of a task is shown as text.
func TestHostileTasks(t *testing.T) {
	with := func(s string) *answer {
		raw, _ := json.Marshal(s)
		x := belay.Task{
			ID: s, Uses: s, Description: s, Needs: []string{s, "a"}, State: belay.TaskState(s), WaitsFor: s, Error: s,
			Question: &belay.TaskQuestion{Signal: s, Message: s, Approval: true}, Output: raw,
			Items: &belay.TaskItems{Total: 1}, ByHand: &belay.TaskByHand{By: s, Note: s},
		}
		y := x
		y.ID, y.State, y.Compensates = "a", belay.TaskFailed, true
		z := x
		z.ID, z.State, z.WaitsFor = "b", belay.TaskPending, ""
		return get(t, documented(x, y, z), here+id(1).String())
	}
	plain := len(with("x").root.all("rect"))
	for _, s := range hostile {
		a := with(s)
		checkTame(t, a)
		if got := len(a.root.all("rect")); got != plain {
			t.Errorf("%.20q: the pictures have %d parts, want %d as with plain text", s, got, plain)
		}
	}
}
