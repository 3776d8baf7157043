package simulation

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/trigger"
)

// g18 checks that each slot of a schedule starts once. Each commit that moves a schedule on accounts for every slot
// between the former next slot and the new one: it starts an execution for it, or counts why it does not. No slot of
// a schedule has two executions, unless the first was deleted. While there are no faults, no slot is late.
func g18(f *finding) {
	c := &slotChecker{
		finding: f, now: make(map[string]*known), started: make(map[string]belay.ExecutionID),
	}
	for _, x := range f.commits {
		c.commit(x)
	}
}

type slotChecker struct {
	*finding
	now     map[string]*known
	started map[string]belay.ExecutionID // by idempotency key
}

// known is a schedule after a commit.
type known struct {
	belay.ScheduleInfo
	next machine.Time
	due  machine.Time
}

var slotCalendar = &trigger.Calendar{}

func (f *slotChecker) commit(c *commit) {
	slots := f.startedIn(c)
	for _, o := range c.changes.Objects {
		if o.Kind != machine.ScheduleObject {
			continue
		}
		v, next, err := machine.DueSchedule(o)
		if err != nil {
			f.violation(nil, c, "the schedule %s cannot be read: %v", o.Name, err)
			continue
		}
		was := f.now[o.Name]
		switch {
		case o.Gone:
			f.removed(c, was)
			delete(f.now, o.Name)
			delete(slots, o.Name)
			continue
		case was == nil || was.Version != v.Version || !was.CreatedAt.Equal(v.CreatedAt):
			f.edited(c, &v, next)
		default:
			f.moved(c, was, &v, next, slots[o.Name])
		}
		delete(slots, o.Name)
		f.now[o.Name] = &known{v, next, o.NextAt}
	}
	for name := range slots {
		f.violation(nil, c, "slots of %s were started, and its row was not written", name)
	}
}

// startedIn returns the slots that a commit has started by their time, by schedule.
func (f *slotChecker) startedIn(c *commit) map[string][]machine.Time {
	slots := make(map[string][]machine.Time)
	for _, s := range c.changes.Specs {
		var p belay.SchedulePayload
		if !strings.HasPrefix(s.Key, "schedule:") || s.Generation != 1 || json.Unmarshal(s.TriggerPayload, &p) != nil {
			continue
		}
		if old, twice := f.started[s.Key]; twice && old != s.Execution {
			if _, deleted := f.deleted[old]; !deleted {
				f.violation(f.byID[s.Execution], c, "the slot %s was started again; %s is its execution", s.Key,
					short(old))
			}
		}
		f.started[s.Key] = s.Execution
		if p.By == "" {
			slots[p.Schedule] = append(slots[p.Schedule], machine.At(p.Slot))
		} else {
			f.count("slot started by hand")
		}
	}
	return slots
}

func (f *slotChecker) edited(c *commit, v *belay.ScheduleInfo, next machine.Time) {
	want := machine.Time(0)
	if v.Paused == nil {
		want, _ = slotCalendar.Next(&v.Schedule, c.at)
	}
	if next != want {
		f.violation(nil, c, "%s was changed, and its next slot is %s, not %s", v.Name, next.Time(), want.Time())
	}
	f.OK()
}

// moved checks the slots from the former next slot of a schedule to the new one.
func (f *slotChecker) moved(c *commit, was *known, v *belay.ScheduleInfo, next machine.Time, started []machine.Time) {
	passed := 0
	left := slices.Clone(started)
	for slot := was.next; slot != 0 && slot < next; slot, _ = slotCalendar.Next(&v.Schedule, slot) {
		passed++
		if i := slices.Index(left, slot); i >= 0 {
			left = slices.Delete(left, i, i+1)
			f.count("slot started")
		}
		f.OK()
	}
	if len(left) > 0 {
		f.violation(nil, c, "the slot %s of %s was started, and its next slots were from %s to %s", left[0].Time(),
			v.Name, was.next.Time(), next.Time())
	}
	other := int64(0)
	for _, o := range []belay.ScheduleOutcome{belay.SlotSkipped, belay.SlotMissed, belay.SlotDone, belay.SlotFailed} {
		n := v.Slots[o] - was.Slots[o]
		other += n
		if n > 0 {
			f.count("slot " + string(o))
		}
	}
	if got := int64(len(started)) + other; got != int64(passed) {
		f.violation(nil, c, "%s went from %s to %s, past %d slots, and %d have a result: %v", v.Name, was.next.Time(),
			next.Time(), passed, got, maps.Collect(maps.All(v.Slots)))
	}
	if v.Slots[belay.SlotMissed] > was.Slots[belay.SlotMissed] {
		f.missed(c, v)
	}
}

// missed checks that missed slots were later than the catch-up window.
func (f *slotChecker) missed(c *commit, v *belay.ScheduleInfo) {
	for _, s := range v.Recent {
		if s.Outcome == belay.SlotMissed && machine.At(s.At) == c.at && c.at.Sub(machine.At(s.Slot)) < v.CatchUp.D() {
			f.violation(nil, c, "the slot %s of %s counts as missed after %s; its window is %s", s.Slot, v.Name,
				c.at.Sub(machine.At(s.Slot)), v.CatchUp.D())
		}
	}
}

// lateSlot is the longest time for which a slot may be late while there are no faults.
const lateSlot = 1500 * time.Millisecond

func (f *slotChecker) removed(c *commit, was *known) {
	if was == nil || was.due == 0 || c.real < f.healed+schedulesGoOn {
		return
	}
	if late := c.at.Sub(was.due); late > lateSlot {
		f.violation(nil, c, "the slot %s of %s was late by %s without a fault", was.next.Time(), was.Name, late)
	}
	f.OK()
}
