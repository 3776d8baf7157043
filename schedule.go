package belay

import (
	"fmt"
	"time"
)

const (
	// MaxSchedules is the largest number of schedules.
	MaxSchedules = 20_000
	// MaxBackfill is the largest number of slots that one ScheduleBackfill starts.
	MaxBackfill = 1000
	// MaxScheduleBuffer is the largest number of executions of a schedule that wait under BufferAll.
	MaxScheduleBuffer = 1000
	// MaxScheduleBytes is the largest size of a schedule as JSON, in bytes.
	MaxScheduleBytes = 64 << 10
	// DefaultCatchUp is the catch-up window of a schedule that sets none.
	DefaultCatchUp = Duration(time.Hour)
)

// LabelSchedule is the label of an execution that a schedule has started. Its value is the name of the schedule.
const LabelSchedule = "schedule"

// Schedule describes executions that start at regular times. Each time is a slot of the schedule.
// The Backend starts each slot once, however many servers run, however often they restart, and
// however their clocks are set. A slot starts at the first commit after its time, by the store's
// clock, usually within a tenth of a second.
type Schedule struct {
	// Name follows the rules of CheckScheduleName.
	Name string `json:"name"`
	// Cron has five fields (minute, hour, day of the month, month, day of the week), six fields
	// with seconds first, or a descriptor such as @daily. Either Cron or Every is set.
	//
	// A fixed time that does not exist on a day, because clocks are set forwards, starts when the
	// missing hour is over. A fixed time that exists twice, because clocks are set back, starts
	// once, at the first. If the hour is *, slots follow the time that has really passed: those of
	// a missing hour do not exist, and those of a repeated hour start twice.
	Cron string `json:"cron,omitempty"`
	// Every is the time between slots, at least one second. The slots are the multiples of Every
	// since 1970-01-01T00:00:00Z, plus Offset, which is less than Every.
	Every  Duration `json:"every,omitempty"`
	Offset Duration `json:"offset,omitempty"`
	// TimeZone is the name of an IANA time zone, such as Europe/Berlin, for Cron. Empty means UTC.
	TimeZone string `json:"time_zone,omitempty"`
	// Jitter delays each slot by a part of this time that depends only on the name and the slot,
	// and that is shorter than the time to the next slot.
	Jitter Duration `json:"jitter,omitempty"`
	// Overlap decides about a slot whose time comes while an execution of the schedule has not ended.
	Overlap ScheduleOverlap `json:"overlap,omitempty"`
	// CatchUp limits how late a slot may start, after no server was running: later slots are missed.
	// 0 means DefaultCatchUp.
	CatchUp Duration `json:"catch_up,omitempty"`
	// Execution describes the executions. It has a Workflow or a Document. The Backend sets the ID,
	// IdempotencyKey, Trigger, TriggerPayload (a SchedulePayload) and Actor, and unless Overlap is AllowAll also the
	// Concurrency.
	Execution Submission `json:"execution"`
}

// ScheduleOverlap decides about a slot whose time comes while an execution of the schedule has not ended.
type ScheduleOverlap string

// The values of ScheduleOverlap. The zero value is SkipOverlap.
const (
	SkipOverlap ScheduleOverlap = "skip"         // the slot starts nothing
	BufferOne   ScheduleOverlap = "buffer_one"   // the execution waits, unless another one waits already
	BufferAll   ScheduleOverlap = "buffer_all"   // the execution waits, unless MaxScheduleBuffer wait already
	CancelOther ScheduleOverlap = "cancel_other" // the earlier execution is cancelled
	AllowAll    ScheduleOverlap = "allow_all"    // both run
)

// SchedulePayload is the trigger payload of an execution that a schedule has started.
type SchedulePayload struct {
	Schedule string `json:"schedule"`
	// Slot is the time of the schedule for which the execution was started, without the jitter. For a
	// ScheduleRun it is the time of that action.
	Slot time.Time `json:"slot"`
	// By says why an execution was started other than at the time of its slot: "run" or "backfill".
	By string `json:"by,omitempty"`
}

// ScheduleOutcome says what happened in a slot.
type ScheduleOutcome string

// The values of ScheduleOutcome.
const (
	SlotStarted ScheduleOutcome = "started" // an execution was submitted
	SlotSkipped ScheduleOutcome = "skipped" // an earlier execution had not ended; see ScheduleOverlap
	SlotMissed  ScheduleOutcome = "missed"  // no server could start it within the catch-up window
	SlotFailed  ScheduleOutcome = "failed"  // its submission was refused; Text says why
	SlotDone    ScheduleOutcome = "done"    // it had been started before
)

// ScheduleSlot is a slot whose time has come.
type ScheduleSlot struct {
	Slot    time.Time       `json:"slot"`
	At      time.Time       `json:"at"` // when the Backend decided about it, by the store's clock
	Outcome ScheduleOutcome `json:"outcome"`
	// Execution is the execution of a slot that was started.
	Execution ExecutionID `json:"execution,omitzero"`
	// By is "run" or "backfill" for a slot that an operator has started.
	By   string `json:"by,omitempty"`
	Text string `json:"text,omitempty"`
	// Count is the number of missed slots, the last of which is Slot.
	Count int64 `json:"count,omitempty"`
}

