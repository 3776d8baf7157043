package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/screen"
)

// stepText describes a step or wait without an event of its own: a current one, a failed try, or one that a run left
// unfinished. over is when the run ended that left it unfinished; zero for a current step.
func stepText(s *belay.StepRecord, over time.Time) string {
	text := s.Name
	if s.Attempt > 0 {
		text += fmt.Sprintf(", attempt %d", s.Attempt)
	}
	switch {
	case s.Over:
		text += ", took " + tookText(s.DurationMS)
	case over.IsZero():
		text += ", for " + since(s.BeganAt)
	case s.Kind == belay.KindWait:
		text += ", goes on without a worker"
	default:
		text += ", unfinished after " + screen.Short(over.Sub(s.BeganAt))
	}
	if s.Error != "" {
		text += " · " + screen.Brief(s.Error, 160)
	}
	return text
}

func tookText(ms int64) string { return screen.Short(time.Duration(ms) * time.Millisecond) }

// currentText describes the current steps of an execution in one line.
func currentText(e *belay.Execution) string {
	parts := make([]string, len(e.Current))
	for i := range e.Current {
		parts[i] = e.Current[i].Kind.String() + " " + stepText(&e.Current[i], time.Time{})
	}
	return strings.Join(parts, "; ")
}

// stepKind is the word for a step without an event, in the column of the kinds of events.
func stepKind(s *belay.StepRecord) string {
	if s.Kind == belay.KindStep && s.Over && s.Error != "" {
		return "try"
	}
	return s.Kind.String()
}
