package worker_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/worker"
)

func nothing(context.Context, any) (any, error) { return nil, nil }

// Rule: if the options or workflows of a worker can never work, Run returns an error at once, and
// does not try for ever.
func TestRunReturnsAnErrorForImpossibleOptions(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	b := engine.New(memory.New(time.Now), engine.Options{Log: quiet})
	defer b.Close()
	for name, c := range map[string]struct {
		options  worker.Options
		workflow string
		text     string
	}{
		"no workflow":          {text: "no workflow is registered"},
		"a TTL that is short":  {worker.Options{TTL: time.Millisecond}, "w", "too short"},
		"a slow heartbeat":     {worker.Options{TTL: 5 * time.Second, Heartbeat: 6 * time.Second}, "w", "cannot keep"},
		"an invalid name":      {worker.Options{}, "w\n", "control character"},
		"a queue with no name": {worker.Options{Queues: []string{""}}, "w", "empty"},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.Log = quiet
			w := worker.New(b, c.options)
			if c.workflow != "" {
				worker.Register(w, c.workflow, nothing)
			}
			if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v, want one with %q", err, c.text)
			}
		})
	}
}

// Rule: Register panics if a workflow is registered twice or the worker already runs, so that the
// mistake shows when the program starts.
func TestRegisterPanicsOnMistakes(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	b := engine.New(memory.New(time.Now), engine.Options{Log: quiet})
	defer b.Close()
	w := worker.New(b, worker.Options{Log: quiet})
	worker.Register(w, "w", nothing)
	worker.Register(w, "w", nothing, worker.Version("2")) // another version is not a duplicate
	mustPanic(t, "registered already", func() { worker.Register(w, "w", nothing) })
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := w.Run(ctx); err != nil {
		t.Error(err)
	}
	mustPanic(t, "runs already", func() { worker.Register(w, "x", nothing) })
	if err := w.Run(ctx); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a second Run: %v", err)
	}
}

func mustPanic(t *testing.T, text string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if v, _ := recover().(string); !strings.Contains(v, text) {
			t.Errorf("panic %q, want one with %q", v, text)
		}
	}()
	f()
}

// Rule: a worker opens its session with exactly its registered workflows, queues and labels, and
// with its name and process.
func TestASessionNamesTheWorkflowsAndQueuesOfItsWorker(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	b := engine.New(memory.New(time.Now), engine.Options{Log: quiet})
	defer b.Close()
	ctx, stop := context.WithCancel(t.Context())
	spy := &opening{Backend: b, opened: stop}
	w := worker.New(spy, worker.Options{
		Name: "n", Concurrency: 3, Queues: []string{"q"}, Labels: map[string]string{"gpu": "1"}, Version: "1.2",
		Log: quiet,
		TTL: 2 * time.Second,
	})
	worker.Register(w, "b", nothing)
	worker.Register(w, "a", nothing, worker.Version("v"))
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	s := spy.spec
	if s.Name != "n" || s.Capacity != 3 || len(s.Queues) != 1 || s.Queues[0] != "q" || s.Labels["gpu"] != "1" ||
		s.Version != "1.2" ||
		s.TTL.D() != 2*time.Second || s.ID.IsZero() || s.Process.PID == 0 {
		t.Errorf("%+v", s)
	}
	if len(s.Workflows) != 2 || s.Workflows[0] != (belay.Registration{Workflow: "b"}) ||
		s.Workflows[1] != (belay.Registration{Workflow: "a", Version: "v"}) {
		t.Errorf("workflows %v", s.Workflows)
	}
}

// opening records the WorkerSpec, and stops the worker as soon as the session is open.
type opening struct {
	belay.Backend
	spec   belay.WorkerSpec
	opened func()
}

func (o *opening) OpenWorker(ctx context.Context, s belay.WorkerSpec) (belay.Session, error) {
	defer o.opened()
	o.spec = s
	return o.Backend.OpenWorker(ctx, s)
}
