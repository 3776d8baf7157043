package sqlite

import (
	"math/bits"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// The columns of an execution that never change, then those that do, in the
// order of hot. A write names only the columns that changed, so that an index
// is touched only when what it holds has changed.
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

var hotColumns = [hotCount]string{
	"state", "paused_from", "gate", "ready_at", "lane", "due_at", "check_at", "seq", "token", "generation", "base_seq", "input_gen",
	"claim_no", "attempts", "losses", "checkpoints", "state_seq", "signal_seq", "signal_seen", "signals", "signal_bytes", "open_children", "cost",
	"scheduled_at", "started_at", "run_at", "progress_at", "finished_at", "cancel_by", "pause_requested", "preempting", "class", "parted",
	"reason", "reason_text", "worker", "secret", "message", "plan",
}

// nullable are the integer columns that hold NULL instead of 0: the moments.
const nullable mask = 1<<hotReadyAt | 1<<hotDueAt | 1<<hotCheckAt | 1<<hotScheduledAt | 1<<hotStartedAt | 1<<hotRunAt |
	1<<hotProgressAt | 1<<hotFinishedAt | 1<<hotCancelBy

// needed are the columns that an insert always names: they have no default, or
// another than 0.
const needed mask = 1<<hotState | 1<<hotLane | 1<<hotSeq | 1<<hotGeneration | 1<<hotInputGen

// mask is a set of hot columns.
type mask uint64

// selectExecutions is followed by a condition.
var selectExecutions = "SELECT " + fixedColumns + ", " + strings.Join(hotColumns[:], ", ") + " FROM executions"

// hot is what may change of an execution, as its columns hold it.
type hot struct {
	ints                        [hotInts]int64
	reason, reasonText, message string
	worker                      belay.WorkerID
	secret                      belay.Secret
	plan                        string
}

func (h *hot) of(e *machine.Execution) {
	h.ints = [hotInts]int64{
		hotState: int64(e.State), hotPausedFrom: int64(e.PausedFrom), hotGate: int64(e.Gate), hotReadyAt: int64(e.Ready()),
		hotLane: int64(e.Lane), hotDueAt: int64(e.DueAt), hotCheckAt: int64(e.CheckAt), hotSeq: e.Seq, hotToken: int64(e.Token),
		hotGeneration: int64(e.Generation), hotBaseSeq: e.BaseSeq, hotInputGen: int64(e.InputGen), hotClaimNo: e.ClaimNo,
		hotAttempts: int64(e.Attempts), hotLosses: int64(e.Losses), hotCheckpoints: int64(e.Checkpoints), hotStateSeq: e.StateSeq,
		hotSignalSeq: e.SignalSeq, hotSignalSeen: e.SignalSeen, hotSignals: int64(e.Signals), hotSignalBytes: e.SignalBytes,
		hotOpen: int64(e.Open), hotCost: e.Cost,
		hotScheduledAt: int64(e.ScheduledAt), hotStartedAt: int64(e.StartedAt), hotRunAt: int64(e.RunAt),
		hotProgressAt: int64(e.ProgressAt), hotFinishedAt: int64(e.FinishedAt), hotCancelBy: int64(e.CancelBy),
		hotPauseRequested: number(e.PauseRequested), hotPreempting: number(e.Preempting), hotClass: int64(e.Class),
		hotParted: e.Parted,
	}
	h.reason, h.reasonText, h.message = e.Reason, e.ReasonText, e.Message
	h.worker, h.secret = e.Worker, e.Secret
	h.plan = string(e.Plan)
}

// since are the columns in which h differs from what was.
func (h *hot) since(was *hot) mask {
	var m mask
	for i := range h.ints {
		if h.ints[i] != was.ints[i] {
			m |= 1 << i
		}
	}
	set := func(i int, differs bool) {
		if differs {
			m |= 1 << i
		}
	}
	set(hotReason, h.reason != was.reason)
	set(hotReasonText, h.reasonText != was.reasonText)
	set(hotWorker, h.worker != was.worker)
	set(hotSecret, h.secret != was.secret)
	set(hotMessage, h.message != was.message)
	set(hotPlan, h.plan != was.plan)
	return m
}

// bind adds the columns of a set to the arguments, in order. The ids are those of
// the execution itself: h may be filled with the next one before they are read.
func (h *hot) bind(a *args, m mask, e *machine.Execution) {
	for left := m; left != 0; left &= left - 1 {
		i := bits.TrailingZeros64(uint64(left))
		switch {
		case i < hotInts && nullable>>i&1 == 1:
			a.intOrNull(h.ints[i])
		case i < hotInts:
			a.int(h.ints[i])
		case i == hotReason:
			a.textOrNull(h.reason)
		case i == hotReasonText:
			a.textOrNull(h.reasonText)
		case i == hotWorker:
			a.idOrNull((*[16]byte)(&e.Worker))
		case i == hotSecret:
			a.idOrNull((*[16]byte)(&e.Secret))
		case i == hotMessage:
			a.textOrNull(h.message)
		case i == hotPlan:
			a.blobOrNull(e.Plan)
		}
	}
}

// names are the columns of a set, in order.
func (m mask) names() []string {
	var names []string
	for i, name := range hotColumns {
		if m>>i&1 == 1 {
			names = append(names, name)
		}
	}
	return names
}

// scanExecution reads a row of selectExecutions.
func scanExecution(r columns, policies *parsed[belay.Policy]) (*machine.Execution, error) {
	policy, err := policies.parse("a policy", r.text(7))
	if err != nil {
		return nil, err
	}
	e := &machine.Execution{
		ID: r.id(0), Parent: r.id(1), Child: r.text(2), ParentGen: int(r.int(3)), Workflow: r.text(4), Version: r.text(5),
		Queue: r.text(6), Policy: policy, CreatedAt: machine.Time(r.int(8)),
	}
	h := r[fixedCount:]
	e.State, e.PausedFrom, e.Gate = belay.State(h.int(hotState)), belay.State(h.int(hotPausedFrom)), belay.Gate(h.int(hotGate))
	e.Lane = machine.LaneID(h.int(hotLane))
	e.DueAt, e.CheckAt = machine.Time(h.int(hotDueAt)), machine.Time(h.int(hotCheckAt))
	e.Seq, e.Token, e.Generation = h.int(hotSeq), belay.Token(h.int(hotToken)), int(h.int(hotGeneration))
	e.BaseSeq, e.InputGen, e.ClaimNo = h.int(hotBaseSeq), int(h.int(hotInputGen)), h.int(hotClaimNo)
	e.Attempts, e.Losses, e.Checkpoints = int(h.int(hotAttempts)), int(h.int(hotLosses)), int(h.int(hotCheckpoints))
	e.StateSeq, e.SignalSeq, e.SignalSeen = h.int(hotStateSeq), h.int(hotSignalSeq), h.int(hotSignalSeen)
	e.Signals, e.SignalBytes = int(h.int(hotSignals)), h.int(hotSignalBytes)
	e.Open, e.Cost, e.Parted = int(h.int(hotOpen)), h.int(hotCost), h.int(hotParted)
	e.ScheduledAt, e.StartedAt, e.RunAt = machine.Time(h.int(hotScheduledAt)), machine.Time(h.int(hotStartedAt)), machine.Time(h.int(hotRunAt))
	e.ProgressAt, e.FinishedAt = machine.Time(h.int(hotProgressAt)), machine.Time(h.int(hotFinishedAt))
	e.CancelBy = machine.Time(h.int(hotCancelBy))
	e.PauseRequested, e.Preempting = h.int(hotPauseRequested) != 0, h.int(hotPreempting) != 0
	e.Class, e.Message, e.Plan = belay.Class(h.int(hotClass)), h.text(hotMessage), h.blob(hotPlan)
	e.Reason, e.ReasonText = h.text(hotReason), h.text(hotReasonText)
	e.Worker, e.Secret = h.id(hotWorker), h.id(hotSecret)
	return e, nil
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
