package table

import (
	"math/bits"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Executions has the columns of an execution that never change. Its policy is written with the
// other columns but read separately, so that equal policies share one struct.
var Executions = &Table[machine.Execution]{"executions", []Column[machine.Execution]{
	id("id", Kept, func(e *machine.Execution) []byte { return e.ID[:] }),
	id("parent", Null, func(e *machine.Execution) []byte { return e.Parent[:] }),
	text("child", Null, func(e *machine.Execution) *string { return &e.Child }),
	integer("parent_gen", Int4, Lean, func(e *machine.Execution) *int { return &e.ParentGen }),
	text("workflow", Kept, func(e *machine.Execution) *string { return &e.Workflow }),
	text("version", Null, func(e *machine.Execution) *string { return &e.Version }),
	text("queue", Kept, func(e *machine.Execution) *string { return &e.Queue }),
	{Name: "policy", Kind: String, Zero: Null, Text: policyText},
	integer("created_at", Int8, Kept, func(e *machine.Execution) *machine.Time { return &e.CreatedAt }),
	{Name: "external", Kind: Int2, Zero: Lean, Int: func(e *machine.Execution) int64 { return Number(e.External) }},
	{Name: "gates", Kind: String, Zero: Null, Text: func(e *machine.Execution) string {
		return string(machine.GatesText(e.Gates))
	}},
	{Name: "notify", Kind: String, Zero: Null, Text: func(e *machine.Execution) string {
		return string(machine.NotifyText(e.Notify))
	}},
	{Name: "trace", Kind: String, Zero: Null, Text: func(e *machine.Execution) string {
		return machine.TraceText(e.Trace)
	}},
}}

func policyText(e *machine.Execution) string {
	if e.Policy == nil {
		return ""
	}
	return string(e.Policy.Text())
}

// The indexes of the policy, the gates and the notifications in an execution's row.
const (
	ExecutionPolicy = 7
	ExecutionGates  = 10
	ExecutionNotify = 11
)

// fixed is the number of columns that never change.
const fixed = 13

// The columns of an execution that change. In a row they follow the columns that never change, in
// this order.
const (
	State = iota
	PausedFrom
	ReadyAt
	Lane
	DueAt
	CheckAt
	Seq
	Token
	Generation
	BaseSeq
	InputGen
	ClaimNo
	Attempts
	Losses
	Checkpointed
	StateSeq
	SignalSeq
	SignalSeen
	SignalCount
	SignalBytes
	Open
	Cost
	CostRest
	ScheduledAt
	StartedAt
	RunAt
	ProgressAt
	FinishedAt
	CancelBy
	PauseRequested
	Preempting
	Class
	Parted
	GateRank
	Places
	AdmitBy
	Repeated
	FailedBy
	Budget
	RunSeq // only in PostgreSQL: the seq at which the present run began, if the table of runs has no row for it
	Ints   // the number of integer columns; the columns from here on are not integers
)

// The columns that change and are not integers.
const (
	Reason = Ints + iota
	ReasonText
	Worker
	Secret
	Message
	Gate
	SpentBy
	HotCount
)

// Hot has the columns that change.
var Hot = [HotCount]Column[machine.Execution]{
	State: number("state", Int2, Kept), PausedFrom: number("paused_from", Int2, Lean),
	ReadyAt: number("ready_at", Int8, Null), Lane: number("lane", Int8, Kept), DueAt: number("due_at", Int8, Null),
	CheckAt: number("check_at", Int8, Null), Seq: number("seq", Int8, Kept), Token: number("token", Int8, Lean),
	Generation: number("generation", Int4, Kept), BaseSeq: number("base_seq", Int8, Lean), InputGen: number("input_gen",
		Int4, Kept),
	ClaimNo: number("claim_no", Int8, Lean), Attempts: number("attempts", Int4, Lean), Losses: number("losses", Int4,
		Lean),
	Checkpointed: number("checkpoints", Int4, Lean), StateSeq: number("state_seq", Int8, Lean),
	SignalSeq: number("signal_seq", Int8, Lean), SignalSeen: number("signal_seen", Int8, Lean),
	SignalCount: number("signals", Int4, Lean), SignalBytes: number("signal_bytes", Int8, Lean),
	Open: number("open_children", Int4, Lean),
	Cost: number("cost", Int8, Lean), CostRest: number("cost_rest", Int2, Lean),
	ScheduledAt: number("scheduled_at", Int8, Null), StartedAt: number("started_at", Int8, Null),
	RunAt: number("run_at", Int8, Null), ProgressAt: number("progress_at", Int8, Null),
	FinishedAt: number("finished_at", Int8, Null),
	CancelBy:   number("cancel_by", Int8, Null), PauseRequested: number("pause_requested", Boolean, Lean),
	Preempting: number("preempting", Boolean, Lean), Class: number("class", Int2, Lean), Parted: number("parted", Int8,
		Lean),
	GateRank: number("gate_rank", Int4, Lean), Places: number("places", Int2, Lean),
	AdmitBy: number("admit_by", Int8, Null), Repeated: number("repeated", Int8, Lean),
	FailedBy: number("failed_by", Int2, Lean),
	Budget:   number("budget", Int8, Lean),
	RunSeq:   number("run_seq", Int8, Null),

	Reason:     text("reason", Null, func(e *machine.Execution) *string { return &e.Reason }),
	ReasonText: text("reason_text", Null, func(e *machine.Execution) *string { return &e.ReasonText }),
	Worker:     id("worker", Null, func(e *machine.Execution) []byte { return e.Worker[:] }),
	Secret:     id("secret", Null, func(e *machine.Execution) []byte { return e.Secret[:] }),
	Message:    text("message", Null, func(e *machine.Execution) *string { return &e.Message }),
	Gate:       text("gate", Null, func(e *machine.Execution) *belay.GateID { return &e.Gate }),
	SpentBy:    id("spent_by", Null, func(e *machine.Execution) []byte { return e.SpentBy[:] }),
}

// number is a column whose value is in HotRow.Ints.
func number(name string, kind Kind, zero Zero) Column[machine.Execution] {
	return Column[machine.Execution]{Name: name, Kind: kind, Zero: zero}
}

// HotRow is an execution with the integers of its columns that change.
type HotRow struct {
	*machine.Execution
	Ints [Ints]int64
}

// Of sets the row from an execution. runSeq is the seq at which the present run began, if the table
// of runs has no row for that run.
func (h *HotRow) Of(e *machine.Execution, runSeq int64) {
	whole, rest := e.Cost.Tokens()
	h.Execution, h.Ints = e, [Ints]int64{
		State: int64(e.State), PausedFrom: int64(e.PausedFrom), ReadyAt: int64(e.Ready()),
		Lane: int64(e.Lane), DueAt: int64(e.DueAt), CheckAt: int64(e.CheckAt), Seq: e.Seq, Token: int64(e.Token),
		Generation: int64(e.Generation), BaseSeq: e.BaseSeq, InputGen: int64(e.InputGen), ClaimNo: e.ClaimNo,
		Attempts: int64(e.Attempts), Losses: int64(e.Losses), Checkpointed: int64(e.Checkpoints), StateSeq: e.StateSeq,
		SignalSeq: e.SignalSeq, SignalSeen: e.SignalSeen, SignalCount: int64(e.Signals), SignalBytes: e.SignalBytes,
		Open: int64(e.Open), Cost: whole, CostRest: rest,
		ScheduledAt: int64(e.ScheduledAt), StartedAt: int64(e.StartedAt),
		RunAt:      int64(e.RunAt),
		ProgressAt: int64(e.ProgressAt), FinishedAt: int64(e.FinishedAt), CancelBy: int64(e.CancelBy),
		PauseRequested: Number(e.PauseRequested), Preempting: Number(e.Preempting), Class: int64(e.Class),
		Parted: e.Parted, GateRank: int64(e.GateRank), Places: int64(e.Places), AdmitBy: int64(e.AdmitBy),
		Repeated: int64(e.Repeated), FailedBy: int64(e.FailedBy), Budget: int64(e.Budget), RunSeq: runSeq,
	}
}

// Since returns the set of columns in which h differs from was. A HotRow without an execution has
// only zeros.
func (h *HotRow) Since(was *HotRow) Mask {
	var m Mask
	for i := range h.Ints {
		if h.Ints[i] != was.Ints[i] {
			m |= 1 << i
		}
	}
	for i, differs := range [...]bool{
		h.Reason != was.Reason, h.ReasonText != was.ReasonText, h.Worker != was.Worker, h.Secret != was.Secret,
		h.Message != was.Message, h.Gate != was.Gate, h.SpentBy != was.SpentBy,
	} {
		if differs {
			m |= 1 << (Ints + i)
		}
	}
	return m
}

// Mask is a set of columns that change.
type Mask uint64

// MaskOf is the set of the given columns.
func MaskOf(columns ...int) (m Mask) {
	for _, i := range columns {
		m |= 1 << i
	}
	return m
}

// All yields the columns of the set, in order.
func (m Mask) All(yield func(int) bool) {
	for left := uint64(m); left != 0; left &= left - 1 {
		if !yield(bits.TrailingZeros64(left)) {
			return
		}
	}
}

// Shared are the columns of an execution that a caller of ScanExecution has parsed. The values are shared by equal
// rows and never changed in place.
type Shared struct {
	Policy *belay.Policy
	Gates  *belay.Gates
	Notify *[]belay.Notification
}

// SharedCache caches the values of Shared.
type SharedCache struct {
	policies Parsed[belay.Policy]
	gates    Parsed[belay.Gates]
	notify   Parsed[[]belay.Notification]
}

// mostCached is the largest size of a text of notifications that the cache keeps, in bytes. Callers choose these
// texts, and a thousand long ones would fill the memory of each connection.
const mostCached = 1 << 10

// ParseShared decodes the texts of a policy, gates and notifications, or finds them in the cache.
func ParseShared[S string | []byte](p *SharedCache, policy, gates, notify S) (s Shared, err error) {
	if s.Policy, err = Parse(&p.policies, "a policy", policy); err != nil {
		return s, err
	}
	if s.Gates, err = Parse(&p.gates, "gates", gates); err != nil {
		return s, err
	}
	cache := &p.notify
	if len(notify) > mostCached {
		cache = new(Parsed[[]belay.Notification])
	}
	s.Notify, err = Parse(cache, "notifications", notify)
	return s, err
}

// ScanExecution reads an execution and its RunSeq from a row.
func ScanExecution[C Row](row C, shared Shared) (*machine.Execution, int64) {
	e := &machine.Execution{
		Child: row.Text(2), ParentGen: int(row.Int(3)), Workflow: row.Word(4), Version: row.Word(5), Queue: row.Word(6),
		Policy: shared.Policy, Gates: shared.Gates, CreatedAt: machine.Time(row.Int(8)), External: row.Int(9) != 0,
	}
	if shared.Notify != nil {
		e.Notify = *shared.Notify
	}
	if text := row.Text(12); text != "" {
		e.Trace = machine.ParseTrace(text)
	}
	copy(e.ID[:], row.Raw(0))
	copy(e.Parent[:], row.Raw(1))
	number := func(column int) int64 { return row.Int(fixed + column) }
	at := func(column int) machine.Time { return machine.Time(row.Int(fixed + column)) }
	e.State, e.PausedFrom = belay.State(number(State)), belay.State(number(PausedFrom))
	e.Lane, e.DueAt, e.CheckAt = machine.LaneID(number(Lane)), at(DueAt), at(CheckAt)
	e.Seq, e.Token, e.Generation = number(Seq), belay.Token(number(Token)), int(number(Generation))
	e.BaseSeq, e.InputGen, e.ClaimNo = number(BaseSeq), int(number(InputGen)), number(ClaimNo)
	e.Attempts, e.Losses, e.Checkpoints = int(number(Attempts)), int(number(Losses)), int(number(Checkpointed))
	e.StateSeq, e.SignalSeq, e.SignalSeen = number(StateSeq), number(SignalSeq), number(SignalSeen)
	e.Signals, e.SignalBytes = int(number(SignalCount)), number(SignalBytes)
	e.Open, e.Parted = int(number(Open)), number(Parted)
	e.Cost = belay.CostOf(number(Cost)).Add(belay.Cost(number(CostRest)))
	e.ScheduledAt, e.StartedAt, e.RunAt = at(ScheduledAt), at(StartedAt), at(RunAt)
	e.ProgressAt, e.FinishedAt, e.CancelBy = at(ProgressAt), at(FinishedAt), at(CancelBy)
	e.PauseRequested, e.Preempting, e.Class = number(PauseRequested) != 0, number(Preempting) != 0,
		belay.Class(number(Class))
	e.Reason, e.ReasonText, e.Message = row.Word(fixed+Reason), row.Text(fixed+ReasonText), row.Text(fixed+Message)
	e.Gate = belay.GateID(row.Word(fixed + Gate))
	e.GateRank, e.Places, e.AdmitBy = int(number(GateRank)), machine.Places(number(Places)), at(AdmitBy)
	e.Repeated, e.FailedBy = belay.Token(number(Repeated)), belay.FailedBy(number(FailedBy))
	e.Budget = belay.Cost(number(Budget))
	copy(e.SpentBy[:], row.Raw(fixed+SpentBy))
	copy(e.Worker[:], row.Raw(fixed+Worker))
	copy(e.Secret[:], row.Raw(fixed+Secret))
	return e, number(RunSeq)
}
