package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/catalog"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/retry"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/trigger"
)

const (
	// slotsAtATime is the largest number of slots of one schedule that one commit starts, and slotBytes about the
	// largest size of their inputs together.
	slotsAtATime = 100
	slotBytes    = 4 << 20
	// showNext is the number of next slots that Schedule shows.
	showNext = 10
)

// calendar computes the times of the schedules of all engines in this process.
var calendar = &trigger.Calendar{}

// PutSchedule creates a schedule or changes its terms.
func (e *Engine) PutSchedule(ctx context.Context, p belay.SchedulePut) (belay.SchedulePutResult, error) {
	if err := e.checkDocument(ctx, p.Execution.Document); err != nil {
		return belay.SchedulePutResult{}, err
	}
	c := &machine.PutSchedule{SchedulePut: p, Calendar: calendar}
	e.committer.payloadChecks.precheck(c)
	r, err := e.do(ctx, c)
	if err != nil {
		return belay.SchedulePutResult{}, err
	}
	info, err := scheduleInfo(r.Object, e.store.Now())
	return belay.SchedulePutResult{
		ScheduleInfo: info, Created: info.Version == 1 && !r.Replayed, Changed: !r.Replayed,
	}, err
}

// ChangeSchedule carries out an action on a schedule.
func (e *Engine) ChangeSchedule(ctx context.Context, c belay.ScheduleChange) (belay.ScheduleChanged, error) {
	if c.Action == belay.ScheduleRun || c.Action == belay.ScheduleBackfill {
		return e.startSlots(ctx, &c)
	}
	r, err := e.do(ctx, &machine.ChangeSchedule{ScheduleChange: c, Calendar: calendar})
	if err != nil {
		return belay.ScheduleChanged{}, err
	}
	if c.Action == belay.ScheduleRemove {
		return belay.ScheduleChanged{Schedule: belay.ScheduleInfo{Schedule: belay.Schedule{Name: c.Name}}}, nil
	}
	info, err := scheduleInfo(r.Object, e.store.Now())
	return belay.ScheduleChanged{Schedule: info}, err
}

// Schedules lists schedules without their next slots.
func (r *Reader) Schedules(ctx context.Context, f belay.ScheduleFilter) (belay.SchedulePage, error) {
	page := belay.SchedulePage{Schedules: []belay.ScheduleInfo{}}
	found, err := r.store.Query(ctx, store.Query{
		Of: store.Objects, Kind: machine.ScheduleObject, After: f.Cursor, Limit: f.Limit,
	})
	if err != nil {
		return page, err
	}
	page.Next = found.Next
	for _, o := range found.Objects {
		v, err := machine.ScheduleView(o)
		if err != nil {
			return page, err
		}
		page.Schedules = append(page.Schedules, v)
	}
	return page, nil
}

// Schedule reads one schedule with its next slots.
func (r *Reader) Schedule(ctx context.Context, name string) (belay.ScheduleInfo, error) {
	o, err := r.scheduleObject(ctx, name)
	if err != nil {
		return belay.ScheduleInfo{}, err
	}
	return scheduleInfo(o, r.store.Now())
}

func (r *Reader) scheduleObject(ctx context.Context, name string) (*machine.Object, error) {
	op := "read schedule " + name
	if err := belay.CheckScheduleName(op, name); err != nil {
		return nil, err
	}
	o, err := r.object(ctx, machine.ScheduleRef(name))
	if err == nil && o == nil {
		err = &belay.Error{
			Code: belay.CodeNotFound, Op: op,
			Message: fmt.Sprintf("there is no schedule %s; `belay schedules ls` lists them", name),
		}
	}
	return o, err
}

// scheduleInfo is a schedule with its next slots.
func scheduleInfo(o *machine.Object, now machine.Time) (belay.ScheduleInfo, error) {
	v, err := machine.ScheduleView(o)
	if err != nil || v.Paused != nil {
		return v, err
	}
	slot := now
	for range showNext {
		if slot, _ = calendar.Next(&v.Schedule, slot); slot == 0 {
			break
		}
		v.Next = append(v.Next, slot.Time())
	}
	return v, nil
}

// startSlots starts the slots of a run or a backfill.
func (e *Engine) startSlots(ctx context.Context, c *belay.ScheduleChange) (out belay.ScheduleChanged, err error) {
	op := fmt.Sprintf("%s schedule %s", c.Action, c.Name)
	if err := e.committer.admit(); err != nil {
		return out, err
	}
	o, err := e.scheduleObject(ctx, c.Name)
	if err != nil {
		return out, err
	}
	info, err := machine.ScheduleView(o)
	if err != nil {
		return out, err
	}
	if c.IfVersion != 0 && c.IfVersion != info.Version {
		return out, &belay.Error{Code: belay.CodeConflict, Op: op, Message: fmt.Sprintf(
			"the version of the schedule is %d, not %d: read it again", info.Version, c.IfVersion)}
	}
	at, err := machine.SlotsByHand(calendar, &info.Schedule, c, e.store.Now())
	if err != nil {
		return out, err
	}
	d := &documents{engine: e}
	terms, err := d.complete(ctx, &info.Schedule)
	if err != nil {
		return out, err
	}
	if c.Op.IsZero() {
		c.Op = belay.OpID(e.opt.IDs())
	}
	if c.Overlap == "" {
		c.Overlap = belay.AllowAll
	}
	for len(at) > 0 {
		n := min(len(at), most(terms))
		fire := &machine.Fire{
			Name: c.Name, Edit: info.Version, Action: c.Action, Actor: c.Actor, Reason: c.Reason,
		}
		for _, slot := range at[:n] {
			fire.Slots = append(fire.Slots, &machine.Slot{
				ID: belay.ExecutionID(e.opt.IDs()), Terms: terms, Slot: slot, By: string(c.Action), Op: c.Op,
				Overlap: c.Overlap, Actor: c.Actor, Defaults: e.opt.Defaults,
			})
		}
		at = at[n:]
		e.committer.payloadChecks.precheck(fire)
		r, err := e.do(ctx, fire)
		if err != nil {
			return out, err
		}
		out.Slots = append(out.Slots, r.Slots...)
		if out.Schedule, err = scheduleInfo(r.Object, e.store.Now()); err != nil {
			return out, err
		}
	}
	return out, nil
}

