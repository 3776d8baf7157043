package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/datadir"
)

const (
	// demoTTL is how long a worker of the demo lives without a heartbeat. It is
	// short so that nobody waits long, and long enough for a busy machine.
	demoTTL  = 2 * time.Second
	demoBeat = 500 * time.Millisecond
	// demoLimit is how long a demo may take before it is given up: many times
	// what it needs.
	demoLimit = 2 * time.Minute
	// demoNoise is how many lines the step in the middle has written when its
	// worker is killed.
	demoNoise = 3
)

func (a *app) demoCommand() *cobra.Command {
	var repo string
	var keep bool
	c := &cobra.Command{
		Use: "demo", Short: "Watch a worker die in the middle, and the run go on", Args: none,
		Long: `Run five steps on a clone of a repository with two worker processes, kill the one
that works in step 3 with kill -9, and see the other take over without repeating
steps 1 and 2. Then write once more with the dead worker's token, and see that
refused.

It takes about ten seconds and touches nothing: the repository is cloned, and all
that is stored is removed at the end, unless --data says where to keep it.

The demo judges itself, from the store's history and from a list that the steps
keep outside of it: the exit code is 0 if every promise held, and 70 if not.`,
		RunE: func(c *cobra.Command, _ []string) error {
			keep = c.Flags().Changed("data")
			return a.demo(c.Context(), repo, keep)
		},
	}
	c.Flags().StringVar(&repo, "repo", "", "the repository, a path or `URL`; the one around the working directory by default, else a small one that is made")
	_ = c.MarkFlagDirname("repo")
	c.AddCommand(a.demoWorkerCommand())
	return c
}

// demo is one showing.
type demo struct {
	app     *app
	dir     string // the data directory
	ledger  string // where steps note outside of the store that they run
	backend *datadir.Backend
	tell    *teller
	crew    []*crewMember
	notes   chan demoNote
	facts   demoFacts
}

func (a *app) demo(ctx context.Context, repo string, keep bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, demoLimit,
		&belay.Error{Code: belay.CodeUnavailable, Message: "the demo did not come to its end in " + short(demoLimit) + "; is this machine very busy?"})
	defer cancel()
	work, err := os.MkdirTemp("", "belay-demo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // what stays is in the temporary directory
	d := &demo{app: a, dir: filepath.Join(work, "data"), ledger: filepath.Join(work, "ledger"), tell: newTeller(a), notes: make(chan demoNote, 64)}
	if keep {
		if d.dir, err = filepath.Abs(a.data); err != nil {
			return err
		}
	}
	job, err := demoJob(ctx, repo, work)
	if err != nil {
		return stopped(ctx, err)
	}
	d.tell.title(job.Repo)
	d.backend, err = datadir.Open(ctx, d.dir, datadir.Options{
		Purpose: "belay demo", Version: version, InJob: process.InJob, Engine: []embedded.Option{embedded.Bury(bury)},
	})
	if err != nil {
		return stopped(ctx, err)
	}
	err = stopped(ctx, d.play(ctx, job))
	if err = errors.Join(err, d.dismiss(), d.backend.Close()); err != nil {
		return err
	}
	return d.judge(keep)
}

// stopped is err, or what ended the demo from outside if that is why.
func stopped(ctx context.Context, err error) error {
	switch {
	case err == nil || ctx.Err() == nil:
		return err
	case errors.Is(context.Cause(ctx), context.Canceled):
		return exitCode(130)
	}
	return context.Cause(ctx)
}

// play shows the story up to the end of the execution.
func (d *demo) play(ctx context.Context, job *agent.Job) error {
	queue := runQueue + belay.WorkerID(embedded.NewID()).String()
	for _, name := range []string{"anna", "bert"} {
		m, err := d.hire(ctx, name, queue)
		if err != nil {
			return err
		}
		d.crew = append(d.crew, m)
	}
	if err := d.assemble(ctx); err != nil {
		return err
	}
	input, err := json.Marshal(job)
	if err != nil {
		return err
	}
	out, err := d.backend.Submit(ctx, belay.Submission{
		Workflow: agent.Workflow, Input: input, Queue: queue,
		Labels: map[string]string{labelCommand: "belay demo: " + commandLine(job)},
		Policy: belay.Policy{MaxAttempts: 1, NoDeadLetters: true},
	})
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		return err
	}
	d.facts.Execution = out[0].ID
	if err := d.follow(ctx); err != nil {
		return err
	}
	e, err := d.backend.Execution(ctx, d.facts.Execution)
	if err != nil {
		return err
	}
	d.facts.State, d.facts.Error = e.State, e.Error
	if e.State != belay.Succeeded && e.Error != nil && d.facts.Killed.IsZero() {
		return &belay.Error{Code: belay.CodeConflict, Message: "the demo cannot be shown, its steps do not get that far: " + printable(e.Error.Message)}
	}
	d.facts.Ledger, err = readLedger(d.ledger)
	return err
}

