package agentapi

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// startedRun is a run of a job that has started its command.
type startedRun struct {
	Token belay.Token
	At    time.Time // by the clock of the store
	agent.Phase
}

// startedRuns returns the runs of a job that have started their command, the oldest first.
func (s *Service) startedRuns(ctx context.Context, id belay.ExecutionID) ([]startedRun, error) {
	var all []startedRun
	err := s.chunks(ctx, id, agent.PhaseLog, 0, func(c belay.StoredChunk) bool {
		b := startedRun{Token: c.Token, At: c.At}
		if json.Unmarshal(c.Data, &b.Phase) == nil { // each run writes one line
			all = append(all, b)
		}
		return true
	})
	return all, err
}

// root returns the run that began the conversation of the given run. This is the run itself, unless
// it continued the conversation of an earlier run.
func root(all []startedRun, run belay.Token) belay.Token {
	for _, b := range slices.Backward(all) {
		if b.Token > run {
			continue
		}
		if run = b.Token; !b.Continued {
			break
		}
	}
	return run
}
