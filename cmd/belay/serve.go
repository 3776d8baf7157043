package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/datadir"
	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/internal/server"
)

const serveLong = `Serve the engine of the data directory over HTTP: an API for clients, for workers on
other machines, and for owners from outside (programs that are no workers and lock an
execution), and a web UI at / for people.

Without any flags the server listens on 127.0.0.1:7420, requires no API key, and keeps
all data in ./belay-data. Other belay commands on this host use the server through the
data directory. On an address that other machines can reach, the server requires API
keys: see belay keys create. Jobs need a key even on this machine. If the server cannot
distinguish jobs from other processes, every caller needs a key.

With --store postgres://USER@HOST/DATABASE any number of servers share a database, and
a client may send each request to any of them. The password is in PGPASSWORD or
PGPASSFILE, or in the URL if BELAY_STORE or the configuration file has it.

Each flag can also be set in a YAML file that --config names, or in the environment:
--log-level is log: {level: …} in the file, and BELAY_LOG_LEVEL in the environment. A
flag overrides the environment, and the environment overrides the file. --check-config
prints the values that result, and all errors with which the server would not start.

SIGTERM or Ctrl-C starts a graceful shutdown, which ends within --grace. A second
SIGTERM or Ctrl-C stops the server at once.`

func (a *app) serveCommand() *cobra.Command {
	var file string
	var check bool
	var flags keyFlags
	c := &cobra.Command{
		Use: "serve", Short: "Serve the engine over HTTP", Long: serveLong, Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("server") {
				return usage("belay serve is the server; --server is for the other commands")
			}
			cfg, err := flags.load(c, a, file)
			if err != nil {
				return err
			}
			warnings, err := a.checkServe(c.Context(), cfg)
			if check {
				warn(slog.Default(), warnings)
				return errors.Join(a.showConfig(cfg.Values()), err)
			}
			if err != nil {
				return err
			}
			return a.serve(c.Context(), cfg, file, warnings)
		},
	}
	c.Flags().StringVar(&file, "config", envOr("BELAY_CONFIG", ""), "the configuration `file`, in YAML")
	c.Flags().BoolVar(&check, "check-config", false,
		"read the configuration, print each value and its source, report errors, and start nothing")
	flags.add(c, func(config.Key) bool { return true })
	_ = c.MarkFlagFilename("config", "yaml", "yml")
	_ = c.MarkFlagFilename("tls-cert")
	_ = c.MarkFlagFilename("tls-key")
	return c
}

// showConfig prints the values of the configuration and the source of each.
func (a *app) showConfig(values []config.Value) error {
	if a.output == "json" {
		return screen.PrintJSON(a.out, values)
	}
	t := screen.NewTable(a.out, "KEY", "VALUE", "FROM")
	for _, v := range values {
		t.Row(v.Key, v.Text, v.From)
	}
	return t.Flush()
}

func (a *app) serve(ctx context.Context, cfg *config.Config, file string, warnings []string) error {
	log := a.startLog(cfg)
	closeMemory(log)
	warn(log, warnings)
	if _, err := os.Stat("belay.yaml"); err == nil && file == "" {
		log.Info("this directory has a file belay.yaml, which belay reads only with --config belay.yaml")
	}
	s := serving{app: a, cfg: cfg, log: log, file: file}
	return s.run(ctx)
}

// serving is one call of belay serve: the engine, the server, and the workers for commands and
// agents that the configuration demands in this process.
type serving struct {
	app  *app
	cfg  *config.Config
	log  *slog.Logger
	file string
	// backend is the engine. close ends the engine and, for a data directory, its socket.
	backend *embedded.Backend
	close   func() error
	// agents is the setup of the agents that this process runs, or nil if it runs none; built makes
	// the workers of this process.
	agents *agent.Setup
	built  *builtins
}

