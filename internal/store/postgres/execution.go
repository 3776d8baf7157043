package postgres

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/belaydev/belay/internal/machine"
)

// The columns of an execution that never change, then those that do, in the
// order of hot.
const (
	fixedColumns = "id, parent, child, parent_gen, workflow, version, queue, policy, created_at"
	fixedCount   = 9
)

const (
	hotState = iota
	hotPausedFrom
	hotGate
	hotReadyAt
	hotLane
	hotDueAt
	hotCheckAt
	hotSeq
	hotToken
	hotGeneration
	hotBaseSeq
	hotInputGen
	hotClaimNo
	hotAttempts
	hotLosses
	hotCheckpoints
	hotStateSeq
	hotSignalSeq
	hotSignalSeen
	hotSignals
	hotSignalBytes
	hotOpen
	hotCost
	hotScheduledAt
	hotStartedAt
	hotRunAt
	hotProgressAt
	hotFinishedAt
	hotCancelBy
	hotPauseRequested
	hotPreempting
	hotClass
	hotRunSeq
	hotParted
	hotInts // from here on what is no integer
)

const (
	hotReason = hotInts + iota
	hotReasonText
	hotWorker
	hotSecret
	hotMessage
	hotPlan
	hotCount
)

// column is a column that may change.
type column struct {
	name string
	kind integer // of an integer
	cast string  // of an array of them
}

var hotColumns = [hotCount]column{
	hotState: {"state", int2s, "smallint[]"}, hotPausedFrom: {"paused_from", int2OrNull, "smallint[]"}, hotGate: {"gate", int2OrNull, "smallint[]"},
	hotReadyAt: {"ready_at", int8OrNull, "bigint[]"}, hotLane: {"lane", int8s, "bigint[]"}, hotDueAt: {"due_at", int8OrNull, "bigint[]"}, hotCheckAt: {"check_at", int8OrNull, "bigint[]"},
	hotSeq: {"seq", int8s, "bigint[]"}, hotToken: {"token", int8OrNull, "bigint[]"}, hotGeneration: {"generation", int4s, "integer[]"},
	hotBaseSeq: {"base_seq", int8OrNull, "bigint[]"}, hotInputGen: {"input_gen", int4s, "integer[]"}, hotClaimNo: {"claim_no", int8OrNull, "bigint[]"},
	hotAttempts: {"attempts", int4OrNull, "integer[]"}, hotLosses: {"losses", int4OrNull, "integer[]"},
	hotCheckpoints: {"checkpoints", int4OrNull, "integer[]"}, hotStateSeq: {"state_seq", int8OrNull, "bigint[]"},
	hotSignalSeq: {"signal_seq", int8OrNull, "bigint[]"}, hotSignalSeen: {"signal_seen", int8OrNull, "bigint[]"},
	hotSignals: {"signals", int4OrNull, "integer[]"}, hotSignalBytes: {"signal_bytes", int8OrNull, "bigint[]"},
	hotOpen: {"open_children", int4OrNull, "integer[]"}, hotCost: {"cost", int8OrNull, "bigint[]"},
	hotScheduledAt: {"scheduled_at", int8OrNull, "bigint[]"}, hotStartedAt: {"started_at", int8OrNull, "bigint[]"},
	hotRunAt: {"run_at", int8OrNull, "bigint[]"}, hotProgressAt: {"progress_at", int8OrNull, "bigint[]"},
	hotFinishedAt: {"finished_at", int8OrNull, "bigint[]"}, hotCancelBy: {"cancel_by", int8OrNull, "bigint[]"},
	hotPauseRequested: {"pause_requested", boolOrNull, "boolean[]"}, hotPreempting: {"preempting", boolOrNull, "boolean[]"},
	hotClass:  {"class", int2OrNull, "smallint[]"},
	hotRunSeq: {"run_seq", int8OrNull, "bigint[]"}, hotParted: {"parted", int8OrNull, "bigint[]"},
	hotReason: {name: "reason", cast: "text[]"}, hotReasonText: {name: "reason_text", cast: "text[]"},
	hotWorker: {name: "worker", cast: "uuid[]"}, hotSecret: {name: "secret", cast: "uuid[]"},
	hotMessage: {name: "message", cast: "text[]"}, hotPlan: {name: "plan", cast: "bytea[]"},
}

