package agent_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

func TestMain(m *testing.M) {
	// The test binary is also the program that supervises commands, and the helper program of
	// workspaces.
	process.Main(workspace.Helper())
	os.Exit(m.Run())
}

// testBed has a Backend, a repository and a directory for workspaces.
type testBed struct {
	*embedded.Backend
	repo       string
	workspaces string
}

func newTestBed(t *testing.T) *testBed {
	t.Helper()
	b, err := embedded.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	d := &testBed{
		Backend: b, repo: filepath.Join(t.TempDir(), "repo"), workspaces: filepath.Join(t.TempDir(), "workspaces"),
	}
	git(t, "", "init", "-q", "-b", "main", d.repo)
	write(t, filepath.Join(d.repo, "kept.txt"), "kept\n")
	git(t, d.repo, "add", ".")
	git(t, d.repo, "commit", "-q", "-m", "first")
	return d
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	c := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@t"}, args...)...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// seen is an Observer that records its calls.
type seen struct {
	mu    sync.Mutex
	lines []string
	wrote strings.Builder
	hook  func(event string)
}

func (s *seen) note(line string) {
	s.mu.Lock()
	s.lines = append(s.lines, line)
	hook := s.hook
	s.mu.Unlock()
	if hook != nil {
		hook(line)
	}
}

func (s *seen) Preparing(*agent.Job)       {}
func (s *seen) Prepared(string, bool)      { s.note("prepared") }
func (s *seen) Skipped(r agent.StepResult) { s.note("skipped " + r.Name) }
func (s *seen) Started(x agent.Step)       { s.note("started " + x.Name) }
func (s *seen) Ended(r agent.StepResult)   { s.note("ended " + r.Name) }

func (s *seen) Wrote(_ bool, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrote.Write(b)
}

// start runs a worker for jobs. The worker stops at the end of the test, or when the test calls
// stop.
func (d *testBed) start(t *testing.T, o agent.Observer) (stop func()) {
	t.Helper()
	m, err := workspace.Open(d.workspaces)
	if err != nil {
		t.Fatal(err)
	}
	w := worker.New(d, worker.Options{Concurrency: 2, Grace: -1})
	worker.Register(w, agent.Workflow, (&agent.Runner{Workspaces: m, Observer: o}).Run)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func sh(name, script string) agent.Step {
	return agent.Step{Name: name, Argv: []string{"sh", "-c", script}}
}

var once = belay.WithPolicy(belay.Policy{MaxAttempts: 1, NoDeadLetters: true})

// Rule: an interrupted job continues in a new workspace at the interrupted step, with the committed
// and uncommitted changes of the finished steps.
func TestInterruptedJobContinuesWithTheChangesOfItsFinishedSteps(t *testing.T) {
	d := newTestBed(t)
	flag := filepath.Join(t.TempDir(), "go-on")
	job := agent.Job{Repo: d.repo, Grace: belay.Duration(time.Second), Steps: []agent.Step{
		sh("commit", `echo one > one.txt && git add one.txt && git commit -qm "add one"`),
		sh("edit", `echo edited >> kept.txt && mkdir -p sub && printf 'a\000b' > 'sub/new file.bin' && chmod +x one.txt`),
		sh("wait", `echo half > half.txt; while ! test -e `+flag+`; do sleep 0.02; done`),
		sh("look", `git log --format=%s && cat kept.txt && test -x one.txt && od -An -c 'sub/new file.bin' && ls half.txt`),
	}}
	first := &seen{}
	interrupted := make(chan struct{})
	first.hook = func(line string) {
		if line == "started wait" {
			close(interrupted)
		}
	}
	stop := d.start(t, first)
	h, err := workflow.Start[agent.Result](t.Context(), d, agent.Workflow, job, once)
	if err != nil {
		t.Fatal(err)
	}
	<-interrupted
	stop()
	write(t, flag, "")
	second := &seen{}
	d.start(t, second)
	r, err := h.Result(t.Context())
	if err != nil {
		t.Fatalf("%v\n%s", err, second.wrote.String())
	}
	want := []string{
		"skipped commit", "skipped edit", "prepared", "started wait", "ended wait", "started look", "ended look",
	}
	if got := strings.Join(second.lines, ", "); got != strings.Join(want, ", ") {
		t.Errorf("the second run did: %s", got)
	}
	out := second.wrote.String()
	for _, piece := range []string{"add one\nfirst", "kept\nedited", `a  \0   b`, "half.txt"} {
		if !strings.Contains(out, piece) {
			t.Errorf("%q is missing from the output in the restored workspace:\n%s", piece, out)
		}
	}
	if c := r.Changes; c == nil || c.Commits != 1 || c.Bundle == "" || c.Patch == "" || c.Lost != "" {
		t.Errorf("changes %+v", r.Changes)
	}
	if left, _ := filepath.Glob(filepath.Join(d.workspaces, "jobs", "*")); len(left) != 0 {
		t.Errorf("workspaces are left: %v", left)
	}
}

// Rule: when a step fails, the job fails and runs no further step. The result has the exit code of
// that step, the results of all steps that ran, and the changes.
func TestFailedJobKeepsItsOutputAndChanges(t *testing.T) {
	d := newTestBed(t)
	d.start(t, &seen{})
	h, err := workflow.Start[agent.Result](t.Context(), d, agent.Workflow, agent.Job{Repo: d.repo, Steps: []agent.Step{
		sh("good", "echo fine"), sh("bad", "echo broken > left.txt; echo told; exit 7"), sh("never", "touch never"),
	}}, once)
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Result(t.Context())
	var ended *workflow.EndedError
	if !errors.As(err, &ended) {
		t.Fatalf("got %v", err)
	}
	x, err := d.Execution(t.Context(), h.ID())
	if err != nil {
		t.Fatal(err)
	}
	out := string(x.Output)
	for _, piece := range []string{`"exit_code":7`, `"name":"good"`, `"name":"bad"`, `"patch":"step-2.patch"`} {
		if !strings.Contains(out, piece) {
			t.Errorf("%s is not in the output %s", piece, out)
		}
	}
	if strings.Contains(out, "never") || x.State != belay.Failed || x.Error.Class != belay.ClassPermanent {
		t.Errorf("execution %+v", x)
	}
	if log := chunks(t, d, h.ID(), agent.OutputLog); log != "fine\ntold\n" {
		t.Errorf("the log is %q", log)
	}
	if patch := chunks(t, d, h.ID(), "step-2.patch"); !strings.Contains(patch, "+broken") {
		t.Errorf("the patch is %q", patch)
	}
}

func chunks(t *testing.T, d *testBed, id belay.ExecutionID, name string) string {
	t.Helper()
	got, err := d.Chunks(t.Context(), belay.ChunkQuery{Execution: id, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, c := range got {
		b.Write(c.Data)
	}
	return b.String()
}

// Rule: all processes of a cancelled job end within its grace period, and its work is kept
// (guarantee G7).
func TestCancelledJobEndsWithinItsGraceAndKeepsItsWork(t *testing.T) {
	d := newTestBed(t)
	s := &seen{}
	running := make(chan struct{})
	s.hook = func(line string) {
		if line == "started long" {
			close(running)
		}
	}
	d.start(t, s)
	ready := filepath.Join(t.TempDir(), "ready")
	h, err := workflow.Start[agent.Result](t.Context(), d, agent.Workflow, agent.Job{
		Repo: d.repo, Grace: belay.Duration(500 * time.Millisecond),
		Steps: []agent.Step{
			sh("long", `trap "" TERM; echo part > part.txt; setsid sh -c 'trap "" TERM; sleep 600' & touch `+ready+
				`; sleep 600`),
		},
	}, once)
	if err != nil {
		t.Fatal(err)
	}
	<-running
	for deadline := time.Now().Add(10 * time.Second); ; {
		if _, err := os.Stat(ready); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the command did not get ready")
		}
		time.Sleep(5 * time.Millisecond)
	}
	begin := time.Now()
	if _, err := d.Control(t.Context(), belay.Control{Execution: h.ID(), Action: belay.ActionCancel,
		Grace: belay.Duration(20 * time.Second)}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Result(t.Context()); err == nil {
		t.Fatal("a cancelled job succeeded")
	}
	if took := time.Since(begin); took > 8*time.Second {
		t.Errorf("it took %s to end", took)
	}
	x, err := d.Execution(t.Context(), h.ID())
	if err != nil || x.State != belay.Cancelled {
		t.Fatalf("it is %s, %v", x.State, err)
	}
	if !strings.Contains(string(x.Output), "step-1.patch") {
		t.Errorf("its work is not in its output %s", x.Output)
	}
	if patch := chunks(t, d, h.ID(), "step-1.patch"); !strings.Contains(patch, "+part") {
		t.Errorf("the patch is %q", patch)
	}
}
