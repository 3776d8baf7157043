package simulation

import (
	"slices"
	"strconv"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// repairMutants are the planted bugs of dead letters, contents, retries from a step, forks before a step and
// deletions.
var repairMutants = []*mutant{
	{name: "dead letter resolved twice", meant: "G10", says: "was resolved 2 times", before: func(_ *world,
		_ *mutantState, _ *machine.Need, rows *machine.Rows) {
		for _, d := range rows.Letters {
			d.Resolution = ""
		}
	}},
	{name: "note on a dead letter lost", meant: "G10", says: "is there 0 times", after: func(_ *world, _ *mutantState,
		_ *machine.Rows, c *machine.Changes) bool {
		for _, d := range c.DeadLetters {
			d.Notes = nil
		}
		return false
	}},
	{name: "content that replays a failure", meant: "G9", says: "which was failed", plan: withContents, before: func(
		_ *world, _ *mutantState, _ *machine.Need, rows *machine.Rows) {
		for i := range rows.Keys {
			if h := &rows.Keys[i].Holder; h.State == belay.Failed {
				h.State = belay.Succeeded
			}
		}
	}},
	{name: "content that replays no success", meant: "G9", says: "of the same content is succeeded", plan: withContents,
		before: func(_ *world, _ *mutantState, _ *machine.Need, rows *machine.Rows) {
			for i := range rows.Keys {
				if h := &rows.Keys[i].Holder; h.State == belay.Succeeded {
					h.State = belay.Failed
				}
			}
		}},
	{name: "retry from a step that keeps the step", meant: "G4", says: "which is not the last accepted one",
		after: func(_ *world, _ *mutantState, _ *machine.Rows, c *machine.Changes) bool {
			c.Pruned = nil
			return false
		}},
	{name: "fork before a step that has the step", meant: "G4", says: "it was forked from", after: func(_ *world,
		_ *mutantState, rows *machine.Rows, c *machine.Changes) bool {
		for _, d := range c.Deeds {
			quoted, before := strings.CutPrefix(d.Reason, "before ")
			step, err := strconv.Unquote(quoted)
			i := slices.IndexFunc(rows.Checkpoints, func(k *machine.Checkpoint) bool {
				return k.Execution == d.Execution && k.Key == step
			})
			if !before || err != nil || i < 0 {
				continue
			}
			for _, e := range c.Executions {
				if e.New && strings.HasPrefix(e.ReasonText, "forked from "+d.Execution.String()) {
					k := *rows.Checkpoints[i]
					e.Seq, e.Checkpoints = e.Seq+1, e.Checkpoints+1
					c.Checkpoints = append(c.Checkpoints, &machine.Checkpoint{
						Execution: e.ID, Seq: e.Seq, Kind: k.Kind, Key: k.Key, At: rows.Now, Data: k.Data,
					})
				}
			}
		}
		return false
	}},
	{name: "deletion that the audit does not have", meant: "retention", says: "is not in the audit", plan: func(
		p *plan) {
		p.withRetention(mostRetention)
	}, after: func(_ *world, _ *mutantState, _ *machine.Rows, c *machine.Changes) bool {
		c.Audit = nil
		return false
	}},
}

func withContents(p *plan) { p.contents = 2 }
