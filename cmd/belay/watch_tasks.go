package main

import (
	"context"
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/screen"
)

// watchTasks prints the progress of the tasks of a document until its execution ends. Each event of the execution is a
// reason to read the tasks again: the runner saves its state when it has started tasks, and the end of a child is an
// event too.
func (a *app) watchTasks(ctx context.Context, r reader, id belay.ExecutionID) error {
	var away outage
	p := progressPrinter{app: a, id: id, seen: map[string]belay.Task{}}
	for after := int64(0); ; {
		e, err := r.Execution(ctx, id)
		if err == nil {
			var all belay.TaskPage
			if all, err = a.allTasks(ctx, r, belay.TaskQuery{Execution: id}); err == nil {
				p.print(all)
			}
		}
		var events []belay.Event
		switch {
		case err != nil:
		case e.State.Terminal():
			p.end(&e)
			return nil
		default:
			after = max(after, e.Seq)
			events, err = r.Events(ctx, belay.EventQuery{Execution: id, After: after, Wait: time.Minute})
		}
		if ctx.Err() != nil {
			return exitCode(130)
		}
		if err != nil {
			if a.retryLater(ctx, &away, err) {
				continue
			}
			return err
		}
		away = outage{}
		for i := range events {
			after = events[i].Seq
		}
	}
}

// progressPrinter prints what has changed between two views of the tasks.
type progressPrinter struct {
	*app
	id    belay.ExecutionID
	seen  map[string]belay.Task
	begun bool
}

// print prints a line for each task that has changed. The first view shows only tasks that have started.
func (p *progressPrinter) print(all belay.TaskPage) {
	if !p.begun {
		p.begun = true
		fmt.Fprintf(p.out, "%s has %s\n", screen.Line(all.Document), screen.Plural(all.Total, "task"))
	}
	for i := range all.Tasks {
		x := &all.Tasks[i]
		old, known := p.seen[x.ID]
		if !known {
			old = belay.Task{State: belay.TaskPending}
		}
		again := x.Attempt > max(old.Attempt, 1)
		if x.State != old.State || again || !sameItems(x.Items, old.Items) {
			p.seen[x.ID] = *x
			fmt.Fprintln(p.out, p.line(x))
		}
	}
}

// sameItems reports whether two counts of items differ too little for a line of their own: a foreach gets a line for
// each further twentieth of its items, and for each failure.
func sameItems(a, b *belay.TaskItems) bool {
	if a == nil || b == nil {
		return a == b
	}
	const parts = 20
	return a.Total == b.Total && a.Failed == b.Failed && (a.Total == 0 ||
		a.Succeeded*parts/a.Total == b.Succeeded*parts/a.Total)
}

// line describes the present state of a task.
func (p *progressPrinter) line(x *belay.Task) string {
	text := fmt.Sprintf("%s  %s %s", clock(time.Now()), screen.Line(x.ID), x.State)
	if !x.EndedAt.IsZero() && !x.StartedAt.IsZero() {
		text += " after " + tookTask(x)
	}
	if x.Attempt > 1 {
		text += fmt.Sprintf(" in attempt %d", x.Attempt)
	}
	if about := aboutTask(x, p.id); about != "" && x.State != belay.TaskPending {
		text += ": " + screen.Brief(about, 200)
	}
	return text
}

// end prints the end of the execution.
func (p *progressPrinter) end(e *belay.Execution) {
	fmt.Fprintf(p.out, "%s  %s %s in %s\n", clock(time.Now()), e.ID, stateWord(e), took(e))
	if e.Error != nil {
		fmt.Fprintln(p.out, screen.Brief(e.Error.Message, 400))
	}
}
