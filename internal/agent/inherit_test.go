package agent_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/internal/host"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// assist runs a worker for agents. The worker stops at the end of the test, or when the test calls
// stop.
func (d *testBed) assist(t *testing.T, a *agent.Assistant) (stop func()) {
	t.Helper()
	m, err := workspace.Open(d.workspaces)
	if err != nil {
		t.Fatal(err)
	}
	a.Workspaces = m
	w := worker.New(d, worker.Options{Concurrency: 2, Grace: -1})
	worker.Register(w, agent.Prompted, a.Run)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// until waits until ok returns true for the execution id.
func (d *testBed) until(t *testing.T, id belay.ExecutionID, ok func(x *belay.Execution) bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		x, err := d.Execution(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if ok(&x) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the execution is %+v", x)
		}
		if _, err := d.Await(t.Context(), id, 10*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
}

// deadWorkspace makes a workspace with one file. The process that owns the workspace is dead.
func (d *testBed) deadWorkspace(t *testing.T, run belay.RunID, file, text string) {
	t.Helper()
	m, err := workspace.Open(d.workspaces)
	if err != nil {
		t.Fatal(err)
	}
	w, err := m.Prepare(t.Context(), workspace.Spec{ID: run.String(), Repo: d.repo})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(w.Dir, file), text)
	at := filepath.Join(filepath.Dir(w.Dir), "owner.json")
	raw, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	var owner map[string]any
	if err := json.Unmarshal(raw, &owner); err != nil {
		t.Fatal(err)
	}
	self, err := host.Self()
	if err != nil {
		t.Fatal(err)
	}
	self.PID = ended.Process.Pid
	owner["process"] = self
	if raw, err = json.Marshal(owner); err != nil {
		t.Fatal(err)
	}
	write(t, at, string(raw))
	w.Abandon()
}

// Rule: while another process of this machine saves the changes of a dead run, the next run waits.
// It then continues from these changes and does not start the task anew.
func TestARunWaitsWhileItsWorkIsSalvaged(t *testing.T) {
	d := newTestBed(t)
	flag := filepath.Join(t.TempDir(), "second")
	setup, err := agent.NewSetup("", agent.Setup{
		Command: agent.Template{
			"sh", "-c", `test -e ` + flag + ` || exec sleep 600; cat work.txt; echo "resumed: $BELAY_RESUMED"`,
		}, Repo: d.repo, Timeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := d.assist(t, &agent.Assistant{Setup: setup})
	h, err := workflow.Start[agent.Answer](t.Context(), d, agent.Prompted, agent.Prompt{Text: "work", Repo: d.repo},
		once)
	if err != nil {
		t.Fatal(err)
	}
	d.until(t, h.ID(), func(*belay.Execution) bool { return chunks(t, d, h.ID(), agent.PhaseLog) != "" })
	stop()
	write(t, flag, "")
	run := belay.RunID{Execution: h.ID(), Token: 1}
	d.deadWorkspace(t, run, "work.txt", "half done\n")
	other, err := workspace.Open(d.workspaces)
	if err != nil {
		t.Fatal(err)
	}
	held, err := other.Adopt(run.String())
	if err != nil {
		t.Fatal(err)
	}
	d.assist(t, &agent.Assistant{Setup: setup})
	d.until(t, h.ID(), func(x *belay.Execution) bool { return x.State != belay.Pending })
	held.Abandon() // as if the sweep that holds the workspace was killed before it had saved any changes
	got, err := h.Result(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Text != "half done\nresumed: 1\n" {
		t.Errorf("the agent found %q", got.Text)
	}
}
