package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/worker"
)

const workerLong = `Run executions of the built-in kinds: claim them, run them on this machine, and
report.

With --server, or BELAY_SERVER, the work is a server's; its key, with the scope
worker, is in BELAY_KEY or in --key-file. Otherwise it is that of the data directory.
Workspaces are made below the data directory in both cases.

The built-in kinds are:
  command   a command, or several, in a workspace of its own: what belay run submits

While the server is away the work goes on, and is frozen before its lease ends; it
goes on when the server is back. Ctrl-C or SIGTERM stops in two stages: nothing more
is claimed and what runs may finish within --grace; then it is ended and given back,
and goes on elsewhere. A second one ends everything at once.`

// workerOptions are those of a worker of built-in kinds.
type workerOptions struct {
	name          string
	concurrency   int
	queues        []string
	labels        map[string]string
	ttl           time.Duration
	grace, unwind time.Duration
	log           *slog.Logger
}

func (a *app) workerCommand() *cobra.Command {
	o := workerOptions{unwind: time.Minute}
	var labels []string
	c := &cobra.Command{
		Use: "worker", Short: "Run executions of the built-in kinds on this machine", Long: workerLong, Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.concurrency < 1 || o.concurrency > 10_000 {
				return usage("--concurrency is %d; it can be 1 to 10000", o.concurrency)
			}
			if o.grace <= 0 {
				o.grace = -1 // 0 is the default of package worker
			}
			var err error
			if o.labels, err = pairs("label", labels); err != nil {
				return err
			}
			return a.work(c.Context(), o)
		},
	}
	f := c.Flags()
	f.IntVar(&o.concurrency, "concurrency", worker.DefaultConcurrency, "at most so many at a time")
	f.StringArrayVar(&labels, "label", nil, "a label that executions can ask for, as `name=value`; may be repeated")
	f.StringSliceVar(&o.queues, "queue", nil, "take from this `queue`; may be repeated; default, unless given")
	f.StringVar(&o.name, "name", "", "the worker's name, for people; the host and the process unless given")
	f.DurationVar(&o.ttl, "ttl", 0, "give the work to another when nothing was heard from this worker for so long; 15s unless given")
	f.DurationVar(&o.grace, "grace", worker.DefaultGrace, "how long what runs may take to finish when the worker stops")
	return c
}

func (a *app) work(ctx context.Context, o workerOptions) error {
	o.log = slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: a.workLevel()}))
	slog.SetDefault(o.log)
	if o.name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "worker"
		}
		o.name = fmt.Sprintf("%s (pid %d)", host, os.Getpid())
	}
	b, err := a.backendWhenItIsThere(ctx, o.log)
	if err != nil {
		return err
	}
	atOnce, stop := context.WithCancel(context.Background())
	defer stop()
	go again(ctx, atOnce, stop)
	worked := make(chan error, 1)
	go func() { worked <- a.workOn(ctx, b, o) }()
	select {
	case err = <-worked:
	case <-atOnce.Done():
		return exitCode(130) // the supervisors end what they have started
	case <-failedOf(b):
		return fmt.Errorf("the store has failed, and everything stops here; see to the disk: %w", failureOf(b))
	}
	if err = closing(b, err); err == nil {
		o.log.Info("the worker has stopped", "name", o.name)
	}
	return err
}

// backendWhenItIsThere waits for a server that does not answer yet: workers and
// servers are started in any order.
func (a *app) backendWhenItIsThere(ctx context.Context, log *slog.Logger) (belay.Backend, error) {
	for said := false; ; said = true {
		b, err := a.backend(ctx, "belay worker")
		if err == nil || a.server == "" || belay.CodeOf(err) != belay.CodeUnavailable {
			return b, err
		}
		if !said {
			log.Warn("the server does not answer; trying until it does", "error", err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			log.Info("the worker has stopped; no server has answered", "error", err)
			return nil, exitCode(0) // a stop in order: there was nothing to give back
		}
	}
}

func (a *app) workLevel() slog.Level {
	if a.verbose {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

func (a *app) workOn(ctx context.Context, b belay.Backend, o workerOptions) error {
	w, err := builtins(ctx, b, a.data, o)
	if err != nil {
		return err
	}
	from := a.server
	if from == "" {
		from = a.url()
	}
	o.log.Info("the worker takes work", "from", from, "name", o.name, "concurrency", o.concurrency,
		"queues", strings.Join(o.queues, ","), "labels", labelText(o.labels), "kinds", agent.Workflow)
	return w.Run(ctx)
}

func labelText(labels map[string]string) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, k+"="+labels[k])
	}
	return strings.Join(all, ",")
}

// builtins is a worker for the built-in kinds, with workspaces below a data
// directory. What dead processes have left there is removed.
func builtins(ctx context.Context, b belay.Backend, data string, o workerOptions) (*worker.Worker, error) {
	dir, err := filepath.Abs(data)
	if err != nil {
		return nil, err
	}
	spaces, err := workspace.Open(filepath.Join(dir, "workspaces"))
	if err != nil {
		return nil, err
	}
	if err := spaces.Sweep(ctx, func(string) bool { return true }); err != nil {
		o.log.Warn("remove what earlier workers left", "error", err)
	}
	w := worker.New(&reported{Backend: b, log: o.log}, worker.Options{
		Name: o.name, Version: version, Concurrency: o.concurrency, Queues: o.queues, Labels: o.labels, TTL: o.ttl,
		Grace: o.grace, Unwind: o.unwind, Log: o.log,
	})
	runner := &agent.Runner{Workspaces: spaces}
	worker.Register(w, agent.Workflow, runner.Run)
	return w, nil
}
