package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/datadir"
	"github.com/belaydev/belay/internal/server"
)

const serveLong = `Serve the engine of the data directory over HTTP: to clients, to workers on other
machines, to owners from outside, and to people at /.

Without any flags it listens on 127.0.0.1:7420, wants no key, and keeps all in
./belay-data. Other belay commands on this host reach it through the directory. On
an address that others can reach it wants keys: belay keys create.

With --store postgres://USER@HOST/DATABASE any number of servers share a database,
and any of them may be asked for anything. The password is in PGPASSWORD or
PGPASSFILE, or in the address where that stands in BELAY_STORE or in the file.

Each flag can also stand in a YAML file that --config names, or in the environment:
--log-level is log: {level: …} in the file, and BELAY_LOG_LEVEL. Flags outweigh the
environment, and that outweighs the file. --check-config shows what counts.

SIGTERM or Ctrl-C stops it in order within the grace; a second one at once.`

// keyFlag is the flag of a key of the configuration. What it says is checked
// together with what all others say.
type keyFlag struct {
	key  config.Key
	text string
	set  bool
}

func (f *keyFlag) String() string { return f.text }
func (f *keyFlag) Type() string   { return f.key.Type() }

// Set notes what was typed.
func (f *keyFlag) Set(text string) error {
	f.text, f.set = text, true
	return nil
}

func (a *app) serveCommand() *cobra.Command {
	var file string
	var check bool
	flags := make(map[string]*keyFlag)
	c := &cobra.Command{
		Use: "serve", Short: "Serve the engine over HTTP", Long: serveLong, Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("server") {
				return usage("belay serve is the server; --server is for the other commands")
			}
			sources := config.Sources{File: file, Environ: os.Environ(), Flags: make(map[string]string)}
			for name, f := range flags {
				if f.set {
					sources.Flags[name] = f.text
				}
			}
			if c.Flags().Changed("data") {
				sources.Flags["data"] = a.data
			}
			cfg, err := config.Load(sources)
			if err != nil {
				return fmt.Errorf("the configuration has errors:\n%w", err)
			}
			if check {
				return a.showConfig(cfg)
			}
			return a.serve(c.Context(), cfg, file)
		},
	}
	c.Flags().StringVar(&file, "config", envOr("BELAY_CONFIG", ""), "the configuration `file`, in YAML")
	c.Flags().BoolVar(&check, "check-config", false, "read the configuration, show what counts and what set it, and start nothing")
	for _, k := range config.Keys() {
		if k.Name == "data" {
			continue // every command has it
		}
		flags[k.Name] = &keyFlag{key: k, text: k.Default()}
		f := c.Flags().VarPF(flags[k.Name], k.Flag(), "", flagDoc(k.Doc))
		if k.IsBool() {
			f.NoOptDefVal = "true"
		}
	}
	_ = c.MarkFlagFilename("config", "yaml", "yml")
	_ = c.MarkFlagFilename("tls-cert")
	_ = c.MarkFlagFilename("tls-key")
	_ = c.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions([]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// flagDoc writes a sentence as flags are described.
func flagDoc(sentence string) string {
	return strings.ToLower(sentence[:1]) + strings.TrimSuffix(sentence[1:], ".")
}

// showConfig prints what counts and what said so.
func (a *app) showConfig(cfg *config.Config) error {
	values := cfg.Values()
	if a.output == "json" {
		return printJSON(a.out, values)
	}
	t := newTable(a.out, "KEY", "VALUE", "FROM")
	for _, v := range values {
		t.row(v.Key, v.Text, v.From)
	}
	return t.Flush()
}

func (a *app) serve(ctx context.Context, cfg *config.Config, file string) error {
	log := newLog(a.err, cfg, a.verbose)
	slog.SetDefault(log)
	for _, w := range config.Misspelt(os.Environ()) {
		log.Warn("an environment variable is not used", "why", w)
	}
	if _, err := os.Stat("belay.yaml"); err == nil && file == "" {
		log.Info("there is a belay.yaml here; it counts with --config belay.yaml")
	}
	s := serving{app: a, cfg: cfg, log: log, file: file}
	return s.run(ctx)
}

func newLog(to io.Writer, cfg *config.Config, verbose bool) *slog.Logger {
	o := &slog.HandlerOptions{Level: cfg.Log.Level}
	if verbose && cfg.From("log.level") == "default" {
		o.Level = slog.LevelDebug
	}
	if cfg.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(to, o))
	}
	return slog.New(slog.NewTextHandler(to, o))
}

