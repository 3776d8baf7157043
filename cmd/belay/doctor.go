package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/datadir"
	"github.com/belaydev/belay/internal/host"
	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/internal/socket"
)

// finding is the result of one check of belay doctor.
type finding struct {
	// The name of the thing that was checked.
	What string `json:"what"`
	// How is the verdict: ok, warn or bad.
	How    string `json:"how"`
	Detail string `json:"detail"`
}

func (a *app) doctorCommand() *cobra.Command {
	return a.readFlag(&cobra.Command{
		Use: "doctor", Short: "Check this machine and the data directory, the server or the database", Args: none,
		Long: "Check what Belay needs on this machine and whether the data directory is sound,\nor, with " +
			"--server, whether the server answers, or, with --store, whether the database\nof the servers can be " +
			"read. Doctor changes nothing. The exit code is 69 if a check\nhas the result bad.",
		RunE: func(c *cobra.Command, _ []string) error {
			d := &doctor{app: a}
			d.machine(c.Context())
			switch {
			case a.store != "":
				d.shared(c.Context())
			case a.server != "":
				d.server(c.Context())
			default:
				d.directory(c.Context())
			}
			return d.report()
		},
	})
}

type doctor struct {
	app      *app
	findings []finding
}

func (d *doctor) add(what, how, format string, args ...any) {
	d.findings = append(d.findings, finding{what, how, fmt.Sprintf(format, args...)})
}

