package promise

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/belaydev/belay"
)

// Ending is the result of a call as its caller saw it.
type Ending string

// The endings of calls. Entries of effects and sleeps have no ending.
const (
	OK      Ending = "ok"
	Refused Ending = "refused"
	Unknown Ending = "unknown" // the call may have been carried out
)

// EndOf returns the ending of a call that returned err.
func EndOf(err error) Ending {
	switch {
	case err == nil:
		return OK
	case belay.CodeOf(err) == belay.CodeUnavailable || belay.CodeOf(err) == belay.CodeInternal:
		return Unknown
	}
	return Refused
}

// Entry is one call as its caller saw it, or an event in a workflow: an effect, which is the start
// of a step, or the end of a sleep. A field that does not apply to the entry is empty.
type Entry struct {
	Kind string      `json:"kind"`
	Who  string      `json:"who,omitempty"`
	At   time.Time   `json:"at"`            // when the call was sent, or the event happened
	To   time.Time   `json:"to,omitzero"`   // when the call was answered
	End  Ending      `json:"end,omitempty"` // empty if the entry is not a call
	Code belay.Code  `json:"code,omitempty"`
	Why  belay.Cause `json:"why,omitempty"`
	Text string      `json:"text,omitempty"`

	Execution belay.ExecutionID    `json:"execution,omitzero"`
	Parent    belay.ExecutionID    `json:"parent,omitzero"`
	Worker    belay.WorkerID       `json:"worker,omitzero"`
	Token     belay.Token          `json:"token,omitempty"`
	Op        belay.OpID           `json:"op,omitzero"`
	Name      string               `json:"name,omitempty"`  // workflow, key of a checkpoint, signal or action
	Key       string               `json:"key,omitempty"`   // idempotency key, or reason of an action
	Terms     string               `json:"terms,omitempty"` // the options of a submission, without its input
	Check     belay.CheckpointKind `json:"check,omitzero"`
	Outcome   belay.Outcome        `json:"outcome,omitzero"`
	Seq       int64                `json:"seq,omitempty"`
	Number    int64                `json:"number,omitempty"`
	Data      json.RawMessage      `json:"data,omitempty"`
	Had       []belay.Checkpoint   `json:"had,omitempty"` // the checkpoints that came with a claim
	Least     time.Duration        `json:"least,omitempty"`
	// the execution that the answer to a submission names, or the execution that a fork creates
	Named    belay.ExecutionID `json:"named,omitzero"`
	Replayed bool              `json:"replayed,omitempty"`
	Revoked  int               `json:"revoked,omitempty"`
	Delay    time.Duration     `json:"delay,omitempty"` // the delay that a settlement requested
	Gates    belay.Gates       `json:"gates,omitzero"`  // the gates that a submission names
	Cost     belay.Cost        `json:"cost,omitempty"`  // what a write reports, or the budget of an action or submission
}

// won reports whether the entry is a claim, an accept or a lock, with which a caller became the owner of an
// execution.
func (e *Entry) won() bool { return e.Kind == "claim" || e.Kind == "accept" || e.Kind == "lock" }

// op returns the id of the operation, which is the same in each repetition. The operation id of a
// submission is the id of its execution.
func (e *Entry) op() belay.OpID {
	if e.Kind == "submit" {
		return belay.OpID(e.Execution)
	}
	return e.Op
}

// Answer records when and how the call ended.
func (e *Entry) Answer(to time.Time, err error) {
	e.To, e.End = to, EndOf(err)
	if err == nil {
		return
	}
	e.Code, e.Text = belay.CodeOf(err), err.Error()
	var refusal *belay.Error
	if errors.As(err, &refusal) {
		e.Why = refusal.Cause
	}
}