// serving is a belay serve: the engine, the server, and a worker if one is wanted.
type serving struct {
	app  *app
	cfg  *config.Config
	log  *slog.Logger
	file string
	// backend is the engine, and close ends it and what serves it beside.
	backend *embedded.Backend
	close   func() error
}

func (s *serving) run(ctx context.Context) error {
	o := server.Options{Version: version, Commit: commit, Log: s.log, Ready: s.ready}
	if s.cfg.Concurrency > 0 {
		o.Services = append(o.Services, s.work)
	}
	if s.cfg.Agents() {
		if err := s.addAgents(&o); err != nil {
			return err
		}
	}
	srv := server.New(s.cfg, o)
	err := s.open(ctx, srv)
	if err != nil {
		return err
	}
	atOnce, stop := context.WithCancel(context.Background())
	defer stop()
	go again(ctx, atOnce, stop)
	err = srv.Run(ctx, atOnce, s.backend)
	if atOnce.Err() != nil {
		return exitCode(130) // the next process finds everything that was answered
	}
	if s.backend.Failure() != nil {
		return err // at once: waiting for what cannot be kept helps nobody
	}
	if cerr := s.close(); err == nil {
		err = cerr
	}
	if err == nil {
		s.log.Info("belay has stopped")
	}
	return err
}

// open opens the store: a database that it shares, or the data directory, which
// it then hosts for other processes on this machine.
func (s *serving) open(ctx context.Context, srv *server.Server) error {
	dir := s.cfg.DataDir()
	options := append(srv.Engine(), embedded.Bury(buryBelow(dir)))
	if s.cfg.Shared() {
		b, err := embedded.Open(ctx, s.cfg.StoreURL(), options...)
		if err != nil {
			return err
		}
		s.backend, s.close = b, b.Close
		return nil
	}
	host, err := datadir.OpenHost(ctx, dir, datadir.Options{
		Purpose: "belay serve", Version: version, Log: s.log, Engine: options, Handler: srv.Local,
	})
	if err != nil {
		return err
	}
	s.backend, s.close = host.Backend, host.Close
	return nil
}

// again waits for the second request to stop. The first has ended ctx.
func again(ctx, over context.Context, stop context.CancelFunc) {
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

// ready says where the server is.
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
	if s.cfg.Agents() {
		facts = append(facts, "agents", s.cfg.Agent.Concurrency)
	}
	s.log.Info("belay serves", facts...)
}

// work runs built-in kinds in this process, and stops well within the grace.
func (s *serving) work(ctx context.Context) error {
	w, err := builtins(ctx, s.backend, s.cfg.DataDir(), workerOptions{
		name: fmt.Sprintf("belay serve (pid %d)", os.Getpid()), concurrency: s.cfg.Concurrency,
		grace: s.cfg.Grace * 2 / 3, unwind: max(s.cfg.Grace/4, time.Second), log: s.log,
	})
	if err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	if err := w.Run(ctx); err != nil {
		return err
	}
	s.drained(ctx, "commands")
	return nil
}

// drained waits for the end of the server whose worker was drained: who may drain a
// worker ends no server by it.
func (s *serving) drained(ctx context.Context, what string) {
	if ctx.Err() == nil {
		s.log.Warn("a worker of the server's own was drained and runs nothing more until the server is started again", "worker", what)
	}
	<-ctx.Done()
}