func (s *serving) run(ctx context.Context) error {
	o := server.Options{
		Version: version, Commit: commit, Log: s.log, Ready: s.ready, Jobs: s.jobs, RunsForOthers: runsForOthers,
		Admit: s.admissions(),
	}
	var err error
	if o.Secrets, err = webhookSecrets(s.cfg, s.log); err != nil {
		return err
	}
	if o.Post, err = server.Post(s.cfg, s.log); err != nil {
		return err
	}
	if o.Triggers, err = server.Triggers(s.cfg, s.log); err != nil {
		return err
	}
	o.Traces = server.Traces(s.cfg, version, s.log)
	if s.cfg.Concurrency > 0 {
		o.Services = append(o.Services, s.work)
	}
	if err := errors.Join(s.addRequests(&o), s.addPublishing(&o)); err != nil {
		return err
	}
	if s.cfg.Agents() {
		if err := s.addAgents(&o); err != nil {
			return err
		}
	}
	srv := server.New(s.cfg, o)
	err = s.open(ctx, srv)
	if err != nil {
		return err
	}
	atOnce, stop := context.WithCancel(context.Background())
	defer stop()
	go stopOnSecondRequest(ctx, atOnce, stop)
	err = srv.Run(ctx, atOnce, s.backend)
	if atOnce.Err() != nil {
		return exitCode(130) // no need to close the backend: every acknowledged write is in the store
	}
	if s.backend.Failure() != nil {
		return err // return at once, since the results of running work could not be saved any more
	}
	if cerr := s.close(); err == nil {
		err = cerr
	}
	if err == nil {
		s.log.Info("belay has stopped")
	}
	return err
}

// open opens the store: a shared database, or the data directory. Other processes of this machine
// then use the data directory through this process.
func (s *serving) open(ctx context.Context, srv *server.Server) error {
	dir := s.cfg.DataDir()
	options := append(srv.Engine(), burial(dir)...)
	if s.cfg.Shared() {
		b, err := embedded.Open(ctx, s.cfg.StoreURL(), options...)
		if err != nil {
			return err
		}
		s.backend, s.close = b, b.Close
		return nil
	}
	host, err := datadir.OpenHost(ctx, dir, datadir.Options{
		Purpose: "belay serve", Version: version, Log: s.log, Engine: options, Handler: srv.Local, InJob: process.InJob,
	})
	if err != nil {
		return err
	}
	s.backend, s.close = host.Backend, host.Close
	return nil
}

// stopOnSecondRequest waits for the user's second request to stop, and then calls stop. The first
// request ends ctx. stopOnSecondRequest returns when over ends.
func stopOnSecondRequest(ctx, over context.Context, stop context.CancelFunc) {
	select {
	case <-ctx.Done():
	case <-over.Done():
		return
	}
	signals := make(chan os.Signal, 1)
	notify(signals)
	select {
	case <-signals:
		stop()
	case <-over.Done():
	}
}

// ready logs the address of the server and the most important settings.
func (s *serving) ready(at server.Listening) {
	keys := "needed"
	if at.Open {
		keys = "none needed"
	}
	facts := []any{"address", at.URL, "store", config.Shown(s.cfg.StoreURL()), "keys", keys, "pages", at.URL + "/"}
	if s.file != "" {
		facts = append(facts, "config", s.file)
	}
	if s.cfg.Concurrency > 0 {
		facts = append(facts, "concurrency", s.cfg.Concurrency)
	}
	if len(s.cfg.Broker.Queues) > 0 {
		facts = append(facts, "broker", config.Shown(s.cfg.Broker.URL),
			"queues", strings.Join(s.cfg.Broker.Queues, ","))
	}
	if s.cfg.HTTP.Concurrency > 0 {
		facts = append(facts, "requests", s.cfg.HTTP.Concurrency)
	}
	switch {
	case s.cfg.Agents() && s.cfg.Agent.Local:
		facts = append(facts, "agents", s.cfg.Agent.Concurrency)
	case s.cfg.Agents():
		facts = append(facts, "agents", "left to workers")
	}
	s.log.Info("belay serves", facts...)
}

func (s *serving) builtins() *builtins {
	return &builtins{
		backend: s.backend, cfg: s.cfg, dir: s.cfg.DataDir(), log: s.log, name: fmt.Sprintf("belay serve (pid %d)",
			os.Getpid()),
		ttl: s.cfg.Worker.TTL, heartbeat: s.cfg.Worker.Heartbeat,
		secrets: []string{s.app.keyFile}, grace: s.cfg.Grace * 2 / 3, unwind: max(s.cfg.Grace/4, time.Second),
	}
}

// work runs the worker for commands in this process. When ctx ends, the worker stops, and work
// returns before the server's grace period is over.
func (s *serving) work(ctx context.Context) error {
	if err := s.built.commands(ctx, s.cfg.Concurrency).Run(ctx); err != nil {
		return err
	}
	s.drained(ctx, "commands")
	return nil
}

// drained waits for the end of the server after one of the server's own workers has stopped,
// because an operator who drains such a worker does not want the server to end.
func (s *serving) drained(ctx context.Context, what string) {
	if ctx.Err() == nil {
		s.log.Warn("a worker inside this server was drained; the worker runs nothing until the server is started again",
			"worker", what)
	}
	<-ctx.Done()
}
