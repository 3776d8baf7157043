package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/httptask"
	"github.com/belaydev/belay/worker"
)

const workerLong = `Claim executions of the built-in workflows and run them on this machine.

With --server or BELAY_SERVER the worker claims executions from a server. For that it
needs an API key with the scope worker, in BELAY_KEY or --key-file, even if the server
is on the same machine. Without a server the worker claims executions from the data
directory. In both cases workspaces are made below the data directory.

The built-in workflows are:
  command   one or several commands in a new workspace, as belay run and belay submit
            command submit them
  agent     a prompt for the configured agent. Without a configured agent the worker
            runs only commands. With --concurrency 0 it runs no commands.
  http      an HTTP request, if --http-concurrency is set

If the server dispatches queues through RabbitMQ, set BELAY_BROKER_URL: the worker then
learns from RabbitMQ which executions it gets, and claims them from the server if it
cannot reach RabbitMQ.

The flags that begin with --agent, the environment and the file that --config names
mean the same as for belay serve. Three kinds of settings apply to commands too: the
system users of jobs (--agent-users), the read-only files outside of the workspace
(--agent-seal), and the limits of processes, CPU, memory and disk. If the worker runs as
root, each job has a system user of its own and can write only to its workspace. The log
says at the start how jobs are isolated.

While the server cannot be reached, runs continue until their lease is nearly over; then
they are frozen, and continue when the server answers again. Ctrl-C or SIGTERM starts a
graceful shutdown: the worker claims nothing more, and its runs may finish within
--grace. Then it stops and releases the other runs, and other workers continue them. A
second Ctrl-C or SIGTERM stops everything at once.`

// workerOptions are the flags of belay worker and the state that the command derives from them.
type workerOptions struct {
	file, name            string
	health, healthCheck   string
	check                 bool
	concurrency           int
	queues                []string
	labels                map[string]string
	ttl, grace, heartbeat time.Duration
	cfg                   *config.Config
	warnings              []string
	log                   *slog.Logger
}

// ofServers are the configuration keys about agents that only a server uses.
var ofServers = []string{
	"agent.chat_timeout", "agent.max_queue_depth", "agent.job_ttl", "agent.max_attempts", "agent.dead_letters",
	"agent.on_lost", "agent.local",
}

// ofWorkers reports whether a worker uses a configuration key.
func ofWorkers(key string) bool {
	return (strings.HasPrefix(key, "agent.") || strings.HasPrefix(key, "http.") || strings.HasPrefix(key, "secrets.") ||
		strings.HasPrefix(key, "log.") || key == "broker.url" || ofSession(key)) &&
		!slices.Contains(ofServers, key)
}

// ofSession reports whether a configuration key is about the session of a worker. belay worker has
// flags of its own for these keys: --ttl and --heartbeat.
func ofSession(key string) bool { return strings.HasPrefix(key, "worker.") }

