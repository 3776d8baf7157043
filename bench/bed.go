package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/belaydev/belay/bench/jobs"
	"github.com/belaydev/belay/bench/trial"
	"github.com/belaydev/belay/internal/testkit/mqtest"
)

// bed is the test bed: the directory, the database and the programs that the trials (measurements
// of one contender each) need.
type bed struct {
	dir      string
	self     string
	postgres *postgres
	rabbit   *mqtest.Server
	without  map[string]error // why a store or a contender is not available
	belay    string           // the path of the binary
	unserved error            // why there is no binary
	temporal string           // the path of the program of module temporal
	before   string           // the path of the bench program of another revision
	repo     string           // the path of the repository on which agents' jobs work
	profile  string
	next     int
}

// open prepares what the trials need. If a store or contender is not available, its trials are
// skipped with the reason.
func open(ctx context.Context, o options) (*bed, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "belay-bench-")
	if err != nil {
		return nil, err
	}
	b := &bed{
		dir: dir, self: self, without: make(map[string]error), belay: o.belay, temporal: o.temporal,
		before: o.before, profile: o.profile,
	}
	if b.any(o, served) && o.belay == "" {
		b.belay = filepath.Join(dir, "belay")
		if err := build(ctx, "..", b.belay, "./cmd/belay"); err != nil {
			b.unserved, b.belay = err, ""
		}
	}
	if b.uses("repo", o) {
		if b.repo, err = source(ctx, dir); err != nil {
			b.without["repo"] = err
		}
	}
	if b.uses("postgres", o) {
		if b.postgres, err = startPostgres(); err != nil {
			b.without["postgres"] = err
		}
	}
	if b.any(o, func(p planned) bool { return p.Variant == trial.Rabbit }) {
		if b.rabbit, err = mqtest.Open(); err != nil {
			b.without["rabbitmq"] = err
		}
	}
	if b.needs("temporal", o) && o.temporal == "" {
		if b.temporal, err = buildTemporal(ctx, dir); err != nil {
			b.without["temporal"] = err
		}
	}
	return b, nil
}

// source makes the git repository on which the jobs of coding agents work, in a directory that
// other users can read.
func source(ctx context.Context, dir string) (string, error) {
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // other users may enter dir but not list it
		return "", err
	}
	repo := filepath.Join(dir, "repo.git")
	files, err := jobs.Source(ctx, repo)
	if err == nil {
		say("the repository of the jobs has %d files", files)
	}
	return repo, err
}

// any reports whether there is a requested trial whose store is available and for which match
// returns true.
func (b *bed) any(o options, match func(planned) bool) bool {
	return slices.ContainsFunc(o.wanted(plan(o)), func(p planned) bool { return b.without[p.store] == nil && match(p) })
}

// needs reports whether a requested trial measures the given contender.
func (b *bed) needs(who string, o options) bool {
	return b.any(o, func(p planned) bool { return p.Contender == who })
}

// uses reports whether a requested trial uses a store.
func (b *bed) uses(store string, o options) bool {
	return b.any(o, func(p planned) bool { return p.store == store })
}

// served reports whether a trial starts a Belay server and so needs the binary of belay.
func served(p planned) bool {
	return p.Contender == "belay" && (p.Variant == trial.HTTP || p.Variant == trial.Three || p.Measure == trial.Jobs)
}

func (b *bed) close() {
	if b.postgres != nil {
		b.postgres.close()
	}
	if b.rabbit != nil {
		_ = b.rabbit.Close() // its shell removes what is left
	}
	_ = os.RemoveAll(b.dir)
}

// trials returns the requested trials of one round.
func (b *bed) trials(o options) []planned {
	all := o.wanted(plan(o))
	if o.before == "" {
		return all
	}
	var both []planned
	for _, p := range all {
		both = append(both, p)
		if p.comparable() {
			p.before = true
			both = append(both, p)
		}
	}
	return both
}

// sample is the result of a trial.
type sample trial.Sample

// run carries out a trial. If the trial fails, the error is in the sample.
func (b *bed) run(ctx context.Context, p planned) sample {
	if served(p) && b.unserved != nil {
		return sample{Error: b.unserved.Error()}
	}
	for _, what := range []string{p.store, p.Contender, string(p.Variant)} {
		if err := b.without[what]; err != nil {
			return sample{Error: err.Error()}
		}
	}
	s, err := b.try(ctx, p)
	if err != nil && s.Error == "" {
		s.Error = err.Error()
	}
	return sample(s)
}

