package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/bulk/runner"
	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/worker"
)

// describeBulk says in one line what a bulk will do.
func (a *app) describeBulk(w io.Writer, b *belay.Bulk, p *belay.BulkPreview) {
	what := "executions"
	if b.Action == belay.BulkRequeue || b.Action == belay.BulkDiscard {
		what = "dead letters"
	}
	count := fmt.Sprint(p.Count)
	if p.More {
		count = "at least " + count
	}
	canary := "without a canary"
	if len(b.Canary) > 0 {
		canary = "after a canary of " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(b.Canary)), " and "), "[]")
	}
	fmt.Fprintf(w, "%s %s %s, %g per second at most, %s; it stops if more than %g%% fail\n", b.Action, count, what,
		b.Rate, canary, *b.MaxFailures*100)
}

// followBulk waits for the end of a bulk and prints its progress. Without a server, it also runs the bulk.
func (a *app) followBulk(ctx context.Context, to belay.Backend, id belay.ExecutionID) error {
	if a.server == "" {
		stop := runBulks(ctx, to)
		defer stop()
	}
	var away outage
	for after := int64(0); ; {
		events, err := to.Events(ctx, belay.EventQuery{Execution: id, After: after, Wait: 30 * time.Second, Data: true})
		switch {
		case ctx.Err() != nil:
			fmt.Fprintf(a.err, "belay: the bulk has not ended; a server continues it. belay watch %s follows it, and "+
				"belay cancel %s stops it\n", id, id)
			return exitCode(130)
		case belay.CodeOf(err) == belay.CodeForbidden && err != nil:
			fmt.Fprintln(a.err, "belay: the key may not read, so the progress is not shown")
			return nil
		case err != nil && a.retryLater(ctx, &away, err):
			continue
		case err != nil:
			return err
		}
		away = outage{}
		for i := range events {
			ev := &events[i]
			after = ev.Seq
			if text := progressText(ev); text != "" {
				fmt.Fprintln(a.err, "belay:", text)
			}
		}
		if len(events) > 0 && events[len(events)-1].Final {
			return a.bulkEnded(ctx, to, id)
		}
	}
}

// runBulks starts a worker for bulks in this process. The caller calls stop, which returns when the
// worker has ended.
func runBulks(ctx context.Context, b belay.Backend) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := worker.New(b, worker.Options{
		Name: fmt.Sprintf("belay bulk (pid %d)", os.Getpid()), Version: version, Concurrency: 1, Grace: -1,
		Queues: []string{belay.BulkWorkflow},
	})
	worker.Register(w, belay.BulkWorkflow, (&runner.Runner{Backend: b}).Run)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.Run(ctx); err != nil {
			slog.Warn("run the bulk", "error", err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// bulkEnded prints the result of a bulk that has ended.
func (a *app) bulkEnded(ctx context.Context, r reader, id belay.ExecutionID) error {
	x, err := r.Execution(ctx, id)
	if err != nil {
		return err
	}
	if a.output == "json" {
		err = screen.PrintJSON(a.out, x)
	} else {
		err = a.printBulk(&x)
	}
	if err == nil && x.State != belay.Succeeded {
		why := "the bulk was " + x.State.String()
		if x.Error != nil {
			why = "the bulk " + x.Error.Message
		}
		return &belay.Error{Code: belay.CodeConflict, Message: why}
	}
	return err
}

func (a *app) printBulk(x *belay.Execution) error {
	var p belay.BulkProgress
	if len(x.Output) == 0 {
		return nil
	}
	if err := json.Unmarshal(x.Output, &p); err != nil {
		return fmt.Errorf("read the result of %s: %w", x.ID, err)
	}
	fmt.Fprintln(a.out, progressLine(&p))
	for _, f := range p.Failures {
		fmt.Fprintf(a.out, "  %s: %s\n", f.Execution, screen.Brief(f.Message, 200))
	}
	return nil
}

// progressText describes the state of a bulk that an event has; "" if the event has none.
func progressText(ev *belay.Event) string {
	var p belay.BulkProgress
	if ev.Kind != "state" || len(ev.Data) == 0 || json.Unmarshal(ev.Data, &p) != nil || p.Stage == "" {
		return ""
	}
	return progressLine(&p)
}

func progressLine(p *belay.BulkProgress) string {
	s := fmt.Sprintf("%s: %d succeeded, %d failed, %d conflicts, %d running", p.Stage, p.Succeeded, p.Failed,
		p.Conflicts, p.Running)
	if p.More {
		s += fmt.Sprintf("; more than %d are selected, begin another bulk for the rest", belay.MaxBulk)
	}
	return s
}

// bulkProgress returns the progress of a bulk as text; "" if it has none yet. events are its history
// without data.
func bulkProgress(ctx context.Context, r reader, e *belay.Execution, events []belay.Event) string {
	if e.Workflow != belay.BulkWorkflow {
		return ""
	}
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].Kind != "state" {
			continue
		}
		found, err := r.Events(ctx, belay.EventQuery{Execution: e.ID, After: events[i].Seq - 1, Limit: 1, Data: true})
		if err != nil || len(found) == 0 {
			return ""
		}
		return progressText(&found[0])
	}
	return ""
}
