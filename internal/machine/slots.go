package machine

import (
	"fmt"
	"time"

	"github.com/belaydev/belay"
)

// countMissed is how many missed slots one commit counts; it passes further ones without a count.
const countMissed = 10_000

// Pass sets what Fire needs to know of the slots that are due, from the slot From on, which is due at the time due. It
// returns the slots for which the caller adds submissions, at most most. Slots that are later than the catch-up window
// are missed.
func (c *Fire) Pass(cal Calendar, s *belay.Schedule, due, now Time, most int) (start []Time) {
	slot, oldest := c.From, now.Add(-s.CatchUp.D())
	for ; due != 0 && due <= now && len(start) < most; slot, due = cal.Next(s, slot) {
		if due >= oldest {
			start = append(start, slot)
			continue
		}
		c.Missed, c.MissedLast = c.Missed+1, slot
		if c.Missed >= countMissed {
			slot = max(slot, oldest.Add(-s.Jitter.D()-time.Microsecond)) // so that a slot at oldest comes next
		}
	}
	c.Next, c.Due = slot, due
	return start
}

// SlotsByHand returns the slots of a run or a backfill.
func SlotsByHand(cal Calendar, s *belay.Schedule, c *belay.ScheduleChange, now Time) ([]Time, error) {
	op := fmt.Sprintf("%s schedule %s", c.Action, c.Name)
	from, to := At(c.From), At(c.To)
	switch {
	case c.Action == belay.ScheduleRun && (!c.From.IsZero() || !c.To.IsZero()):
		return nil, refuse(belay.CodeInvalid, op, "from and to are for a backfill")
	case c.Action == belay.ScheduleRun:
		return []Time{now}, nil
	case c.From.IsZero() || c.To.IsZero():
		return nil, refuse(belay.CodeInvalid, op, "a backfill needs from and to")
	case to < from:
		return nil, refuse(belay.CodeInvalid, op, "to is before from")
	case to > now:
		return nil, refuse(belay.CodeInvalid, op,
			"to is in the future; the schedule itself starts the slots that come")
	}
	var all []Time
	slot, _ := cal.Next(s, from.Add(-time.Microsecond))
	for ; slot != 0 && slot <= to; slot, _ = cal.Next(s, slot) {
		if len(all) == belay.MaxBackfill {
			return nil, refuse(belay.CodeInvalid, op,
				"there are more than %d slots in this time; backfill a shorter one", belay.MaxBackfill)
		}
		all = append(all, slot)
	}
	if len(all) == 0 {
		return nil, refuse(belay.CodeInvalid, op, "the schedule has no slot from %s until %s",
			c.From.UTC().Format(time.RFC3339), c.To.UTC().Format(time.RFC3339))
	}
	return all, nil
}
