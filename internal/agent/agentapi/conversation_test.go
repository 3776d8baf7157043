package agentapi

import (
	"context"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// asking is a Backend with a job that asks, which refuses signals that the store would refuse.
type asking struct {
	belay.Client
	got belay.SignalRequest
}

func (*asking) Chunks(context.Context, belay.ChunkQuery) ([]belay.StoredChunk, error) {
	return []belay.StoredChunk{{Data: []byte(`{"number":1,"text":"Which?"}`)}}, nil
}

func (a *asking) Signal(_ context.Context, r belay.SignalRequest) error {
	a.got = r
	return machine.CheckPayload("signal", "the signal's payload", r.Payload, belay.MaxSignal)
}

// Rule: the store takes every answer that is not too long, and a longer one is refused as an answer.
func TestLongAnswersArrive(t *testing.T) {
	b := &asking{}
	d := &endpoint{Service: New(b, Options{})}
	x := belay.Execution{ID: belay.ExecutionID{1}, State: belay.Waiting}
	for _, c := range []struct {
		answer string
		ok     bool
	}{{strings.Repeat("<", 65_000), true}, {strings.Repeat("a", 64<<10), false}} {
		err := d.deliver(t.Context(), &x, &HumanAnswer{Answer: c.answer})
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "the answer has") {
			t.Errorf("%.3s…: %v", c.answer, err)
		}
	}
}