func (b *bed) try(ctx context.Context, p planned) (trial.Sample, error) {
	b.next++
	r := p.Request
	r.Dir = filepath.Join(b.dir, fmt.Sprint(b.next))
	mode := os.FileMode(0o700)
	if p.store == "repo" {
		mode = 0o711 // the users of jobs must be able to pass through the directory
	}
	if err := os.Mkdir(r.Dir, mode); err != nil {
		return trial.Sample{}, err
	}
	defer os.RemoveAll(r.Dir) //nolint:errcheck // a temporary directory
	if b.profile != "" && r.Contender == "belay" {
		r.Profile = filepath.Join(b.profile, strings.ReplaceAll(p.name(), "/", "-")+".pprof")
	}
	r.URL, r.Belay, r.Repo = "sqlite:"+r.Dir, b.belay, b.repo
	if p.store == "postgres" {
		name := fmt.Sprintf("trial_%d", b.next)
		drop, err := b.postgres.create(name)
		if err != nil {
			return trial.Sample{}, err
		}
		defer drop()
		r.URL, r.Tools, r.Database = b.postgres.url(name), b.postgres.tools(), b.postgres.pid()
	}
	if p.Variant == trial.Rabbit {
		r.Broker = b.rabbit.URL("/")
	}
	if p.Measure == trial.Parked {
		beside, drop, err := b.beside(p, r.Dir)
		if err != nil {
			return trial.Sample{}, err
		}
		defer drop()
		r.Beside = beside
	}
	program, arg := b.self, "trial"
	switch {
	case p.before:
		program = b.before
	case r.Contender == "temporal":
		program = b.temporal
	}
	return ask(ctx, exec.CommandContext(ctx, program, arg), r)
}

// beside makes a second empty store for a trial, and returns its address.
func (b *bed) beside(p planned, dir string) (url string, drop func(), err error) {
	if p.store != "postgres" {
		return "sqlite:" + filepath.Join(dir, "beside"), func() {}, nil
	}
	name := fmt.Sprintf("trial_%d_beside", b.next)
	drop, err = b.postgres.create(name)
	return b.postgres.url(name), drop, err
}

// patience is how long a trial may take. A trial of jobs may take longer, because each job of a
// coding agent waits for its model, and if the jobs run one at a time, these waits add up. A trial of
// pages first fills a large store.
func patience(m trial.Measure) time.Duration {
	if m == trial.Jobs || m == trial.Pages {
		return 40 * time.Minute
	}
	return 10 * time.Minute
}

// ask starts a program, sends the request for a trial to its standard input, and reads the sample
// from its standard output.
func ask(ctx context.Context, cmd *exec.Cmd, r trial.Request) (trial.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, patience(r.Measure))
	defer cancel()
	in, err := json.Marshal(r)
	if err != nil {
		return trial.Sample{}, err
	}
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(append(in, '\n')), &out, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 15 * time.Second
	stop := context.AfterFunc(ctx, func() { _ = cmd.Cancel() })
	defer stop()
	if err := cmd.Run(); err != nil {
		return trial.Sample{}, errors.Join(fmt.Errorf("the trial's process: %w", err), context.Cause(ctx))
	}
	var s trial.Sample
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		return s, fmt.Errorf("read the output of the trial's process: %w", err)
	}
	if s.Error != "" {
		return s, errors.New(s.Error)
	}
	return s, nil
}

// buildTemporal builds the module temporal: its own program, and in the same directory Temporal's
// server and the tool that makes Temporal's tables.
func buildTemporal(ctx context.Context, dir string) (string, error) {
	const module = "temporal"
	if _, err := os.Stat(filepath.Join(module, "go.mod")); err != nil {
		return "", fmt.Errorf("find the sources of module temporal: %w", err)
	}
	say("building Temporal, which takes minutes the first time")
	out := filepath.Join(dir, "bin")
	if err := os.Mkdir(out, 0o700); err != nil {
		return "", err
	}
	for name, pkg := range map[string]string{
		"bench-temporal": ".", "temporal-server": "go.temporal.io/server/cmd/server",
		"temporal-sql-tool": "go.temporal.io/server/cmd/tools/sql",
	} {
		if err := build(ctx, module, filepath.Join(out, name), pkg); err != nil {
			return "", err
		}
	}
	return filepath.Join(out, "bench-temporal"), nil
}

// build builds the package pkg of a module as the program path, with the flags with which releases
// are built.
func build(ctx context.Context, module, path, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-o", path, pkg)
	cmd.Dir, cmd.Env = module, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, strings.Join(strings.Fields(string(text)), " "))
	}
	return nil
}
