package machine

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// Slot is a slot of a schedule for which an execution is to be started.
type Slot struct {
	ID belay.ExecutionID
	// Terms are the terms of the schedule. Its Execution names no stored document: the engine has replaced
	// the name by the text.
	Terms *belay.Schedule
	Slot  Time
	// By is "run" or "backfill" if an operator starts the slot, and Op the operation of a run. Overlap, if
	// it is not empty, replaces that of the terms.
	By      string
	Op      belay.OpID
	Overlap belay.ScheduleOverlap
	Actor   string
	// Defaults are those of Submit.
	Defaults belay.Policy
	// Err says why nothing can be submitted.
	Err error

	submit *Submit
}

// Submit is the submission of the slot. Its idempotency key has the name of the schedule and the time of the
// slot, so that no slot starts twice.
func (s *Slot) Submit() *Submit {
	if s.submit != nil {
		return s.submit
	}
	x := s.Terms.Execution
	x.ID, x.Trigger, x.Actor = s.ID, belay.TriggerCron, s.Actor
	setDefault(&x.Actor, "schedule "+s.Terms.Name)
	x.IdempotencyKey = slotPrefix + s.Terms.Name + ":" + s.Slot.Time().UTC().Format(time.RFC3339Nano)
	if s.By == string(belay.ScheduleRun) {
		x.IdempotencyKey = slotPrefix + s.Terms.Name + ":run:" + s.Op.String()
	}
	x.TriggerPayload = payloadOf(belay.SchedulePayload{Schedule: s.Terms.Name, Slot: s.Slot.Time().UTC(), By: s.By})
	labels := map[string]string{belay.LabelSchedule: s.Terms.Name}
	maps.Copy(labels, x.Labels)
	x.Labels = labels
	c := &Submit{Submission: x, Defaults: s.Defaults, own: true}
	overlap := s.Overlap
	setDefault(&overlap, s.Terms.Overlap)
	if overlap != belay.AllowAll {
		c.Concurrency = &belay.Concurrency{Name: slotPrefix + s.Terms.Name, Max: 1}
	}
	switch overlap {
	case belay.SkipOverlap:
		c.room = 1
	case belay.BufferOne:
		c.room = 2
	case belay.BufferAll:
		c.room = belay.MaxScheduleBuffer + 1
	case belay.CancelOther:
		c.Concurrency.WhenFull = belay.ReplaceWhenFull
	case belay.AllowAll:
	}
	s.submit = c
	return c
}

// payloadOf is a payload as JSON.
func payloadOf(p belay.SchedulePayload) json.RawMessage {
	text, err := json.Marshal(p)
	if err != nil { // the time is beyond the year 9999, which no slot is
		return nil
	}
	return text
}

// Fire starts executions of a schedule: those of the slots whose time has come, or those that an operator
// starts. The engine computes the slots from the terms that it has read.
type Fire struct {
	Name string
	// Edit is the version of the terms from which the slots were computed. Fire is refused if the terms
	// have changed since.
	Edit  int
	Slots []*Slot
	// From is the next slot that the engine has read; 0 if an operator starts the slots. Fire is refused if
	// another server has fired that slot meanwhile.
	From Time
	// Next is the slot after Slots, and Due when it is due; both are 0 if there is none.
	Next, Due Time
	// Missed is the number of slots that are too late for the catch-up window, and MissedLast the last one.
	Missed     int64
	MissedLast Time
	// Action, Actor and Reason are for the audit, if an operator starts the slots.
	Action        belay.ScheduleAction
	Actor, Reason string
}

// Judge checks the submissions and computes their hashes.
func (c *Fire) Judge() {
	for _, s := range c.Slots {
		if s.Err == nil {
			s.Submit().Judge()
		}
	}
}

// Need asks the store for the object of the schedule, and for all that the submissions need.
func (c *Fire) Need(n *Need) {
	n.Objects = append(n.Objects, ScheduleRef(c.Name))
	for _, s := range c.Slots {
		if s.Err == nil {
			s.Submit().Need(n)
		}
	}
}