// most is the largest number of slots of a schedule for one commit.
func most(s *belay.Schedule) int {
	return max(1, min(slotsAtATime, slotBytes/(1+len(s.Execution.Input))))
}

// documents replaces the names of stored documents in schedules by their texts. It reads each document once.
type documents struct {
	engine *Engine
	read   map[string]belay.Document
}

// Document implements catalog.Texts.
func (d *documents) Document(ctx context.Context, name string, version int) (belay.Document, error) {
	ref := belay.DocumentRef{Name: name, Version: version}.String()
	if doc, known := d.read[ref]; known {
		return doc, nil
	}
	doc, err := d.engine.Document(ctx, name, version)
	if err == nil {
		if d.read == nil {
			d.read = make(map[string]belay.Document)
		}
		d.read[ref] = doc
	}
	return doc, err
}

// complete returns the terms of a schedule with a complete submission; see package catalog.
func (d *documents) complete(ctx context.Context, s *belay.Schedule) (*belay.Schedule, error) {
	terms := *s
	var err error
	terms.Execution, err = catalog.Complete(ctx, d, s.Execution)
	return &terms, err
}

// firing starts the slots of schedules that the sweeper finds due. It has a goroutine of its own, because it may read
// many documents, and the sweeper must end expired sessions meanwhile.
type firing struct {
	engine *Engine
	due    chan []*machine.Object
}

func newFiring(e *Engine) *firing { return &firing{engine: e, due: make(chan []*machine.Object, 1)} }

// offer passes on the schedules among the due objects, unless the goroutine is busy: it wakes the sweeper when it has
// done its work, and then gets what is still due.
func (f *firing) offer(objects []*machine.Object) {
	var schedules []*machine.Object
	for _, o := range objects {
		if o.Kind == machine.ScheduleObject {
			schedules = append(schedules, o)
		}
	}
	if len(schedules) == 0 {
		return
	}
	select {
	case f.due <- schedules:
	default:
	}
}

const (
	// firePause is when the sweeper looks for further slots that are due, and fireAgain when it looks again for
	// slots that could not be started.
	firePause, fireAgain = time.Millisecond, 200 * time.Millisecond
)

// run starts slots until ctx ends.
func (f *firing) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case due := <-f.due:
			commands, done := f.engine.fires(ctx, due)
			sent, passed, _ := f.engine.sweeper.send(ctx, commands)
			if sent == 0 && done {
				continue // no schedule could be read; the sweeper must not find them again at once
			}
			pause := firePause
			if passed < sent || !done {
				pause = fireAgain
			}
			retry.Sleep(ctx, pause)
			f.engine.sweeper.nudge()
		}
	}
}

// fires returns the commands that start the slots which are due. done is false if the store could not be read.
func (e *Engine) fires(ctx context.Context, due []*machine.Object) (out []machine.Command, done bool) {
	d, done := &documents{engine: e}, true
	for _, o := range due {
		fire, err := e.fire(ctx, o, d)
		switch {
		case belay.CodeOf(err) == belay.CodeUnavailable:
			done = false
		case err != nil:
			e.log.Error("a schedule cannot be read; its slots do not start", "schedule", o.Name, "error", err)
		default:
			fire.Judge()
			out = append(out, fire)
		}
	}
	return out, done
}

// fire returns the command for the slots of one schedule that are due.
func (e *Engine) fire(ctx context.Context, o *machine.Object, d *documents) (*machine.Fire, error) {
	info, next, err := machine.DueSchedule(o)
	if err != nil {
		return nil, err
	}
	f := &machine.Fire{Name: o.Name, Edit: info.Version, From: next}
	terms, failed := d.complete(ctx, &info.Schedule)
	if belay.CodeOf(failed) == belay.CodeUnavailable {
		return nil, failed
	}
	for _, slot := range f.Pass(calendar, &info.Schedule, o.NextAt, e.store.Now(), most(terms)) {
		f.Slots = append(f.Slots, &machine.Slot{
			ID: belay.ExecutionID(e.opt.IDs()), Terms: terms, Slot: slot, Err: failed, Defaults: e.opt.Defaults,
		})
	}
	return f, nil
}