// mask is a set of hot columns.
type mask uint64

func maskOf(columns ...int) (m mask) {
	for _, i := range columns {
		m |= 1 << i
	}
	return m
}

const everything mask = 1<<hotCount - 1

// each calls do with the columns of the set, in order.
func (m mask) each(do func(i int)) {
	for left := uint64(m); left != 0; left &= left - 1 {
		do(bits.TrailingZeros64(left))
	}
}

// shape is a set of columns that are written together, with the statement for
// it. There are few, so that there are few statements; a row is written with the
// first that has all its changes.
type shape struct {
	mask mask
	text string
}

var updates = []shape{
	updating(hotSeq, hotCheckAt, hotCheckpoints, hotLosses, hotStateSeq, hotCost, hotProgressAt), // a checkpoint
	updating(hotState, hotReadyAt, hotDueAt, hotCheckAt, hotSeq, hotToken, hotClaimNo, hotRunSeq, hotStartedAt, hotRunAt, hotProgressAt,
		hotReason, hotReasonText, hotWorker, hotSecret), // a claim
	updating(hotState, hotReadyAt, hotDueAt, hotCheckAt, hotSeq, hotClaimNo, hotRunSeq, hotCost, hotAttempts, hotLosses, hotRunAt,
		hotFinishedAt, hotReason, hotReasonText, hotWorker, hotSecret, hotClass, hotMessage), // the end of a run
	{everything, updateText(everything)},
}

func updating(columns ...int) shape {
	m := maskOf(columns...)
	return shape{m, updateText(m)}
}

func updateText(m mask) string {
	var set, list []string
	n := 1
	m.each(func(i int) {
		n++
		set = append(set, fmt.Sprintf("%s = u.%[1]s", hotColumns[i].name))
		list = append(list, fmt.Sprintf("unnest($%d::%s) AS %s", n, hotColumns[i].cast, hotColumns[i].name))
	})
	return "UPDATE executions e SET " + strings.Join(set, ", ") +
		" FROM (SELECT unnest($1::uuid[]) AS id, " + strings.Join(list, ", ") + ") u WHERE e.id = u.id"
}

// inserts are the shapes of new rows: what a submission sets, and everything.
var inserts = []shape{
	inserting(maskOf(hotState, hotReadyAt, hotLane, hotDueAt, hotCheckAt, hotSeq, hotGeneration, hotInputGen)),
	inserting(maskOf(hotState, hotReadyAt, hotLane, hotDueAt, hotCheckAt, hotSeq, hotGeneration, hotInputGen,
		hotToken, hotClaimNo, hotRunSeq, hotStartedAt, hotRunAt, hotProgressAt, hotReason, hotReasonText, hotWorker, hotSecret)),
	inserting(everything),
}

func inserting(m mask) shape {
	names, list := strings.Split(fixedColumns, ", "), []string{}
	for i, cast := range []string{"uuid[]", "uuid[]", "text[]", "integer[]", "text[]", "text[]", "text[]", "text[]", "bigint[]"} {
		list = append(list, fmt.Sprintf("unnest($%d::%s)", i+1, cast))
	}
	m.each(func(i int) {
		names = append(names, hotColumns[i].name)
		list = append(list, fmt.Sprintf("unnest($%d::%s)", len(list)+1, hotColumns[i].cast))
	})
	return shape{m, "INSERT INTO executions (" + strings.Join(names, ", ") + ") SELECT " + strings.Join(list, ", ")}
}

// fitting is the first shape that has all columns of a set.
func fitting(shapes []shape, m mask) int {
	for i, s := range shapes {
		if m&^s.mask == 0 {
			return i
		}
	}
	return len(shapes) - 1
}

