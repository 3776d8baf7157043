package machine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/belaydev/belay"
)

// describe formats the state of an execution in the notation of the tables:
//
//	pending(retry later)  waiting(timer)  paused(waiting)  running+cancelling
//
// A pending execution is due unless its parentheses contain later, outside or gated. A waiting
// execution is due only if they contain due.
func describe(e *Execution, now Time) string {
	var in []string
	switch e.State {
	case belay.Pending:
		in = append(in, e.Reason)
		if e.External {
			in = append(in, "outside")
		}
		if e.Gate != "" {
			in = append(in, "gated")
		} else if !e.External && !e.Ready().over(now) {
			in = append(in, "later")
		}
	case belay.Waiting:
		in = append(in, e.Reason)
		if e.Ready().over(now) {
			in = append(in, "due")
		}
	case belay.Paused:
		in = append(in, e.PausedFrom.String())
		if e.PausedFrom == belay.Waiting && e.DueAt.over(now) {
			in = append(in, "due")
		}
	}
	s := e.State.String()
	if in = slices.DeleteFunc(in, func(s string) bool { return s == "" }); len(in) > 0 {
		s += "(" + strings.Join(in, " ") + ")"
	}
	for _, flag := range []struct {
		set  bool
		name string
	}{{e.CancelBy != 0, "cancelling"}, {e.PauseRequested, "pausing"}, {e.Preempting, "preempting"}} {
		if flag.set {
			s += "+" + flag.name
		}
	}
	return s
}

// written lists the rows that the changes write, in the notation of the tables in testdata, without
// the row of the execution that the command names. An exclamation mark after a row says that the
// execution ended in the transition that this row records.
func written(c *Changes, about belay.ExecutionID) string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, r := range c.Runs {
		if r.Execution != about {
			continue
		}
		if r.ScheduledSeq != 0 {
			add("scheduled")
		}
		if r.StartedSeq != 0 {
			add("started")
		}
		if r.EndedSeq != 0 {
			add("ended:%s%s", r.Outcome, mark(r.Final))
		}
	}
	for _, k := range c.Checkpoints {
		add("%s", k.Kind)
	}
	for range c.Pruned {
		add("pruned")
	}
	for range c.Consumed {
		add("consumed")
	}
	for range c.Chunks {
		add("chunk")
	}
	for _, d := range c.Deeds {
		add("%s%s", d.Kind, mark(d.Final))
	}
	for _, d := range c.DeadLetters {
		if d.New {
			add("letter:%s", d.Reason)
		} else {
			add("letter:%s", d.Resolution)
		}
	}
	for _, s := range c.Signals {
		if s.Execution == about {
			add("signal")
		}
	}
	for _, s := range c.Specs {
		if s.Execution == about {
			add("spec")
		}
	}
	for _, e := range c.Executions {
		if e.ID != about {
			out = append(out, other(c, e))
		}
	}
	return strings.Join(out, " ")
}

// other describes the change of another execution than the one that the command names.
func other(c *Changes, e *Execution) string {
	if e.New {
		return "new"
	}
	if slices.ContainsFunc(c.Signals, func(s *Signal) bool { return s.Execution == e.ID }) {
		return "parent-signalled"
	}
	return "parent"
}

func mark(final bool) string {
	if final {
		return "!"
	}
	return ""
}

// outcome describes the effect of a command in the notation of the right side of the tables in
// testdata.
func outcome(s *stage, about belay.ExecutionID, c *Changes, r Reply) string {
	var e *belay.Error
	others := *c
	others.Workers = nil
	switch {
	case errors.As(r.Err, &e) && !others.Empty():
		return fmt.Sprintf("refused (%s) and changed %+v", e, *c)
	case errors.As(r.Err, &e):
		return words("!", string(e.Code), string(e.Cause), sessions(c, r))
	case r.Replayed && !others.Empty():
		return "a repetition changed something"
	case r.Replayed:
		return words("= repeated", sessions(c, r))
	}
	rows := words(written(c, about), sessions(c, r))
	touched := slices.ContainsFunc(c.Executions, func(e *Execution) bool { return e.ID == about })
	switch {
	case c.Empty():
		return "="
	case !touched:
		return words("=", rows)
	}
	return words(describe(s.row(about), s.now), rows)
}

// sessions lists the changes of sessions: opened, ended, renewed, or about to end by a follow-up.
func sessions(c *Changes, r Reply) string {
	var out []string
	for _, x := range c.Workers {
		switch {
		case x.State.Ended():
			out = append(out, "session:"+x.State.String())
		case x.New:
			out = append(out, "session")
		case r.Replayed || r.Heartbeat.ExpiresIn != 0:
			out = append(out, "renewed")
		}
	}
	for _, f := range r.Follow {
		if _, ok := f.(*Vacate); ok {
			out = append(out, "vacate")
		}
	}
	return words(out...)
}

func words(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), " ")
}
