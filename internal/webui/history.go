package webui

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// eventRow is one event in the history.
type eventRow struct {
	Seq    int64
	Offset string
	Time   *moment
	Kind   string
	Class  string
	Text   []span
}

// history reads the part of the history that the address requests: the newest events, or the events
// after a seq.
func (p *pages) history(ctx context.Context, q url.Values, e *belay.Execution, sessions []belay.Worker,
	d *detail) error {
	after, newest := max(0, e.Seq-historySize), true
	if s := q.Get("after"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			return &belay.Error{Code: belay.CodeMalformed, Message: "after is " + strconv.Quote(excerpt(s, 40)) +
				"; it must be the seq of an event"}
		}
		newest = n >= after
		after = min(n, after)
	}
	events, err := p.backend.Events(ctx, belay.EventQuery{Execution: e.ID, After: after, Limit: historySize})
	if err != nil {
		return err
	}
	names := make(map[belay.WorkerID]string, len(sessions))
	for i := range sessions {
		names[sessions[i].ID] = sessions[i].Name
	}
	now := p.options.Now()
	d.Timeline = timelineOf(e, events, names, d.Tasks.work(), newest, now)
	for i := range events {
		d.Events = append(d.Events, eventOf(&events[i], e.CreatedAt, names, now))
	}
	if len(events) == 0 {
		return nil
	}
	first, last := events[0].Seq, events[len(events)-1].Seq
	to := func(after int64) string { return fmt.Sprintf("/executions/%s?after=%d#history", e.ID, max(0, after)) }
	if first > 1 {
		d.Earlier = to(first - 1 - historySize)
	}
	if !newest {
		d.Later = to(last)
	}
	if first > 1 || !newest {
		d.Shown = fmt.Sprintf("Events %d to %d of %d.", first, last, e.Seq)
	}
	return nil
}

func eventOf(ev *belay.Event, from time.Time, names map[belay.WorkerID]string, now time.Time) eventRow {
	return eventRow{
		Seq: ev.Seq, Offset: offset(ev.At.Sub(from)), Time: when(ev.At, now), Kind: strings.ReplaceAll(ev.Kind, "_",
			" "),
		Class: kindClass(ev.Kind), Text: eventText(ev, names),
	}
}

// eventText describes an event, with links to the executions and to the schedule that it names.
func eventText(ev *belay.Event, names map[belay.WorkerID]string) []span {
	text := describe(ev, names)
	schedule, ok := strings.CutPrefix(ev.Actor, "schedule ")
	if before, named := strings.CutSuffix(text, schedule); ok && named && schedule != "" && ev.Kind == "submitted" {
		return append(linked(before), span{schedule, false, pageOf(ofSchedule, schedule)})
	}
	return linked(text)
}

// describe renders the details of an event in one line: name, attempt, actor, text and error.
func describe(ev *belay.Event, names map[belay.WorkerID]string) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if ev.Name != "" {
		add("%s", line(ev.Name))
	}
	if ev.Kind == "started" || ev.Kind == "scheduled" {
		add("attempt %d, token %d, by %s", ev.Attempt, ev.Token, workerName(ev.Worker, names))
	}
	if ev.Kind == "step" && ev.Attempt > 1 {
		add("attempt %d", ev.Attempt)
	}
	if ev.DurationMS > 0 {
		add("took %s", short(time.Duration(ev.DurationMS)*time.Millisecond))
	}
	if ev.Actor != "" {
		add("by %s", line(ev.Actor))
	}
	if ev.Text != "" {
		add("%s", line(ev.Text))
	}
	switch {
	case ev.Error == nil:
	case ev.Error.Class.String() == ev.Kind:
		add("%s", line(ev.Error.Message))
	default:
		add("%s: %s", ev.Error.Class, line(ev.Error.Message))
	}
	if ev.Pruned {
		add("its data has been pruned")
	}
	return strings.Join(parts, " · ")
}

// workerName is the name of a worker, or its id if the name is unknown.
func workerName(id belay.WorkerID, names map[belay.WorkerID]string) string {
	if n := names[id]; n != "" {
		return line(n)
	}
	return id.String()
}

// kindClass returns the CSS class for the kind of an event; the class sets the colour.
func kindClass(kind string) string {
	switch kind {
	case "succeeded", "failed", "cancelled", "lost":
		return kind
	case "timed_out", "timeout", "start_timeout", "no_worker":
		return "failed"
	case "started":
		return "running"
	case "cancel", "pause", "resume", "retry", "requeue", "steal", "preempt":
		return "action"
	}
	return "plain"
}
