// Package demo shows Belay's first promise. Two worker processes are connected. The worker that
// runs an execution is killed with kill -9 in the middle of a step, and the other worker continues
// the execution.
//
// The demo checks its own result, from the store's history and from the ledger, a file outside the
// store in which the steps record that they run. A note is a line with which a worker process
// reports its work to the demo.
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
	// ttl is how long a worker of the demo may send no heartbeat before the store declares it lost.
	// It is short, so that the demo does not take long, and long enough for a busy machine.
	ttl  = 2 * time.Second
	beat = 500 * time.Millisecond
	// limit is the timeout of a demo, many times the duration of a demo.
	limit = 2 * time.Minute
	// killAfter is the number of lines that the step named victim ("review") writes before its
	// worker is killed.
	killAfter = 3
)

// Options are the options of a demo.
type Options struct {
	// Out receives the story of the demo (a line for each event), or if JSON is set, only the result of the demo as
	// JSON. Terminal writes to the same place as Out, but without escaping control characters, so that the demo can use
	// colours.
	Out, Terminal io.Writer
	JSON          bool
	// Data is the data directory, which the demo keeps; empty for a temporary directory.
	Data string
	// Repo is the repository to clone; empty for a small new repository.
	Repo string
	// Version is the version of the program.
	Version string
	// Bury kills the remaining processes of a dead worker.
	Bury func(ctx context.Context, c belay.Client, dead belay.Worker) error
	// Worker returns the command that starts a worker process with this name, for this queue and
	// data directory. The process calls [Work].
	Worker func(ctx context.Context, name, queue, dir string) (*exec.Cmd, error)
}

// demo is the state of one run of the demo.
type demo struct {
	opt     Options
	dir     string // the data directory
	ledger  string // the path of the ledger
	backend *datadir.Backend
	tell    *teller
	workers []*workerProcess
	notes   chan note
	facts   facts
}

// Run runs the demo and writes its result. It returns an error if Belay broke a promise; if ctx ends
// first, the error is ctx's cause.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		&belay.Error{
			Code: belay.CodeUnavailable, Message: "the demo did not end within " + screen.Short(limit) +
				"; is this machine very busy?",
		})
	defer cancel()
	work, err := os.MkdirTemp("", "belay-demo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // an error leaves files in the temporary directory
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
	if err = errors.Join(err, d.stopWorkers(), d.backend.Close()); err != nil {
		return err
	}
	return d.judge()
}

// stopped returns the cause of ctx if there is an error and ctx has ended, and otherwise err.
func stopped(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return context.Cause(ctx)
}

// play starts the workers, submits the execution and follows it to its end.
func (d *demo) play(ctx context.Context, job *agent.Job) error {
	queue := agent.RunQueue + belay.WorkerID(embedded.NewID()).String()
	for _, name := range []string{"anna", "bert"} {
		m, err := d.startWorker(ctx, name, queue)
		if err != nil {
			return err
		}
		d.workers = append(d.workers, m)
	}
	if err := d.waitForWorkers(ctx); err != nil {
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
			Code: belay.CodeConflict, Message: "the demo cannot be shown, because a step failed before the kill: " +
				screen.Line(e.Error.Message),
		}
	}
	d.facts.Ledger, err = readLedger(d.ledger)
	return err
}

// waitForWorkers waits until both workers are connected.
func (d *demo) waitForWorkers(ctx context.Context) error {
	for ready := 0; ready < len(d.workers); {
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
	for _, m := range d.workers {
		who = append(who, fmt.Sprintf("%s (process %d)", m.name, m.process.Process.Pid))
	}
	d.tell.begin("two worker processes are connected: " + strings.Join(who, " and "))
	return nil
}

// follow handles the workers' notes and the execution's events until the execution has ended. It
// kills the worker in the middle of the step named victim ("review"), when a note reports that the
// step has written enough lines.
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

// event records an event of the execution, and prints a line for events that no worker reports.
func (d *demo) event(ev *belay.Event) {
	d.facts.Events = append(d.facts.Events, *ev)
	switch ev.Kind {
	case "lost":
		if d.facts.Lost.IsZero() && !d.facts.Killed.IsZero() {
			d.facts.Lost = ev.At
		}
		d.tell.line(byBelay, "takes the execution back from "+d.nameOf(ev.Worker)+": "+lossOf(ev))
	case "submitted":
		d.tell.line(byBelay, "stores the execution "+ev.Execution.String())
	}
}

// lossOf returns why the store declared a worker lost.
func lossOf(ev *belay.Event) string {
	if ev.Error == nil {
		return ev.Text
	}
	return screen.Brief(ev.Error.Message, 160)
}

// note handles a note (a line with which a worker reports its work).
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
			text += ", with the files of the finished steps"
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
		if n.Step == victim && m.lines == killAfter && d.facts.Killed.IsZero() {
			return d.kill(m)
		}
	case noteEnded:
		d.tell.ended(n)
	}
	return nil
}
