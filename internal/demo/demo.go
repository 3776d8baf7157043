// Package demo shows Belay's first promise to a person: two worker processes work on one
// execution, the one in the middle of a step is killed with kill -9, and the other goes on.
// It judges itself, from the store's history and from a list that the steps keep outside of
// it.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/datadir"
	"github.com/belaydev/belay/internal/screen"
)

const (
	// ttl is how long a worker of the demo lives without a heartbeat. It is
	// short, so that a demo does not take long, and long enough for a busy machine.
	ttl  = 2 * time.Second
	beat = 500 * time.Millisecond
	// limit is how long a demo may take before it is given up: many times
	// what it needs.
	limit = 2 * time.Minute
	// noise is how many lines the step in the middle has written when its
	// worker is killed.
	noise = 3
)

// Options of a demo.
type Options struct {
	// Out gets the story, or with JSON the judgement alone. Terminal is the same without
	// anything between, for colours.
	Out, Terminal io.Writer
	JSON          bool
	// Data is where to keep what is stored; empty for a directory that is removed.
	Data string
	// Repo is the repository to clone; empty for a small one that is made.
	Repo string
	// Version is that of the program.
	Version string
	// Bury kills the processes of a worker that died.
	Bury func(ctx context.Context, c belay.Client, dead belay.Worker) error
	// Worker is the command of a worker process: its name, its queue and the data
	// directory. It calls [Work].
	Worker func(ctx context.Context, name, queue, dir string) (*exec.Cmd, error)
}

// demo is one showing.
type demo struct {
	opt     Options
	dir     string // the data directory
	ledger  string // where steps note outside of the store that they run
	backend *datadir.Backend
	tell    *teller
	crew    []*crewMember
	notes   chan note
	facts   facts
}

// Run shows a demo and judges it. The error says whether the promises held; a demo that
// ctx has cut off ends with ctx's cause.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		&belay.Error{
			Code: belay.CodeUnavailable, Message: "the demo did not come to its end in " + screen.Short(limit) +
				"; is this machine very busy?",
		})
	defer cancel()
	work, err := os.MkdirTemp("", "belay-demo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // what stays is in the temporary directory
	d := &demo{opt: o, dir: filepath.Join(work, "data"), ledger: filepath.Join(work, "ledger"), tell: newTeller(o),
		notes: make(chan note, 64)}
	if o.Data != "" {
		d.dir = o.Data
	}
	job, err := demoJob(ctx, o.Repo, work)
	if err != nil {
		return stopped(ctx, err)
	}
	d.tell.title(job.Repo)
	d.backend, err = datadir.Open(ctx, d.dir, datadir.Options{
		Purpose: "belay demo", Version: o.Version, InJob: process.InJob,
		Engine: []embedded.Option{embedded.Bury(o.Bury)},
	})
	if err != nil {
		return stopped(ctx, err)
	}
	err = stopped(ctx, d.play(ctx, job))
	if err = errors.Join(err, d.dismiss(), d.backend.Close()); err != nil {
		return err
	}
	return d.judge()
}

// stopped is err, or the cause if the demo was ended from outside.
func stopped(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return context.Cause(ctx)
}

// play shows the story up to the end of the execution.
func (d *demo) play(ctx context.Context, job *agent.Job) error {
	queue := agent.RunQueue + belay.WorkerID(embedded.NewID()).String()
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
		Labels: map[string]string{agent.LabelCommand: "belay demo: " + stepNames(job)},
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
		return &belay.Error{
			Code: belay.CodeConflict, Message: "the demo cannot be shown, its steps do not get that far: " +
				screen.Line(e.Error.Message),
		}
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
			got, err := d.backend.Events(ctx, belay.EventQuery{
				Execution: d.facts.Execution, After: after, Wait: 10 * time.Second,
			})
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
		d.tell.line(byBelay, "gives "+d.nameOf(ev.Worker)+" up: "+lossOf(ev))
	case "submitted":
		d.tell.line(byBelay, "keeps the execution "+ev.Execution.String())
	}
}

// lossOf says why the store gave a worker up.
func lossOf(ev *belay.Event) string {
	if ev.Error == nil {
		return ev.Text
	}
	return screen.Brief(ev.Error.Message, 160)
}

// note tells what a worker says it does.
func (d *demo) note(ctx context.Context, n note) error {
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
		if n.Step == victim && !d.facts.Killed.IsZero() && d.facts.Late == nil {
			d.lateWrite(ctx)
		}
	case noteWrote:
		m.lines++
		if n.Step == victim && m.lines == noise && d.facts.Killed.IsZero() {
			return d.kill(m)
		}
	case noteEnded:
		d.tell.ended(n)
	}
	return nil
}
