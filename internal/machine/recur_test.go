package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// minutes is a calendar with a slot at the start of each minute.
type minutes struct{}

func (minutes) Check(s *belay.Schedule) error {
	if s.Every != belay.Duration(time.Minute) {
		return refuse(belay.CodeInvalid, "schedule", "every is %s", s.Every.D())
	}
	return nil
}

func (minutes) Next(s *belay.Schedule, after Time) (slot, due Time) {
	slot = At(after.Time().Truncate(time.Minute).Add(time.Minute))
	return slot, slot.Add(s.Jitter.D())
}

// putTimes sets the schedule s.
func putTimes(with ...func(*belay.SchedulePut)) *PutSchedule {
	c := &PutSchedule{SchedulePut: belay.SchedulePut{Schedule: belay.Schedule{
		Name: "s", Every: belay.Duration(time.Minute), Execution: belay.Submission{Workflow: "w"},
	}, Actor: "ann"}, Calendar: minutes{}}
	for _, f := range with {
		f(&c.SchedulePut)
	}
	return c
}

func changeTimes(action belay.ScheduleAction, with ...func(*belay.ScheduleChange)) *ChangeSchedule {
	c := &ChangeSchedule{
		ScheduleChange: belay.ScheduleChange{Name: "s", Action: action, Actor: "me"}, Calendar: minutes{},
	}
	for _, f := range with {
		f(&c.ScheduleChange)
	}
	return c
}

// times describes the schedule s: its version, its next slot in minutes after the first, and the number of its slots
// by outcome.
func (s *stage) times(first Time) string {
	s.t.Helper()
	o := s.objects[ScheduleRef("s")]
	if o == nil {
		return "none"
	}
	v, next, err := DueSchedule(o)
	if err != nil {
		s.t.Fatal(err)
	}
	text := fmt.Sprintf("v%d", v.Version)
	if next != 0 {
		text += fmt.Sprintf(" +%d", int(next.Sub(first)/time.Minute))
	}
	for _, o := range []belay.ScheduleOutcome{
		belay.SlotStarted, belay.SlotSkipped, belay.SlotMissed, belay.SlotFailed, belay.SlotDone,
	} {
		if n := v.Slots[o]; n > 0 {
			text += fmt.Sprintf(" %d %s", n, o)
		}
	}
	return text
}

// fired fires slots of the schedule s, which the caller gives in minutes after the first.
func (s *stage) fired(first Time, edit, from int, with func(*Fire), slots ...int) *Fire {
	s.t.Helper()
	at := func(n int) Time { return first.Add(time.Duration(n) * time.Minute) }
	f := &Fire{Name: "s", Edit: edit, From: at(from), Next: at(from + len(slots)), Due: at(from + len(slots))}
	terms := belay.Schedule{
		Name: "s", Every: belay.Duration(time.Minute), Overlap: belay.SkipOverlap,
		Execution: belay.Submission{Workflow: "w"},
	}
	if o := s.objects[ScheduleRef("s")]; o != nil {
		v, err := ScheduleView(o)
		if err != nil {
			s.t.Fatal(err)
		}
		terms = v.Schedule
	}
	for _, n := range slots {
		f.Slots = append(f.Slots, &Slot{ID: s.id(), Terms: &terms, Slot: at(n)})
	}
	if with != nil {
		with(f)
	}
	return f
}

// scheduleStep is a change of the schedule s, and its description afterwards.
type scheduleStep struct {
	c    func(s *stage, first Time) Command
	code belay.Code // empty if the command is accepted
	want string
}

