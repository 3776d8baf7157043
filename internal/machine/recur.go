package machine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// ScheduleObject is the kind of the objects that store schedules. The NextAt of such an object is when its next
// slot is due. Only operators change the terms of a schedule; a slot that fires changes the times and the
// counts of the object, and writes no audit, because the execution that it starts names it.
const ScheduleObject ObjectKind = "schedule"

// scheduleCountObject is the kind of the one object that has the number of schedules.
const scheduleCountObject ObjectKind = "schedule_count"

var (
	scheduleCodec      = codec[scheduleBody]{ScheduleObject}
	scheduleCountCodec = codec[total]{scheduleCountObject}
	scheduleCountRef   = scheduleCountCodec.ref("all")
)

// ScheduleRef is the name of a schedule's object.
func ScheduleRef(name string) ObjectRef { return scheduleCodec.ref(name) }

// Calendar computes the times of schedules. It depends on nothing but its arguments.
type Calendar interface {
	// Check returns CodeInvalid if the times of a schedule are wrong.
	Check(s *belay.Schedule) error
	// Next returns the first slot after a time, and when it is due, which is later by the jitter. Both are
	// 0 if there is no further slot.
	Next(s *belay.Schedule, after Time) (slot, due Time)
}

// scheduleBody is the body of the object of a schedule.
type scheduleBody struct {
	edited
	Terms belay.Schedule `json:"terms"`
	// Next is the next slot, without its jitter; 0 if there is none. Slots before it never fire again
	// by their time.
	Next   Time                            `json:"next,omitzero"`
	Counts map[belay.ScheduleOutcome]int64 `json:"counts,omitempty"`
	Recent []belay.ScheduleSlot            `json:"recent,omitempty"` // the newest first
}

const (
	// maxRecent is how many slots a schedule remembers.
	maxRecent = 10
	// maxSlotText is the largest length of the text of a slot, in bytes.
	maxSlotText = 300
	// slotPrefix begins the idempotency keys and the limits that Belay makes for schedules.
	slotPrefix = "schedule:"
)

// ScheduleView decodes a schedule from its object.
func ScheduleView(o *Object) (belay.ScheduleInfo, error) {
	b, err := scheduleCodec.decode(o)
	if err != nil {
		return belay.ScheduleInfo{}, err
	}
	return b.view(o.NextAt), nil
}

// DueSchedule decodes a schedule whose slot is due, and returns that slot.
func DueSchedule(o *Object) (s belay.ScheduleInfo, slot Time, err error) {
	b, err := scheduleCodec.decode(o)
	if err != nil {
		return s, 0, err
	}
	return b.view(o.NextAt), b.Next, nil
}

func (b *scheduleBody) view(next Time) belay.ScheduleInfo {
	v := belay.ScheduleInfo{
		Schedule: b.Terms, Version: b.Edit, CreatedAt: b.CreatedAt.Time(), UpdatedAt: b.EditedAt.Time(),
		UpdatedBy: b.EditedBy, DefinedBy: b.Document, Recent: b.Recent, Slots: b.Counts,
	}
	if next != 0 {
		v.NextAt = next.Time()
	}
	if p := b.Paused; p != nil {
		v.Paused = &belay.SchedulePause{At: p.At.Time(), By: p.By, Reason: p.Reason}
	}
	return v
}

// PutSchedule creates a schedule or changes its terms. It is also a part of ApplyDocument.
type PutSchedule struct {
	belay.SchedulePut
	Calendar Calendar
	judged   *judgedTerms
}

type judgedTerms struct {
	text []byte // the terms as JSON, to compare them
	err  error
}

// Judge checks the terms.
func (c *PutSchedule) Judge() {
	if c.judged != nil {
		return
	}
	c.judged = &judgedTerms{err: c.check()}
	if c.judged.err == nil {
		c.judged.text, c.judged.err = json.Marshal(&c.Schedule)
	}
	if n := len(c.judged.text); n > belay.MaxScheduleBytes {
		c.judged.err = refuse(belay.CodePayloadTooLarge, "put schedule",
			"the schedule has %d bytes as JSON; the limit is %d", n, belay.MaxScheduleBytes)
	}
}

// Check judges the terms and returns their error.
func (c *PutSchedule) Check() error {
	c.Judge()
	return c.judged.err
}