// Entries makes the entries of one call from its request and its reply. The caller of Entries sets
// the fields of e that all calls have: Kind, Who and At. If the call submitted or won several
// executions, each execution gets an entry of its own. The request must be a pointer or an id.
func Entries(e Entry, request, reply any, to time.Time, err error) []Entry {
	e.Answer(to, err)
	switch r := request.(type) {
	case []belay.Submission:
		return submissions(e, r, reply, err)
	case *belay.ClaimRequest:
		got, _ := reply.(belay.ClaimReply)
		e.Worker, e.Number = r.Worker, r.Number
		return won(e, got.Assignments)
	case *belay.AcceptRequest:
		got, _ := reply.(belay.AcceptReply)
		e.Worker, e.Number = r.Worker, -r.Number // the numbers of claims are others
		return won(e, got.Assignments)
	case *belay.LockRequest:
		e.Execution, e.Worker = r.Execution, r.ID
		if l, is := reply.(belay.Lock); is && err == nil {
			e.lease(l.Lease)
			e.Had, e.Replayed = l.Checkpoints, l.Replayed
		}
	case *belay.WorkerSpec:
		e.Worker = r.ID
		if s, is := reply.(belay.Session); is && err == nil {
			e.Worker = s.ID
		}
	case *belay.Heartbeat:
		e.Worker = r.Worker
		if b, is := reply.(belay.HeartbeatReply); is {
			e.Revoked = len(b.Revoked)
		}
	case *belay.Lease:
		e.lease(*r)
	case *belay.Save:
		e.lease(r.Lease)
		e.Op, e.Check, e.Name, e.Data, e.Replayed = r.Op, r.Kind, r.Key, r.Data, r.Repeat
		e.Cost = r.CostTokens
		e.Seq, _ = reply.(int64)
	case *belay.Settlement:
		e.lease(r.Lease)
		e.Op, e.Outcome, e.Data, e.Delay, e.Replayed = r.Op, r.Outcome, r.Output, r.RetryAfter, r.Repeat
		e.Cost = r.CostTokens
		if r.Failure != nil && r.Failure.Class == belay.ClassCircuitOpen {
			e.Outcome = belay.OutcomeReleased // the run called no target, so no attempt is counted
		}
	case *belay.Control:
		e.Execution, e.Name, e.Op, e.Key, e.Named = r.Execution, string(r.Action), r.Op, r.Reason, r.Fork
		if r.Budget != nil {
			e.Cost = r.Budget.Cost
		}
		if x, is := reply.(belay.Execution); is {
			e.Seq = x.Seq
		}
	case *belay.SignalRequest:
		e.Execution, e.Name, e.Op, e.Data = r.Execution, r.Name, r.Op, r.Payload
	case belay.WorkerID:
		e.Worker = r
	case belay.ExecutionID:
		e.Execution = r
	}
	return []Entry{e}
}

func (e *Entry) lease(l belay.Lease) { e.Execution, e.Worker, e.Token = l.Execution, l.Worker, l.Token }

func submissions(began Entry, all []belay.Submission, reply any, err error) []Entry {
	got, _ := reply.([]belay.Submitted)
	out := make([]Entry, len(all))
	for i := range all {
		e, s := began, &all[i]
		e.Execution, e.Name, e.Key, e.Data = s.ID, s.Workflow, s.IdempotencyKey, s.Input
		gates, _ := json.Marshal(s.Gates)
		e.Terms, e.Gates = fmt.Sprintf("%d %v %v %s", s.Priority, s.Policy, s.DueAt.UTC(), gates), s.Gates
		if s.Budget != nil {
			e.Terms += " " + s.Budget.Cost.String()
			e.Cost = s.Budget.Cost
		}
		if s.Parent != nil {
			e.Parent, e.Token = s.Parent.Execution, s.Parent.Token
		}
		if i < len(got) {
			e.Named, e.Replayed = got[i].ID, got[i].Replayed
			e.Answer(e.To, errors.Join(err, got[i].Err))
		}
		out[i] = e
	}
	return out
}

// won makes an entry for each execution that a claim or an accept won, or one entry for a call that
// failed.
func won(e Entry, all []belay.Assignment) []Entry {
	if e.End != OK {
		return []Entry{e}
	}
	var out []Entry
	for i := range all {
		a := &all[i]
		e.lease(a.Lease)
		e.Had = a.Checkpoints
		out = append(out, e)
	}
	return out
}