// scheduleSteps are changes of one schedule, each half a minute after the one before. The first slot comes half a
// minute after the second step.
func scheduleSteps() []scheduleStep {
	put := func(with ...func(*belay.SchedulePut)) func(*stage, Time) Command {
		return func(*stage, Time) Command { return putTimes(with...) }
	}
	change := func(a belay.ScheduleAction, with ...func(*belay.ScheduleChange)) func(*stage, Time) Command {
		return func(*stage, Time) Command { return changeTimes(a, with...) }
	}
	fire := func(edit, from int, with func(*Fire), slots ...int) func(*stage, Time) Command {
		return func(s *stage, first Time) Command { return s.fired(first, edit, from, with, slots...) }
	}
	ifVersion := func(n int) func(*belay.SchedulePut) { return func(p *belay.SchedulePut) { p.IfVersion = n } }
	allowAll := func(p *belay.SchedulePut) { p.Overlap = belay.AllowAll }
	byHand := func(f *Fire) {
		f.From, f.Action = 0, belay.ScheduleBackfill
		for _, s := range f.Slots {
			s.By, s.Overlap = "backfill", belay.AllowAll
		}
	}
	return []scheduleStep{
		{fire(1, 0, nil, 0), belay.CodeNotFound, "none"},
		{put(func(p *belay.SchedulePut) { p.IfNew = true }), "", "v1 +0"},
		{put(func(p *belay.SchedulePut) { p.IfNew = true }), belay.CodeConflict, "v1 +0"},
		{put(), "", "v1 +0"},                                                  // the same terms
		{put(ifVersion(2)), belay.CodeConflict, "v1 +0"},                      //
		{fire(2, 0, nil, 0), belay.CodeConflict, "v1 +0"},                     // other terms
		{fire(1, 1, nil, 1), belay.CodeConflict, "v1 +0"},                     // another slot
		{fire(1, 0, nil, 0), "", "v1 +1 1 started"},                           //
		{fire(1, 0, nil, 0), belay.CodeConflict, "v1 +1 1 started"},           // fired already
		{fire(1, 1, nil, 1, 2), "", "v1 +3 1 started 2 skipped"},              // the first has not ended
		{fire(1, 4, nil, 4), belay.CodeConflict, "v1 +3 1 started 2 skipped"}, // another slot
		{fire(1, 0, byHand, 0, 2), "", "v1 +3 2 started 2 skipped"},           // 0 was started
		{fire(1, 0, byHand, 0, 2), "", "v1 +3 2 started 2 skipped"},           //
		{put(allowAll, ifVersion(1)), "", "v2 +6 2 started 2 skipped"},        // counts from now
		{change(belay.SchedulePauseAction), "", "v3 2 started 2 skipped"},     //
		{change(belay.SchedulePauseAction), "", "v3 2 started 2 skipped"},     //
		{fire(3, 6, nil, 6), belay.CodeConflict, "v3 2 started 2 skipped"},    //
		{change(belay.ScheduleResume), "", "v4 +8 2 started 2 skipped"},       //
		{change("burn"), belay.CodeInvalid, "v4 +8 2 started 2 skipped"},      //
		{fire(4, 8, nil, 8), "", "v4 +9 3 started 2 skipped"},
		{fire(4, 9, func(f *Fire) { f.Missed, f.MissedLast = 3, f.From }, 9), "",
			"v4 +10 4 started 2 skipped 3 missed"},
		{fire(4, 10, nil, 10), belay.CodeConflict, "v4 +10 4 started 2 skipped 3 missed"}, // not due yet
		{fire(4, 10, func(f *Fire) { f.Slots[0].Err = noSchedule("read", "d") }, 10), "",
			"v4 +11 4 started 2 skipped 3 missed 1 failed"},
		{change(belay.ScheduleRemove), "", "none"},
		{change(belay.ScheduleRemove), belay.CodeNotFound, "none"},
		{put(ifVersion(4)), belay.CodeConflict, "none"},
		{put(), "", "v1 +13"},
	}
}