func (c *PutSchedule) check() error {
	const op = "put schedule"
	s := &c.Schedule
	if err := belay.CheckScheduleName(op, s.Name); err != nil {
		return err
	}
	if err := checkEdit(op, c.Actor, c.Reason, c.IfVersion, c.IfNew); err != nil {
		return err
	}
	setDefault(&s.Overlap, belay.SkipOverlap)
	setDefault(&s.CatchUp, belay.DefaultCatchUp)
	if err := checkOverlap(op, s.Overlap); err != nil {
		return err
	}
	if s.CatchUp < belay.Duration(time.Second) || s.CatchUp > belay.Duration(366*24*time.Hour) {
		return refuse(belay.CodeInvalid, op, "catch_up is %s; it can be from 1s to 8784h (a year)", s.CatchUp.D())
	}
	if err := c.Calendar.Check(s); err != nil {
		return err
	}
	return checkScheduled(op, s)
}

// checkScheduled checks the description of the executions of a schedule.
func checkScheduled(op string, s *belay.Schedule) error {
	x := &s.Execution
	if l, set := x.Labels[belay.LabelSchedule]; set && l != s.Name {
		return refuse(belay.CodeInvalid, op, "the label %s is %q; Belay sets it to %q", belay.LabelSchedule, l, s.Name)
	}
	if err := checkTriggered(op, "schedule", x); err != nil {
		return err
	}
	if x.Concurrency != nil && s.Overlap != belay.AllowAll {
		return refuse(belay.CodeInvalid, op,
			"with the overlap %s the execution of a schedule has no concurrency; Belay sets it", s.Overlap)
	}
	sample := *s
	if sample.Execution.Document != "" {
		sample.Execution.Document, sample.Execution.Workflow = "", "document"
	}
	slot := Slot{ID: belay.ExecutionID{1}, Terms: &sample, Slot: 1}
	return slot.Submit().check()
}

func checkOverlap(op string, o belay.ScheduleOverlap) error {
	switch o {
	case belay.SkipOverlap, belay.BufferOne, belay.BufferAll, belay.CancelOther, belay.AllowAll:
		return nil
	}
	return refuse(belay.CodeInvalid, op,
		"overlap is %q; it can be skip, buffer_one, buffer_all, cancel_other or allow_all", o)
}

func checkActor(op, actor, reason string) error {
	if err := checkName(op, "the actor", actor, false); err != nil {
		return err
	}
	return checkName(op, "the reason", reason, false)
}

// Need asks the store for the object of the schedule, and for the number of schedules.
func (c *PutSchedule) Need(n *Need) {
	n.Objects = append(n.Objects, ScheduleRef(c.Name), scheduleCountRef)
}

func (c *PutSchedule) apply(w *world) (Reply, error) {
	c.Judge()
	if c.judged.err != nil {
		return Reply{}, c.judged.err
	}
	op := "put schedule " + c.Name
	s, err := w.schedule(c.Name)
	if err != nil {
		return Reply{}, err
	}
	done := edit{Op: c.Op, Action: "put"}
	if found, err := s.body.repeated(op, done); found {
		return Reply{Object: s.row.copy(), Replayed: true}, err
	}
	if err := s.body.expect(op, "schedule", s.row != nil, c.IfVersion, c.IfNew); err != nil {
		return Reply{}, err
	}
	if err := s.body.free(op, "schedule"); err != nil {
		return Reply{}, err
	}
	if s.row == nil {
		if err := w.countSchedules(op, 1); err != nil {
			return Reply{}, err
		}
	} else if c.same(s) {
		return Reply{Object: s.row.copy(), Replayed: true}, nil
	}
	return c.set(w, op, s, done)
}

// same reports whether a schedule has the terms already.
func (c *PutSchedule) same(s *schedule) bool {
	old, err := json.Marshal(&s.body.Terms)
	return err == nil && bytes.Equal(old, c.judged.text)
}

// set gives a schedule the terms.
func (c *PutSchedule) set(w *world, op string, s *schedule, done edit) (Reply, error) {
	if s.row == nil {
		s.body.CreatedAt = w.Now
	}
	s.body.Terms = c.Schedule
	s.body.change(w.Now, c.Actor)
	s.plan(c.Calendar, w.Now)
	return s.write(w, op, done, c.Actor, c.Reason)
}

// ChangeSchedule pauses, resumes or removes a schedule.
type ChangeSchedule struct {
	belay.ScheduleChange
	Calendar Calendar
}

// Need asks the store for the object of the schedule, and for the number of schedules.
func (c *ChangeSchedule) Need(n *Need) {
	n.Objects = append(n.Objects, ScheduleRef(c.Name), scheduleCountRef)
}