func (c *Fire) apply(w *world) (Reply, error) {
	op := "fire schedule " + c.Name
	if err := c.check(op); err != nil {
		return Reply{}, err
	}
	s, err := w.schedule(c.Name)
	switch {
	case err != nil:
		return Reply{}, err
	case s.row == nil:
		return Reply{}, noSchedule(op, c.Name)
	case s.body.Edit != c.Edit:
		return Reply{}, refuse(belay.CodeConflict, op, "the schedule was changed at this moment; try again")
	case c.From != 0 && (s.body.Next != c.From || s.due > w.Now || s.body.Paused != nil):
		return Reply{}, refuse(belay.CodeConflict, op, "the slot was fired already")
	}
	var slots []belay.ScheduleSlot
	if c.Missed > 0 {
		slots = append(slots, belay.ScheduleSlot{
			Slot: c.MissedLast.Time(), At: w.Now.Time(), Outcome: belay.SlotMissed, Count: c.Missed,
		})
	}
	for _, slot := range c.Slots {
		slots = append(slots, slot.start(w))
	}
	if c.From != 0 {
		s.body.Next, s.due = c.Next, c.Due
	}
	s.note(slots)
	r := Reply{Slots: slots}
	if c.From != 0 {
		err = s.advance(w)
	} else {
		_, err = s.write(w, op, edit{Action: string(c.Action)}, c.Actor, c.Reason)
	}
	if err == nil {
		r.Object = w.object(ScheduleRef(c.Name)).copy()
	}
	return r, err
}

// check refuses what an operator must not write, before any slot is started.
func (c *Fire) check(op string) error {
	for _, s := range c.Slots {
		if s.Overlap != "" {
			if err := checkOverlap(op, s.Overlap); err != nil {
				return err
			}
		}
	}
	return checkActor(op, c.Actor, c.Reason)
}

// start submits the execution of the slot, and says what happened.
func (s *Slot) start(w *world) belay.ScheduleSlot {
	out := belay.ScheduleSlot{Slot: s.Slot.Time(), At: w.Now.Time(), By: s.By}
	err := s.Err
	if err == nil {
		var r Reply
		if r, err = s.Submit().apply(w); err == nil {
			out.Execution, out.Outcome = r.ID, belay.SlotStarted
			if r.Replayed {
				out.Outcome = belay.SlotDone
			}
			return out
		}
	}
	switch belay.CodeOf(err) {
	case belay.CodeQueueFull:
		out.Outcome = belay.SlotSkipped
	case belay.CodeIdempotencyMismatch: // the schedule had other terms when the slot was started
		out.Outcome = belay.SlotDone
	default:
		out.Outcome = belay.SlotFailed
	}
	out.Text = clip(err.Error(), maxSlotText)
	return out
}

// note counts slots and remembers the newest. A backfill does not count slots that were started before.
func (s *schedule) note(slots []belay.ScheduleSlot) {
	counts := make(map[belay.ScheduleOutcome]int64, len(s.body.Counts)+1)
	maps.Copy(counts, s.body.Counts)
	var recent []belay.ScheduleSlot
	for _, slot := range slices.Backward(slots) {
		if slot.By != "" && slot.Outcome == belay.SlotDone {
			continue
		}
		counts[slot.Outcome] += max(1, slot.Count)
		if len(recent) < maxRecent {
			recent = append(recent, slot)
		}
	}
	recent = append(recent, s.body.Recent...)
	s.body.Counts, s.body.Recent = counts, recent[:min(len(recent), maxRecent)]
}

// advance writes the object of the schedule after slots have fired.
func (s *schedule) advance(w *world) error {
	body, err := scheduleCodec.encode(&s.body)
	if err != nil {
		return err
	}
	o := w.rewrite(ScheduleRef(s.name))
	o.Version, o.NextAt, o.UpdatedAt, o.Body = o.Version+1, s.due, w.Now, body
	return nil
}