// Rule: slots within the catch-up window start, and older ones are missed, however many there are.
func TestSlotsAreMissedAfterTheCatchUpWindow(t *testing.T) {
	from := At(time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC))
	at := func(n int) Time { return from.Add(time.Duration(n) * time.Minute) }
	s := &belay.Schedule{CatchUp: belay.Duration(3 * time.Minute)}
	for _, x := range []struct {
		now, most  int // minutes after the first slot
		start      []Time
		missed     int64
		last, next Time
	}{
		{-1, 9, nil, 0, 0, at(0)},
		{0, 9, []Time{at(0)}, 0, 0, at(1)},
		{3, 9, []Time{at(0), at(1), at(2), at(3)}, 0, 0, at(4)},
		{3, 2, []Time{at(0), at(1)}, 0, 0, at(2)},
		{5, 9, []Time{at(2), at(3), at(4), at(5)}, 2, at(1), at(6)},
		{
			20_000, 9, []Time{at(19_997), at(19_998), at(19_999), at(20_000)}, countMissed, at(countMissed - 1),
			at(20_001),
		},
	} {
		f := &Fire{From: from}
		start := f.Pass(minutes{}, s, from, at(x.now), x.most)
		if !slices.Equal(start, x.start) || f.Missed != x.missed || f.MissedLast != x.last || f.Next != x.next {
			t.Errorf("after %d minutes: %v start, %d missed until %v, next %v", x.now, start, f.Missed, f.MissedLast,
				f.Next)
		}
	}
}

// Rule: an operator's slots start nothing if the actor, the reason or the overlap is wrong.
func TestWrongFiresStartNothing(t *testing.T) {
	s := newStage(t)
	s.do(putTimes())
	first := At(s.now.Time().Truncate(time.Minute))
	for what, wrong := range map[string]func(*Fire){
		"actor":   func(f *Fire) { f.Actor = "a\nb" },
		"reason":  func(f *Fire) { f.Reason = strings.Repeat("x", belay.MaxName+1) },
		"overlap": func(f *Fire) { f.Slots[0].Overlap = "odd" },
	} {
		f := s.fired(first, 1, 0, wrong, 0)
		f.From, f.Action = 0, belay.ScheduleBackfill
		changes, replies := s.batch(f)
		if belay.CodeOf(replies[0].Err) != belay.CodeInvalid || len(changes.Executions)+len(changes.Specs) > 0 {
			t.Errorf("%s: %v, %d executions", what, replies[0].Err, len(changes.Executions))
		}
	}
}

// Rule: a schedule can be removed and made anew in one batch.
func TestAScheduleIsRemovedAndMadeInOneBatch(t *testing.T) {
	s := newStage(t)
	s.do(putTimes())
	_, replies := s.batch(changeTimes(belay.ScheduleRemove), putTimes(func(p *belay.SchedulePut) { p.IfNew = true }))
	for _, r := range replies {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}
	if o := s.objects[ScheduleRef("s")]; o == nil || o.Gone {
		t.Errorf("%+v", o)
	}
	s.do(changeTimes(belay.ScheduleRemove))
	if o := s.objects[ScheduleRef("s")]; o != nil {
		t.Errorf("%+v", o)
	}
}

// Rule: each change of a schedule leads from one state to another, or is refused, and no slot starts twice.
func TestSchedulesChangeByTheRules(t *testing.T) {
	s := newStage(t)
	s.pass(s.now.Time().Truncate(time.Minute).Add(90 * time.Second).Sub(s.now.Time())) // half a minute before a slot
	first := s.now.Add(90 * time.Second)                                               // the second step is 30 s before
	for i, x := range scheduleSteps() {
		s.pass(30 * time.Second)
		c := x.c(s, first)
		t.Logf("step %d", i)
		if x.code == "" {
			s.do(c)
		} else {
			s.refused(c, x.code)
		}
		if got := s.times(first); got != x.want {
			t.Fatalf("step %d, %T at %s: %s, want %s", i, c, s.now.Sub(first), got, x.want)
		}
	}
	keys := make(map[string]bool)
	for _, r := range s.records {
		spec := r.specs[0]
		if keys[spec.Key] || spec.Trigger != belay.TriggerCron || !strings.HasPrefix(spec.Key, "schedule:s:") {
			t.Errorf("the execution %s has the key %q and the trigger %q", spec.Execution, spec.Key, spec.Trigger)
		}
		keys[spec.Key] = true
	}
	if len(keys) != 4 {
		t.Errorf("%d executions, want 4", len(keys))
	}
}
