package wire

import (
	"net/url"
	"time"

	"github.com/belaydev/belay"
)

// ScheduleTerms are the times and the executions of a schedule.
type ScheduleTerms struct {
	Cron      string                `json:"cron,omitempty" maxLength:"200" doc:"Five fields (minute, hour, day of the month, month, day of the week), six with seconds first, or a descriptor such as @daily. Either cron or every is set."`
	Every     belay.Duration        `json:"every,omitempty" doc:"The time between slots, at least 1s: the slots are its multiples since 1970."`
	EveryMS   int64                 `json:"every_ms,omitempty" minimum:"0" doc:"every in milliseconds."`
	Offset    belay.Duration        `json:"offset,omitempty" doc:"With every: moves the slots by this time."`
	OffsetMS  int64                 `json:"offset_ms,omitempty" minimum:"0" doc:"offset in milliseconds."`
	TimeZone  string                `json:"time_zone,omitempty" maxLength:"100" doc:"With cron: the name of an IANA time zone, such as Europe/Berlin. Without it, UTC."`
	Jitter    belay.Duration        `json:"jitter,omitempty" doc:"Delays each slot by a part of this time, always the same for a slot."`
	JitterMS  int64                 `json:"jitter_ms,omitempty" minimum:"0" doc:"jitter in milliseconds."`
	Overlap   belay.ScheduleOverlap `json:"overlap,omitempty" enum:"skip,buffer_one,buffer_all,cancel_other,allow_all" doc:"Decides about a slot while an earlier execution has not ended; without it, skip."`
	CatchUp   belay.Duration        `json:"catch_up,omitempty" doc:"How late a slot may start after no server was running, from 1s to a year; without it, 1h."`
	CatchUpMS int64                 `json:"catch_up_ms,omitempty" minimum:"0" doc:"catch_up in milliseconds."`
	Execution Submit                `json:"execution" doc:"The executions. Belay sets id, idempotency_key, trigger, trigger_payload and actor for each slot."`
}

// ScheduleTermsOf converts the terms of a schedule for the wire.
func ScheduleTermsOf(s *belay.Schedule) ScheduleTerms {
	ms := func(d belay.Duration) int64 { return d.D().Milliseconds() }
	return ScheduleTerms{
		Cron: s.Cron, Every: s.Every, Offset: s.Offset, TimeZone: s.TimeZone, Jitter: s.Jitter, Overlap: s.Overlap,
		CatchUp: s.CatchUp, Execution: SubmitOf(s.Execution),
		EveryMS: ms(s.Every), OffsetMS: ms(s.Offset), JitterMS: ms(s.Jitter), CatchUpMS: ms(s.CatchUp),
	}
}

// Schedule converts the terms from the wire. The error is CodeInvalid if the text and the milliseconds of a
// duration differ.
func (w *ScheduleTerms) Schedule(name string) (belay.Schedule, error) {
	s := belay.Schedule{
		Name: name, Cron: w.Cron, Every: w.Every, Offset: w.Offset, TimeZone: w.TimeZone, Jitter: w.Jitter,
		Overlap: w.Overlap, CatchUp: w.CatchUp,
	}
	var err error
	if s.Execution, err = w.Execution.Submission(); err != nil {
		return s, err
	}
	return s, eachDuration(millis{"every", &s.Every, w.EveryMS}, millis{"offset", &s.Offset, w.OffsetMS},
		millis{"jitter", &s.Jitter, w.JitterMS}, millis{"catch_up", &s.CatchUp, w.CatchUpMS})
}

// PutSchedule sets the terms of a schedule. The header Idempotency-Key has the operation id, and If-Match and
// If-None-Match say which version the schedule must have before.
type PutSchedule struct {
	ScheduleTerms
	By
}

// Schedule is a schedule with its state.
type Schedule struct {
	Name string `json:"name"`
	ScheduleTerms
	Version   int                             `json:"version" doc:"Counts the changes by operators, from 1."`
	DefinedBy string                          `json:"defined_by,omitempty" doc:"The stored document that defines the schedule. Only another version of the document changes or removes such a schedule."`
	Paused    *belay.SchedulePause            `json:"paused,omitempty" doc:"Present if the schedule is paused."`
	CreatedAt time.Time                       `json:"created_at"`
	UpdatedAt time.Time                       `json:"updated_at" doc:"The last change by an operator."`
	UpdatedBy string                          `json:"updated_by,omitempty"`
	NextAt    time.Time                       `json:"next_at,omitzero" doc:"When the next slot starts, with its jitter."`
	Next      []time.Time                     `json:"next,omitempty" doc:"The next ten slots, without jitter. Not in lists."`
	Recent    []belay.ScheduleSlot            `json:"recent,omitempty" doc:"The newest slots, the newest first."`
	Slots     map[belay.ScheduleOutcome]int64 `json:"slots,omitempty" doc:"The number of slots by outcome: started, skipped, missed, failed, done."`
}

// ScheduleOf converts a schedule for the wire.
func ScheduleOf(s *belay.ScheduleInfo) Schedule {
	return Schedule{
		Name: s.Name, ScheduleTerms: ScheduleTermsOf(&s.Schedule), Version: s.Version, DefinedBy: s.DefinedBy,
		Paused: s.Paused, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt, UpdatedBy: s.UpdatedBy, NextAt: s.NextAt,
		Next: s.Next, Recent: s.Recent, Slots: s.Slots,
	}
}

// Info converts a schedule from the wire.
func (w *Schedule) Info() (belay.ScheduleInfo, error) {
	s, err := w.ScheduleTerms.Schedule(w.Name)
	return belay.ScheduleInfo{
		Schedule: s, Version: w.Version, DefinedBy: w.DefinedBy, Paused: w.Paused, CreatedAt: w.CreatedAt,
		UpdatedAt: w.UpdatedAt, UpdatedBy: w.UpdatedBy, NextAt: w.NextAt, Next: w.Next, Recent: w.Recent,
		Slots: w.Slots,
	}, err
}

// Schedules is a page of schedules.
type Schedules struct {
	Schedules []Schedule `json:"schedules"`
	Next      string     `json:"next,omitempty" doc:"The cursor of the next page."`
}

// ChangeSchedule pauses or resumes a schedule.
type ChangeSchedule struct{ By }

// RunSchedule starts an execution of a schedule now.
type RunSchedule struct {
	Overlap belay.ScheduleOverlap `json:"overlap,omitempty" enum:"skip,buffer_one,buffer_all,cancel_other,allow_all" doc:"Without it, allow_all."`
	By
}

// BackfillSchedule starts slots of the past that were not started.
type BackfillSchedule struct {
	From time.Time `json:"from" doc:"The first slot, or a time before it."`
	To   time.Time `json:"to" doc:"The last slot, or a time after it; not in the future."`
	RunSchedule
}

// ScheduleSlots is the answer to a run or a backfill.
type ScheduleSlots struct {
	Schedule Schedule             `json:"schedule"`
	Slots    []belay.ScheduleSlot `json:"slots"`
}

// SchedulePath is the path of a schedule.
func SchedulePath(name string) string { return "/v1/schedules/" + url.PathEscape(name) }
