package tasks

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition/runner"
)

// The bounds of the search for messages.
const (
	maxEvents   = 1000 // the newest events that are searched
	maxMessages = 20   // messages that are read
)

// messages replaces the messages of approvals that have expressions by the texts that people were asked. The runner has
// evaluated each once, and has saved the text as a step. A text that the search does not find stays as it is.
func (s *snapshot) messages(ctx context.Context, r Reader, list []entry) error {
	asked := make(map[string]*belay.TaskQuestion)
	for i := range list {
		if q := list[i].Question; q != nil && q.Approval && strings.Contains(q.Message, "${{") {
			asked[runner.MessageStep(list[i].ID, s.Generation)] = q
		}
	}
	if len(asked) == 0 {
		return nil
	}
	events, err := r.Events(ctx, belay.EventQuery{Execution: s.ID, After: max(0, s.Seq-maxEvents), Limit: maxEvents})
	if err != nil {
		return err
	}
	read := 0
	for i := range events {
		seq := events[i].Seq
		q := asked[events[i].Name]
		if q == nil || events[i].Kind != "step" || read == maxMessages {
			continue
		}
		read++
		one, err := r.Events(ctx, belay.EventQuery{Execution: s.ID, After: seq - 1, Limit: 1, Data: true})
		if err != nil {
			return err
		}
		var text string
		if len(one) == 1 && one[0].Seq == seq && json.Unmarshal(one[0].Data, &text) == nil {
			q.Message = clip(text, 1000)
		}
	}
	return nil
}