// assemble waits until both workers are connected.
func (d *demo) assemble(ctx context.Context) error {
	for ready := 0; ready < len(d.crew); {
		select {
		case n := <-d.notes:
			switch n.Kind {
			case noteReady:
				ready++
			case noteGone:
				return n.from.failed()
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	var who []string
	for _, m := range d.crew {
		who = append(who, fmt.Sprintf("%s (process %d)", m.name, m.process.Process.Pid))
	}
	d.tell.begin("two worker processes are connected: " + strings.Join(who, " and "))
	return nil
}

// follow tells what happens until the execution has ended, and does the deed in
// between.
func (d *demo) follow(ctx context.Context) error {
	events, failed := d.watch(ctx)
	for {
		select {
		case n := <-d.notes:
			if err := d.note(ctx, n); err != nil {
				return err
			}
		case ev := <-events:
			d.event(&ev)
			if ev.Final {
				return nil
			}
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// watch reads the execution's events as they happen.
func (d *demo) watch(ctx context.Context) (<-chan belay.Event, <-chan error) {
	events, failed := make(chan belay.Event), make(chan error, 1)
	go func() {
		for after := int64(0); ; {
			got, err := d.backend.Events(ctx, belay.EventQuery{Execution: d.facts.Execution, After: after, Wait: 10 * time.Second})
			if err != nil {
				failed <- err
				return
			}
			for _, ev := range got {
				after = ev.Seq
				select {
				case events <- ev:
				case <-ctx.Done():
					return
				}
				if ev.Final {
					return
				}
			}
		}
	}()
	return events, failed
}

// event takes note of what the store says, and tells what no worker can.
func (d *demo) event(ev *belay.Event) {
	d.facts.Events = append(d.facts.Events, *ev)
	switch ev.Kind {
	case "lost":
		if d.facts.Lost.IsZero() && !d.facts.Killed.IsZero() {
			d.facts.Lost = ev.At
		}
		d.tell.line(byBelay, "gives "+d.nameOf(ev.Worker)+" up: "+describe(ev))
	case "submitted":
		d.tell.line(byBelay, "keeps the execution "+ev.Execution.String())
	}
}

// note tells what a worker says it does.
func (d *demo) note(ctx context.Context, n demoNote) error {
	m := n.from
	switch n.Kind {
	case noteGone:
		if !m.killed {
			return m.failed()
		}
	case noteOwns:
		m.lease = n.lease()
		d.tell.line(m.name, fmt.Sprintf("owns the execution now, with token %d", n.Token))
		if d.facts.TakenOver.IsZero() && !d.facts.Killed.IsZero() {
			d.facts.TakenOver, d.facts.Successor, d.facts.NewToken = time.Now(), m.name, n.Token
		}
	case notePrepared:
		text := "has a workspace at commit " + n.Text
		if !d.facts.TakenOver.IsZero() {
			text += ", with what the finished steps left"
		}
		d.tell.line(m.name, text)
	case noteSkipped:
		d.tell.line(m.name, stepTitle(n.Step)+"is done already and is not run again")
	case noteStarted:
		m.lines = 0
		d.tell.line(m.name, stepTitle(n.Step)+"begins")
		if n.Step == demoVictim && !d.facts.Killed.IsZero() && d.facts.Late == nil {
			d.lateWrite(ctx)
		}
	case noteWrote:
		m.lines++
		if n.Step == demoVictim && m.lines == demoNoise && d.facts.Killed.IsZero() {
			return d.kill(m)
		}
	case noteEnded:
		d.tell.ended(n)
	}
	return nil
}