func (a *app) workerCommand() *cobra.Command {
	var o workerOptions
	var labels []string
	var flags keyFlags
	c := &cobra.Command{
		Use: "worker", Short: "Run executions of the built-in workflows on this machine", Long: workerLong, Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.labels, err = pairs("label", labels); err != nil {
				return err
			}
			if o.cfg, err = flags.load(c, a, o.file); err != nil {
				return err
			}
			if err := o.complete(c, a); err != nil {
				return err
			}
			warnings, err := a.checkWorker(o.cfg)
			if o.check {
				warn(slog.Default(), warnings)
				return errors.Join(a.showConfig(slices.DeleteFunc(o.cfg.Values(), func(v config.Value) bool {
					return !ofWorkers(v.Key)
				})), err)
			}
			if err != nil {
				return err
			}
			o.warnings = warnings
			return a.work(c.Context(), o)
		},
	}
	f := c.Flags()
	f.IntVar(&o.concurrency, "concurrency", worker.DefaultConcurrency,
		"how many commands the worker runs at the same time; 0 means that it runs none")
	f.StringArrayVar(&labels, "label", nil, "a label of the worker, as `name=value`, which executions can require; "+
		"may be repeated")
	f.StringSliceVar(&o.queues, "queue", nil, "claim executions from this `queue`; may be repeated; by default the "+
		"queue named default")
	f.StringVar(&o.name, "name", "",
		"a name of the worker that people can read; by default the host name and the process id")
	f.DurationVar(&o.ttl, "ttl", 0, "the time without a heartbeat after which the server gives the worker's "+
		"executions to other workers; 0 means 15s")
	f.DurationVar(&o.heartbeat, "heartbeat", 0, "the interval between the worker's heartbeats; 0 means a third of "+
		"--ttl; with a heartbeat and without --ttl, the ttl is three heartbeats")
	f.DurationVar(&o.grace, "grace", worker.DefaultGrace, "how long runs may take to finish when the worker stops")
	f.StringVar(&o.file, "config", envOr("BELAY_CONFIG", ""),
		"the configuration `file`, in YAML; it may be the file of a server")
	f.BoolVar(&o.check, "check-config", false,
		"read the configuration, print each value and its source, report errors, and start nothing")
	f.StringVar(&o.health, "health", "", "answer health probes at this `address`, HOST:PORT or :PORT: GET /healthz has "+
		"the status 200 while the worker is well. The server probes the address and gives the worker no new work "+
		"while the probes fail")
	f.StringVar(&o.healthCheck, "health-check", "", "a `command` for the shell; while it fails, or takes longer than "+
		"two seconds, health probes fail and show the last line of its output")
	flags.add(c, func(k config.Key) bool { return ofWorkers(k.Name) && !ofSession(k.Name) })
	_ = c.MarkFlagFilename("config", "yaml", "yml")
	return c
}

// complete takes from the configuration the options that the command line leaves out, and checks
// the options.
func (o *workerOptions) complete(c *cobra.Command, a *app) error {
	typed := c.Flags().Changed
	if o.cfg.From("concurrency") != "default" && !typed("concurrency") {
		o.concurrency = o.cfg.Concurrency
	}
	if o.cfg.From("grace") != "default" && !typed("grace") {
		o.grace = o.cfg.Grace
	}
	if !typed("ttl") {
		o.ttl = o.cfg.Worker.TTL
	}
	if !typed("heartbeat") {
		o.heartbeat = o.cfg.Worker.Heartbeat
	}
	if o.cfg.From("http.concurrency") == "default" {
		o.cfg.HTTP.Concurrency = 0 // a worker may have other secrets and another network than the servers
	}
	if o.grace <= 0 {
		o.grace = -1 // for package worker, 0 would mean its default
	}
	a.data = o.cfg.DataDir()
	// Listen is the server's address here, because the proxy of a job refuses connections to
	// Listen.
	if u, err := url.Parse(a.server); err == nil && u.Host != "" {
		o.cfg.Listen = net.JoinHostPort(u.Hostname(),
			cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]))
	}
	switch {
	case o.concurrency < 0 || o.concurrency > 10_000:
		return usage("--concurrency is %d; it can be 0 to 10000", o.concurrency)
	case o.concurrency == 0 && !o.cfg.Agents() && o.cfg.HTTP.Concurrency == 0:
		return usage("with --concurrency 0 the worker runs no commands, and nothing else is configured: use " +
			"--agent-command, --agent-preset or --http-concurrency")
	case o.healthCheck != "" && o.health == "":
		return usage("--health-check needs an address for health probes: use --health, such as --health :9090")
	case o.cfg.Shared() && a.server == "":
		return usage("a worker connects to a server, not to a database; name a server of this database with --server")
	}
	return nil
}

