package simulation

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// g4forks checks that a fork before a step has the checkpoints that its original had saved before the first
// valid checkpoint of that step, and no others.
func g4forks(f *finding, c *commit) {
	for _, e := range c.changes.Executions {
		text, forked := strings.CutPrefix(e.ReasonText, "forked from ")
		id, rest, at := strings.Cut(text, " before ")
		step, err := strconv.Unquote(rest)
		if !e.New || !forked || !at || err != nil {
			continue
		}
		from, err := belay.ParseExecutionID(id)
		s := f.byID[from]
		if err != nil || s == nil {
			f.violation(f.byID[e.ID], c, "it was forked from %s, which does not exist", id)
			continue
		}
		want := s.savedBefore(forkedAt(c, s.id, rest), step)
		var got []string
		for _, k := range c.changes.Checkpoints {
			if k.Execution == e.ID {
				got = append(got, k.Kind.String()+" "+k.Key)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			f.violation(f.byID[e.ID], c, "it was forked from %s before %q with the checkpoints %q, not %q", short(s.id),
				step, got, want)
		}
		f.Count("forked before a step")
		f.OK()
	}
}

// forkedAt is the seq of the fork of an execution before a step; the step is quoted.
func forkedAt(c *commit, id belay.ExecutionID, step string) int64 {
	for _, d := range c.changes.Deeds {
		if d.Execution == id && d.Kind == "fork" && d.Reason == "before "+step {
			return d.Seq
		}
	}
	return 0
}

// savedBefore lists the checkpoints of the execution that were valid at a seq and had been saved before the
// first valid checkpoint of a step.
func (s *story) savedBefore(at int64, step string) []string {
	base, _ := s.before(s.wrote[at])
	valid := func(k *machine.Checkpoint) bool {
		return k.Seq > base.BaseSeq && k.Seq < at && k.Key != "" && !s.Discarded(s.At(k.Seq), at)
	}
	first := int64(0)
	for _, k := range s.written.Checkpoints {
		if valid(k) && k.Kind != belay.KindState && k.Key == step {
			first = k.Seq
			break
		}
	}
	all := make(map[string]bool)
	for _, k := range s.written.Checkpoints {
		if valid(k) && k.Seq < first {
			all[k.Kind.String()+" "+k.Key] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
