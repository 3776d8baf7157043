package agentapi

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// begun is a run of a job whose command was started.
type begun struct {
	Token belay.Token
	At    time.Time // by the clock of the store
	agent.Phase
}

// begun are the runs of a job whose command was started, the oldest first.
func (s *Service) begun(ctx context.Context, id belay.ExecutionID) ([]begun, error) {
	var all []begun
	err := s.chunks(ctx, id, agent.PhaseLog, 0, func(c belay.StoredChunk) bool {
		b := begun{Token: c.Token, At: c.At}
		if json.Unmarshal(c.Data, &b.Phase) == nil { // each run writes one line
			all = append(all, b)
		}
		return true
	})
	return all, err
}

// root is the run that began the conversation which a run is a part of: itself, unless
// it continued an earlier one's.
func root(all []begun, run belay.Token) belay.Token {
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