// machine checks what Belay needs on this machine to run commands.
func (d *doctor) machine(ctx context.Context) {
	if out, err := exec.CommandContext(ctx, "git", "version").Output(); err != nil {
		d.add("git", "warn", "not found: jobs cannot work on a repository")
	} else {
		d.add("git", "ok", "%s", strings.TrimSpace(string(out)))
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := process.Run(ctx, process.Command{
		ID: fmt.Sprintf("doctor-%d", os.Getpid()), Args: []string{"true"}, Dir: "/", Inherit: process.Basics(),
	})
	switch {
	case err != nil:
		d.add("isolation", "bad", "a command cannot be supervised: %v", err)
	case r.Isolation == process.Subreaper:
		d.add("isolation", "warn", "%s: a job can kill its supervisor, unless belay runs as root or the machine "+
			"allows user namespaces", r.Isolation)
	default:
		d.add("isolation", "ok", "%s, frozen by %s", r.Isolation, r.Freezer)
	}
	if _, err := host.Self(); err != nil {
		d.add("proof of death", "warn", "this process cannot be identified (%v), so the executions of a dead worker "+
			"are taken back only after its TTL, not at once", err)
	} else {
		d.add("proof of death", "ok", "boot id, PID namespace and start time of processes can be read")
	}
}

// directory checks the data directory.
func (d *doctor) directory(ctx context.Context) {
	dir, err := filepath.Abs(d.app.data)
	if err != nil {
		d.add("data directory", "bad", "%v", err)
		return
	}
	info, err := os.Stat(dir)
	if err != nil {
		d.add("data directory", "ok", "%s does not exist yet; `belay run` makes it", dir)
		return
	}
	if err := socket.Check(dir); err != nil {
		d.add("data directory", "bad", "%v", err)
	} else if mode := info.Mode().Perm(); mode&0o077 != 0 {
		d.add("data directory", "warn", "%s has mode %#o: other users of this machine can read it; to prevent that: "+
			"chmod 700 %s", dir, mode, dir)
	} else {
		d.add("data directory", "ok", "%s", dir)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil {
		free := fs.Bavail * uint64(fs.Bsize)
		how := "ok"
		if free < 1<<30 {
			how = "warn"
		}
		d.add("disk", how, "%.1f GiB free", float64(free)/(1<<30))
	}
	d.engine(ctx, dir)
	r, err := d.app.openReader(ctx)
	if err == nil {
		defer r.Close()
		err = d.database(ctx, r)
	}
	switch {
	case err == nil:
	case belay.CodeOf(err) == belay.CodeNotFound:
		d.add("database", "ok", "does not exist yet")
	default:
		d.add("database", "bad", "%v", err)
	}
}

// engine checks whether an engine runs on the data directory and, if so, whether it takes work.
func (d *doctor) engine(ctx context.Context, dir string) {
	holder := embedded.Holder(dir)
	if holder == "" {
		d.add("engine", "ok", "no engine runs on the directory")
		return
	}
	holder = strings.TrimSuffix(holder, "; wait for it, or use another with --data")
	d.add("engine", "ok", "%s", holder)
	notes, err := datadir.Ready(ctx, dir, datadir.Options{InJob: process.InJob, Patience: time.Second})
	d.ready("the engine takes work", notes, err)
}

// ready adds the findings of an engine's readiness check.
func (d *doctor) ready(fine string, notes []string, err error) {
	var e *belay.Error
	switch {
	case err == nil:
		d.add("ready", "ok", "%s", fine)
	case errors.As(err, &e):
		d.add("ready", "bad", "%s", screen.Line(e.Message))
	default:
		d.add("ready", "bad", "%s", screen.Line(err.Error()))
	}
	for _, n := range notes {
		d.add("note", "warn", "%s", screen.Line(n))
	}
}

// server checks whether the server answers, and whether the API key has the right to read.
func (d *doctor) server(ctx context.Context) {
	b, err := d.app.dial(ctx)
	if err != nil {
		d.add("server", "bad", "%v", err)
		return
	}
	defer b.Close()
	d.add("server", "ok", "%s answers", screen.Line(d.app.server))
	notes, err := b.Ready(ctx)
	d.ready("the server takes work", notes, err)
	workers, err := b.Workers(ctx)
	if err != nil {
		d.add("workers", "bad", "%v", err)
		return
	}
	n := 0
	for i := range workers {
		if !workers[i].State.Ended() {
			n++
		}
	}
	d.add("workers", "ok", "%s connected", screen.Plural(n, "worker"))
}

// shared checks a database that servers share. It reads the database itself and connects to no
// server.
func (d *doctor) shared(ctx context.Context) {
	r, err := embedded.OpenReader(ctx, d.app.store)
	if err != nil {
		d.add("database", "bad", "%s: %s", config.Shown(d.app.store), screen.Line(err.Error()))
		return
	}
	defer r.Close()
	if err := d.database(ctx, r); err != nil {
		d.add("database", "bad", "%s", screen.Line(err.Error()))
	}
}

// database checks the SQLite file for damage, and counts its contents.
func (d *doctor) database(ctx context.Context, r *embedded.Reader) error {
	version, damage, err := r.Check(ctx)
	if err != nil {
		return err
	}
	switch {
	case len(damage) > 0:
		d.add("database", "bad", "damaged: %s", strings.Join(damage, "; "))
	case d.app.store != "":
		d.add("database", "ok", "%s can be read, and has the tables of this version", config.Shown(d.app.store))
	default:
		d.add("database", "ok", "sound (SQLite %s)", version)
	}
	c, err := r.Counts(ctx)
	if err != nil {
		return err
	}
	var parts []string
	for s := belay.Pending; s <= belay.Cancelled; s++ {
		if n := c.Executions[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	if len(parts) == 0 {
		parts = []string{"none"}
	}
	d.add("executions", "ok", "%s; %d runs, %d checkpoints, %d open dead letters", strings.Join(parts, ", "), c.Runs,
		c.Checkpoints, c.DeadLetters)
	running := d.app.store == "" && embedded.Holder(d.app.data) != ""
	if !running { // the findings already have the notes of a running engine
		for _, n := range r.Notes(time.Now()) {
			d.add("note", "warn", "%s", n)
		}
	}
	overdue, err := r.Overdue(ctx)
	if err != nil {
		return err
	}
	switch {
	case overdue == 0:
		d.add("overdue", "ok", "nothing")
	case d.app.store != "":
		d.lagging(ctx, r, "warn", ": no server of this database handles that; `belay serve --store` starts one")
	case !running:
		d.add("overdue", "warn", "%s overdue (for example executions that are due and sessions that have expired): "+
			"they wait for an engine; `belay serve` starts one, and so does any belay run on this directory",
			screen.Plural(overdue, "thing"))
	default:
		d.lagging(ctx, r, "bad", " although an engine runs: the engine stands still")
	}
	return nil
}

// lagging checks for five seconds whether an engine handles the sessions and executions that are
// overdue. If none does, lagging adds a finding with the verdict how and the reason why.
func (d *doctor) lagging(ctx context.Context, r *embedded.Reader, how, why string) {
	const tries = 20
	overdue := 0
	for range tries {
		var err error
		if overdue, err = r.Overdue(ctx); err != nil || overdue == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Second / tries):
		}
	}
	if overdue > 0 {
		d.add("overdue", how, "%s overdue%s", screen.Plural(overdue, "thing"), why)
		return
	}
	d.add("overdue", "ok", "nothing")
}

func (d *doctor) report() error {
	bad := false
	for _, f := range d.findings {
		bad = bad || f.How == "bad"
	}
	if d.app.output == "json" {
		if err := screen.PrintJSON(d.app.out, d.findings); err != nil {
			return err
		}
	} else {
		t := screen.NewTable(d.app.out)
		for _, f := range d.findings {
			t.Row(f.How, f.What, f.Detail)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if bad {
		return exitCode(belay.CodeUnavailable.Exit())
	}
	return nil
}