// SchedulePause says since when a schedule is paused, by which actor, and why.
type SchedulePause struct {
	At     time.Time `json:"at"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// ScheduleInfo is a schedule with its state.
type ScheduleInfo struct {
	Schedule
	// Version counts the changes of the schedule by operators, from 1.
	Version int `json:"version"`
	// DefinedBy is the name of the stored document that defines the schedule; empty if none does. Only another version
	// of the document changes or removes such a schedule.
	DefinedBy string         `json:"defined_by,omitempty"`
	Paused    *SchedulePause `json:"paused,omitempty"`
	CreatedAt time.Time      `json:"created_at"`
	UpdatedAt time.Time      `json:"updated_at"`
	UpdatedBy string         `json:"updated_by,omitempty"`
	// NextAt is when the next slot will start, with its jitter; zero if the schedule is paused or has no
	// further slots.
	NextAt time.Time `json:"next_at,omitzero"`
	// Next are the next ten slots, without jitter. Lists leave it out.
	Next []time.Time `json:"next,omitempty"`
	// Recent are the newest slots, the newest first, ten at most.
	Recent []ScheduleSlot `json:"recent,omitempty"`
	// Slots counts the slots by their outcomes since the schedule was created.
	Slots map[ScheduleOutcome]int64 `json:"slots,omitempty"`
}

// ScheduleFilter selects a page of schedules.
type ScheduleFilter struct {
	// Cursor is SchedulePage.Next of the previous page; empty for the first page. Limit is the
	// largest number of schedules on the page: 100 if it is 0, and at most 1,000.
	Cursor string
	Limit  int
}

// SchedulePage is a page of schedules, in the order of the bytes of their names. Next is empty on the last
// page.
type SchedulePage struct {
	Schedules []ScheduleInfo `json:"schedules"`
	Next      string         `json:"next,omitempty"`
}

// SchedulePut requests that the schedule with Schedule.Name is as Schedule says. Its next slot is then
// the first one after now; slots whose times have passed are not started.
type SchedulePut struct {
	Schedule
	// IfVersion, unless it is 0, makes Scheduler.PutSchedule return CodeConflict if the schedule has another
	// version. IfNew makes it return CodeConflict if the schedule exists.
	IfVersion int  `json:"if_version,omitempty"`
	IfNew     bool `json:"if_new,omitempty"`
	// The audit log keeps Actor and Reason. Each has at most MaxName bytes.
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Op identifies the operation: a repeated request with the same Op changes nothing. A schedule
	// remembers the Ops of its last eight changes only.
	Op OpID `json:"op,omitzero"`
}

// SchedulePutResult is the answer to a SchedulePut.
type SchedulePutResult struct {
	ScheduleInfo
	// Created says that there was no such schedule before, and Changed that it differed.
	Created bool `json:"created,omitempty"`
	Changed bool `json:"changed"`
}

// ScheduleAction is an action of an operator on a schedule.
type ScheduleAction string

// The actions of operators on schedules.
const (
	SchedulePauseAction ScheduleAction = "pause" // slots whose times come are not started
	ScheduleResume      ScheduleAction = "resume"
	ScheduleRemove      ScheduleAction = "remove" // executions that were started go on
	ScheduleRun         ScheduleAction = "run"    // start one execution now, whether or not the schedule is paused
	// ScheduleBackfill starts the slots from From until To, both included, that were not started before.
	ScheduleBackfill ScheduleAction = "backfill"
)

// ScheduleChange requests an action on a schedule.
type ScheduleChange struct {
	Name   string         `json:"name"`
	Action ScheduleAction `json:"action"`
	// From and To are for ScheduleBackfill. To must not be after now.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// Overlap is for ScheduleBackfill and ScheduleRun; empty means AllowAll.
	Overlap ScheduleOverlap `json:"overlap,omitempty"`
	// IfVersion, unless it is 0, makes Scheduler.ChangeSchedule return CodeConflict if the schedule has
	// another version.
	IfVersion int `json:"if_version,omitempty"`
	// The audit log keeps Actor and Reason. Each has at most MaxName bytes.
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Op identifies the operation, as in SchedulePut.
	Op OpID `json:"op,omitzero"`
}

// ScheduleChanged is the answer to a ScheduleChange: the schedule after the change, which has only a name
// after its removal, and the slots of a run or backfill.
type ScheduleChanged struct {
	Schedule ScheduleInfo   `json:"schedule"`
	Slots    []ScheduleSlot `json:"slots,omitempty"`
}

// CheckScheduleName returns CodeInvalid for a text that cannot be the name of a schedule. The rules are those of
// CheckDocumentName.
func CheckScheduleName(op, name string) error {
	if CheckDocumentName(op, name) == nil {
		return nil
	}
	return &Error{Code: CodeInvalid, Op: op, Message: fmt.Sprintf("the name of a schedule has letters, digits, dots, "+
		"dashes and underscores, begins with a letter or digit, and has at most %d characters", MaxDocumentName)}
}
