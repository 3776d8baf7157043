package embedded

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
)

// Observe makes the engine call f with a description of each commit, after the callers have their
// answers. It is for the metrics of Belay's own server.
func Observe(f func(*engine.Observation)) Option {
	return func(s *settings) { s.engine.Observe = f }
}

// Courier makes the engine schedule executions of some queues to workers, and tell the workers through a message
// broker. It is for Belay's own server.
func Courier(c engine.Courier) Option {
	return func(s *settings) { s.engine.Courier = c }
}

// RunTrace makes the engine call f for the trace of each run. It is for Belay's own server.
func RunTrace(f func(belay.ExecutionID, belay.Token, belay.Trace) belay.Trace) Option {
	return func(s *settings) { s.engine.RunTrace = f }
}