// executionColumns are all columns, in the order that scan reads; those of a
// table that is called e.
var executionColumns = func() string {
	names := strings.Split(fixedColumns, ", ")
	for _, c := range hotColumns {
		names = append(names, c.name)
	}
	return "e." + strings.Join(names, ", e.")
}()

// executionCount is how many columns an execution has.
const executionCount = fixedCount + hotCount

// hot is what may change of an execution, as its columns hold it.
type hot struct {
	*machine.Execution
	ints [hotInts]int64
}

// of takes in an execution and the seq at which the run began that it is in, if
// that run has no row.
func (h *hot) of(e *machine.Execution, runSeq int64) {
	h.Execution, h.ints = e, [hotInts]int64{
		hotState: int64(e.State), hotPausedFrom: int64(e.PausedFrom), hotGate: int64(e.Gate), hotReadyAt: int64(e.Ready()),
		hotLane: int64(e.Lane), hotDueAt: int64(e.DueAt), hotCheckAt: int64(e.CheckAt), hotSeq: e.Seq, hotToken: int64(e.Token),
		hotGeneration: int64(e.Generation), hotBaseSeq: e.BaseSeq, hotInputGen: int64(e.InputGen), hotClaimNo: e.ClaimNo,
		hotAttempts: int64(e.Attempts), hotLosses: int64(e.Losses), hotCheckpoints: int64(e.Checkpoints), hotStateSeq: e.StateSeq,
		hotSignalSeq: e.SignalSeq, hotSignalSeen: e.SignalSeen, hotSignals: int64(e.Signals), hotSignalBytes: e.SignalBytes,
		hotOpen: int64(e.Open), hotCost: e.Cost,
		hotScheduledAt: int64(e.ScheduledAt), hotStartedAt: int64(e.StartedAt), hotRunAt: int64(e.RunAt),
		hotProgressAt: int64(e.ProgressAt), hotFinishedAt: int64(e.FinishedAt), hotCancelBy: int64(e.CancelBy),
		hotPauseRequested: number(e.PauseRequested), hotPreempting: number(e.Preempting), hotClass: int64(e.Class),
		hotRunSeq: runSeq, hotParted: e.Parted,
	}
}

// since are the columns in which h differs from what was.
func (h *hot) since(was *hot) mask {
	var m mask
	for i := range h.ints {
		if h.ints[i] != was.ints[i] {
			m |= 1 << i
		}
	}
	for i, differs := range [...]bool{
		h.Reason != was.Reason, h.ReasonText != was.ReasonText, h.Worker != was.Worker, h.Secret != was.Secret,
		h.Message != was.Message, string(h.Plan) != string(was.Plan),
	} {
		if differs {
			m |= 1 << (hotInts + i)
		}
	}
	return m
}

// bind gives a statement the columns of a set.
func (m mask) bind(s *step, rows []*hot) {
	m.each(func(i int) {
		switch i {
		case hotReason:
			textsOrNull(s, rows, func(h *hot) string { return h.Reason })
		case hotReasonText:
			textsOrNull(s, rows, func(h *hot) string { return h.ReasonText })
		case hotWorker:
			uuids(s, rows, func(h *hot) [16]byte { return h.Worker })
		case hotSecret:
			uuids(s, rows, func(h *hot) [16]byte { return h.Secret })
		case hotMessage:
			textsOrNull(s, rows, func(h *hot) string { return h.Message })
		case hotPlan:
			byteas(s, rows, func(h *hot) []byte { return h.Plan })
		default:
			bindInts(s, rows, i)
		}
	})
}

func bindInts(s *step, rows []*hot, column int) {
	k := hotColumns[column].kind
	a, some := s.array(k.oid, len(rows), k.width), k.zero
	for i := range rows {
		if v := rows[i].ints[column]; v == 0 && !k.zero {
			a = a.null()
		} else {
			a, some = a.int(v, k.width), true
		}
	}
	s.column(a, k.oid, some)
}