func (c *ChangeSchedule) apply(w *world) (Reply, error) {
	op := fmt.Sprintf("%s schedule %s", c.Action, c.Name)
	if err := belay.CheckScheduleName(op, c.Name); err != nil {
		return Reply{}, err
	}
	if err := checkActor(op, c.Actor, c.Reason); err != nil {
		return Reply{}, err
	}
	s, err := w.schedule(c.Name)
	if err != nil {
		return Reply{}, err
	}
	if s.row == nil {
		return Reply{}, noSchedule(op, c.Name)
	}
	done := edit{Op: c.Op, Action: string(c.Action)}
	if found, err := s.body.repeated(op, done); found {
		return Reply{Object: s.row.copy(), Replayed: true}, err
	}
	if err := s.body.expect(op, "schedule", true, c.IfVersion, false); err != nil {
		return Reply{}, err
	}
	switch c.Action {
	case belay.SchedulePauseAction:
		if s.body.Paused != nil && s.body.Paused.Reason == c.Reason {
			return Reply{Object: s.row.copy(), Replayed: true}, nil
		}
		s.body.Paused = &paused{At: w.Now, By: c.Actor, Reason: c.Reason}
		s.due, s.body.Next = 0, 0
	case belay.ScheduleResume:
		if s.body.Paused == nil {
			return Reply{Object: s.row.copy(), Replayed: true}, nil
		}
		s.body.Paused = nil
		s.plan(c.Calendar, w.Now)
	case belay.ScheduleRemove:
		if err := s.body.free(op, "schedule"); err != nil {
			return Reply{}, err
		}
		if err := w.countSchedules(op, -1); err != nil {
			return Reply{}, err
		}
		return s.remove(w, op, done, c.Actor, c.Reason)
	default:
		return Reply{}, refuse(belay.CodeInvalid, op, "there is no action %q on a schedule", c.Action)
	}
	s.body.change(w.Now, c.Actor)
	return s.write(w, op, done, c.Actor, c.Reason)
}

func noSchedule(op, name string) error {
	return refuse(belay.CodeNotFound, op, "there is no schedule %s; `belay schedules ls` lists them", name)
}

// schedule is the object of a schedule in the state after the earlier commands of the batch. body is a copy
// that the present command may change.
type schedule struct {
	name string
	row  *Object // nil if there is none
	due  Time    // when the next slot is due
	body scheduleBody
}

func (w *world) schedule(name string) (*schedule, error) {
	s := &schedule{name: name, row: w.object(ScheduleRef(name))}
	if s.row != nil && s.row.Gone {
		s.row = nil
	}
	if s.row == nil {
		return s, nil
	}
	b, err := scheduleCodec.decode(s.row)
	if err != nil {
		return nil, err
	}
	s.body, s.due = *b, s.row.NextAt
	return s, nil
}

// plan sets the next slot to the first one after now.
func (s *schedule) plan(c Calendar, now Time) {
	if s.body.Next, s.due = 0, 0; s.body.Paused == nil {
		s.body.Next, s.due = c.Next(&s.body.Terms, now)
	}
}

// remove removes the schedule.
func (s *schedule) remove(w *world, op string, done edit, actor, reason string) (Reply, error) {
	r, err := s.write(w, op, done, actor, reason)
	if err == nil {
		w.rewrite(ScheduleRef(s.name)).Gone = true
	}
	return r, err
}

// write writes the object of the schedule, and an entry in the audit.
func (s *schedule) write(w *world, op string, done edit, actor, reason string) (Reply, error) {
	about := s.body.remember(done, reason)
	body, err := scheduleCodec.encode(&s.body)
	if err != nil {
		return Reply{}, err
	}
	expected := int64(0)
	if s.row != nil {
		expected = s.row.Version
	}
	return w.put(op, put{
		ref: ScheduleRef(s.name), expected: expected, next: s.due, body: body, action: done.Action, actor: actor,
		reason: about, op: done.Op,
	})
}

// countSchedules adds by to the number of schedules, and refuses a number above the limit.
func (w *world) countSchedules(op string, by int) error {
	return w.count(op, scheduleCountCodec, "schedules", by, belay.MaxSchedules)
}

// reserved reports whether a name is one that Belay makes for what schedules and webhooks start.
func reserved(name string) bool {
	return slices.ContainsFunc([]string{slotPrefix, deliveryPrefix, testPrefix, replayPrefix}, func(own string) bool {
		return strings.HasPrefix(name, own)
	})
}