func (a *app) work(ctx context.Context, o workerOptions) error {
	o.log = a.startLog(o.cfg)
	closeMemory(o.log)
	warn(o.log, o.warnings)
	if o.name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "worker"
		}
		o.name = fmt.Sprintf("%s (pid %d)", host, os.Getpid())
	}
	b, err := a.waitForBackend(ctx, o.log)
	if err != nil {
		return err
	}
	atOnce, stop := context.WithCancel(context.Background())
	defer stop()
	go stopOnSecondRequest(ctx, atOnce, stop)
	worked := make(chan error, 1)
	go func() { worked <- a.workOn(ctx, b, o) }()
	select {
	case err = <-worked:
	case <-atOnce.Done():
		return exitCode(130) // the supervisors of the jobs kill the jobs' processes
	case <-failedOf(b):
		return fmt.Errorf("the store has failed, so the worker stops; check the disk: %w", failureOf(b))
	}
	if err = closing(b, err); err == nil {
		o.log.Info("the worker has stopped", "name", o.name)
	}
	return err
}

// waitForBackend connects to the server. It waits for a server that does not answer yet, since
// workers and servers may be started in any order.
func (a *app) waitForBackend(ctx context.Context, log *slog.Logger) (belay.Backend, error) {
	for said := false; ; said = true {
		b, err := a.backend(ctx, "belay worker")
		if err == nil || a.server == "" || belay.CodeOf(err) != belay.CodeUnavailable {
			return b, err
		}
		if !said {
			log.Warn("the server does not answer; the worker tries again until it does", "error", err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			log.Info("the worker has stopped; no server has answered", "error", err)
			return nil, exitCode(0) // this is a graceful stop, with no runs to release
		}
	}
}

// workOn runs commands, agents and HTTP requests at the same time, each kind with a worker of its own,
// until all workers have stopped.
func (a *app) workOn(ctx context.Context, b belay.Backend, o workerOptions) error {
	dir, err := filepath.Abs(a.data)
	if err != nil {
		return err
	}
	all := &builtins{
		backend: b, cfg: o.cfg, dir: dir, log: o.log, name: o.name,
		secrets: []string{a.keyFile}, queues: o.queues, labels: o.labels, ttl: o.ttl,
		heartbeat: o.heartbeat, grace: o.grace, broker: o.cfg.Broker.URL,
		unwind: time.Minute,
	}
	if all.health, err = o.listenHealth(); err != nil {
		return err
	}
	if all.health != nil {
		defer all.health.Close()
	}
	var setup *agent.Setup
	if o.cfg.Agents() {
		s, err := agentSetup(o.cfg, false)
		if err != nil {
			return err
		}
		setup = &s
	}
	if err := all.prepare(ctx, o.concurrency, setup); err != nil {
		return err
	}
	var workers []*worker.Worker
	var kinds []string
	facts := []any{"from", cmp.Or(a.server, a.url()), "name", o.name, "queues", strings.Join(o.queues, ","), "labels",
		labelText(o.labels)}
	if o.concurrency > 0 {
		w := all.commands(ctx, o.concurrency)
		workers, kinds, facts = append(workers, w), append(kinds, agent.Workflow), append(facts, "concurrency",
			o.concurrency)
	}
	if setup != nil {
		w, over := all.agents(ctx, *setup)
		defer over()
		workers, kinds, facts = append(workers, w), append(kinds, agent.Prompted),
			append(facts, "agents", o.cfg.Agent.Concurrency)
	}
	if n := o.cfg.HTTP.Concurrency; n > 0 {
		w, err := all.requests(n)
		if err != nil {
			return err
		}
		workers, kinds, facts = append(workers, w), append(kinds, httptask.Workflow), append(facts, "requests", n)
	}
	o.log.Info("the worker takes work", append(facts, "kinds", strings.Join(kinds, ","))...)
	return together(ctx, workers)
}

// together runs workers until all have stopped. If one worker fails, together stops the others.
func together(ctx context.Context, workers []*worker.Worker) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ends := make(chan error, len(workers))
	for _, w := range workers {
		go func() { ends <- w.Run(ctx) }()
	}
	var all error
	for range workers {
		err := <-ends
		if err != nil {
			stop()
		}
		all = errors.Join(all, err)
	}
	return all
}

func labelText(labels map[string]string) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, k+"="+labels[k])
	}
	return strings.Join(all, ",")
}
