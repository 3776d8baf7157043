package simulation

import (
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// scheduleMutants are the planted bugs of schedules.
var scheduleMutants = []*mutant{
	{name: "slot fired and not passed", meant: "G18", says: "and its next slots were from", plan: withSchedules,
		after: func(_ *world, _ *mutantState, rows *machine.Rows, c *machine.Changes) bool {
			for _, o := range c.Objects {
				for _, old := range rows.Objects {
					if o.Kind == machine.ScheduleObject && o.ObjectRef == old.ObjectRef && len(c.Audit) == 0 {
						o.NextAt, o.Body = old.NextAt, old.Body
					}
				}
			}
			return false
		}},
	{name: "slot passed and not fired", meant: "G18", says: "have a result", plan: withSchedules,
		after: func(_ *world, _ *mutantState, _ *machine.Rows, c *machine.Changes) bool {
			gone := make(map[belay.ExecutionID]bool)
			c.Specs = slices.DeleteFunc(c.Specs, func(s *machine.Spec) bool {
				gone[s.Execution] = s.Trigger == belay.TriggerCron && s.Generation == 1
				return gone[s.Execution]
			})
			c.Executions = slices.DeleteFunc(c.Executions, func(e *machine.Execution) bool { return gone[e.ID] })
			c.Keys = slices.DeleteFunc(c.Keys, func(k machine.KeyRow) bool { return gone[k.Execution] })
			c.Places = slices.DeleteFunc(c.Places, func(p *machine.Place) bool { return gone[p.Execution] })
			return false
		}},
	{name: "slot fired twice", meant: "G18", says: "was started again", plan: withSchedules,
		before: func(_ *world, _ *mutantState, _ *machine.Need, rows *machine.Rows) { rows.Keys = nil },
		after: func(_ *world, _ *mutantState, _ *machine.Rows, c *machine.Changes) bool {
			c.Keys = nil
			return false
		}},
	{name: "due slots overlooked", meant: "G18", says: "without a fault", plan: withSchedules,
		due: func(_ *world, _ *mutantState, d *store.Due) {
			d.Objects = slices.DeleteFunc(d.Objects, func(o *machine.Object) bool {
				return o.Kind == machine.ScheduleObject
			})
		}},
}

func withSchedules(p *plan) { p.schedules = true }
