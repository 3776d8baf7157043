package promise

import (
	"strconv"
	"strings"

	"github.com/belaydev/belay"
)

// discard says that a retry from a step discarded the checkpoints with the seqs from first on that were saved
// before the retry, whose seq is at.
type discard struct{ first, at int64 }

// discard notes the checkpoints that a retry discards if it names a step: the first valid checkpoint of
// the step, and all that were saved after it.
func (s *Story) discard(ev *belay.Event) {
	text, names := strings.CutPrefix(ev.Text, "from ")
	quoted, err := strconv.QuotedPrefix(text)
	if !names || err != nil || ev.Kind != string(belay.ActionRetry) {
		return
	}
	step, err := strconv.Unquote(quoted)
	if err != nil {
		return
	}
	first := int64(0)
	for i := range s.Events {
		switch k := &s.Events[i]; {
		case k.Seq >= ev.Seq:
		case k.Kind == string(belay.ActionRequeue): // its input made the earlier checkpoints invalid
			first = 0
		case first == 0 && (k.Kind == "step" || k.Kind == "wait") && k.Name == step && !s.Discarded(k, ev.Seq):
			first = k.Seq
		}
	}
	if first != 0 {
		s.discards = append(s.discards, discard{first, ev.Seq})
	}
}

// Discarded reports whether a retry before the seq at discarded the checkpoint.
func (s *Story) Discarded(ev *belay.Event, at int64) bool {
	for _, d := range s.discards {
		if d.at < at && ev.Seq >= d.first && ev.Seq < d.at {
			return true
		}
	}
	return false
}
