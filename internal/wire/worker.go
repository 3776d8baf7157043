package wire

import (
	"encoding/json"

	"github.com/belaydev/belay"
)

// WorkerCordon cordons a worker.
type WorkerCordon struct {
	Reason string `json:"reason,omitempty" maxLength:"200" doc:"The reason, which the list of workers and explain show."`
	Actor  string `json:"actor,omitempty" maxLength:"200" doc:"The name of the actor, if the request needs no key."`
}

// Claim requests executions to run.
type Claim struct {
	Number int64 `json:"number" minimum:"1" doc:"Each new claim of the session has the next number, and only one claim is in flight. A repeat with the same number gets what the claim won."`
	Slots  int   `json:"slots" minimum:"0" maximum:"10000" doc:"The most executions to win; an answer has 128 at most. With 0 the claim only waits for attention."`
	WaitMS int64 `json:"wait_ms,omitempty" minimum:"0" doc:"How long to wait while no execution is due, 60000 at most."`
	Repeat bool  `json:"repeat,omitempty" doc:"The claim was sent before, and its reply was lost."`

	Messages bool `json:"messages,omitempty" doc:"Messages reach the mailbox of the worker: the claim leaves out the queues whose executions the server announces by messages."`
}

// ClaimReply lists the executions that a claim has won.
type ClaimReply struct {
	Assignments []Assignment `json:"assignments,omitempty"`
	Attention   bool         `json:"attention,omitempty" doc:"Send a heartbeat now: its reply has something for the worker."`
}

// Accept begins the runs of executions that are scheduled to the worker.
type Accept struct {
	Number int64   `json:"number" minimum:"1" doc:"Each new accept of the session has a higher number; several may be in flight. A repeat has the same number."`
	Offers []Offer `json:"offers" minItems:"1" maxItems:"128" doc:"The executions in the messages, or in the reply to a heartbeat."`
}

// Offer is an execution that is scheduled to the worker.
type Offer struct {
	Execution belay.ExecutionID `json:"execution"`
	Token     belay.Token       `json:"token" minimum:"1" doc:"The token under which the execution is scheduled."`
}

// AcceptOf converts an accept for the wire.
func AcceptOf(r belay.AcceptRequest) Accept {
	return Accept{Number: r.Number, Offers: offersOf(r.Offers)}
}

// Accept converts the accept from the wire.
func (w *Accept) Accept(id belay.WorkerID) belay.AcceptRequest {
	return belay.AcceptRequest{Worker: id, Number: w.Number, Offers: offers(w.Offers)}
}

func offersOf(in []belay.Held) []Offer {
	var out []Offer
	for _, h := range in {
		out = append(out, Offer{h.Execution, h.Token})
	}
	return out
}

func offers(in []Offer) []belay.Held {
	var out []belay.Held
	for _, o := range in {
		out = append(out, belay.Held{Execution: o.Execution, Token: o.Token})
	}
	return out
}

// AcceptReply lists the runs that an accept has begun.
type AcceptReply struct {
	Assignments []Assignment `json:"assignments" doc:"An offer that is not among them is out of date: forget it."`
}

// AcceptReplyOf converts the reply to an accept for the wire.
func AcceptReplyOf(r belay.AcceptReply) AcceptReply {
	w := AcceptReply{Assignments: make([]Assignment, len(r.Assignments))}
	for i := range r.Assignments {
		w.Assignments[i] = AssignmentOf(&r.Assignments[i])
	}
	return w
}

// Reply converts the reply to an accept from the wire.
func (w *AcceptReply) Reply() belay.AcceptReply {
	r := ClaimReply{Assignments: w.Assignments}
	return belay.AcceptReply{Assignments: r.Reply().Assignments}
}

// Assignment is one execution that a claim won, with all that the worker needs to continue it.
type Assignment struct {
	Lease       Lease             `json:"lease"`
	Run         belay.RunID       `json:"run"`
	Workflow    string            `json:"workflow"`
	Version     string            `json:"version,omitempty"`
	Queue       string            `json:"queue"`
	Input       json.RawMessage   `json:"input,omitempty"`
	Generation  int               `json:"generation"`
	Attempt     int               `json:"attempt"`
	Parent      belay.ExecutionID `json:"parent,omitzero"`
	Policy      *belay.Policy     `json:"policy,omitempty"`
	First       bool              `json:"first,omitempty" doc:"The execution was never claimed before, so no run has stored anything."`
	Alone       bool              `json:"alone,omitempty" doc:"The execution was lost several times in a row and may kill its worker: claim nothing else until it has saved a checkpoint, has ended or has run for five seconds."`
	Checkpoints []Checkpoint      `json:"checkpoints,omitempty"`
	Signals     []belay.Signal    `json:"signals,omitempty"`
	More        bool              `json:"more,omitempty" doc:"The answer had no room for all checkpoints and signals, and perhaps not for the input: read the rest with readCheckpoints before you begin."`
	SignalSeq   int64             `json:"signal_seq,omitempty"`
	RemainingMS int64             `json:"remaining_ms,omitempty" doc:"The rest of the execution's own timeout; 0 means no limit."`
	Traceparent string            `json:"traceparent,omitempty" doc:"The trace of the run, for what the run calls; without the field there is none."`
	Tracestate  string            `json:"tracestate,omitempty" doc:"The tracestate that belongs to traceparent."`
}

// Checkpoint is saved progress as the next owner of the execution receives it.
type Checkpoint struct {
	Seq   int64                `json:"seq"`
	Kind  belay.CheckpointKind `json:"kind"`
	Key   string               `json:"key"`
	Data  json.RawMessage      `json:"data,omitempty"`
	AgeMS int64                `json:"age_ms,omitempty" doc:"How long ago the checkpoint was saved."`
}

// Resumed is one part of the data that an owner needs to continue an execution.
type Resumed struct {
	Input       json.RawMessage `json:"input,omitempty" doc:"The execution's input, if after is 0."`
	Checkpoints []Checkpoint    `json:"checkpoints,omitempty" doc:"The newest checkpoint of each key, if it counts, in order of seq."`
	Signals     []belay.Signal  `json:"signals,omitempty" doc:"The signals that no checkpoint has consumed, in order of seq."`
	More        bool            `json:"more,omitempty" doc:"There is more: repeat the request with after set to the highest seq of this answer."`
}

// ResumedOf converts the answer to a belay.ResumeQuery for the wire.
func ResumedOf(r belay.Resumed) Resumed {
	return Resumed{Input: r.Input, Checkpoints: CheckpointsOf(r.Checkpoints), Signals: r.Signals, More: r.More}
}

// Resumed converts the answer to a belay.ResumeQuery from the wire.
func (w *Resumed) Resumed() belay.Resumed {
	return belay.Resumed{Input: w.Input, Checkpoints: checkpoints(w.Checkpoints), Signals: w.Signals, More: w.More}
}

// CheckpointsOf converts checkpoints for the wire.
func CheckpointsOf(in []belay.Checkpoint) []Checkpoint {
	if len(in) == 0 {
		return nil
	}
	out := make([]Checkpoint, len(in))
	for i, c := range in {
		out[i] = Checkpoint{c.Seq, c.Kind, c.Key, c.Data, Millis(c.Age)}
	}
	return out
}

func checkpoints(in []Checkpoint) []belay.Checkpoint {
	if len(in) == 0 {
		return nil
	}
	out := make([]belay.Checkpoint, len(in))
	for i, c := range in {
		out[i] = belay.Checkpoint{Seq: c.Seq, Kind: c.Kind, Key: c.Key, Data: c.Data, Age: Duration(c.AgeMS)}
	}
	return out
}

// ClaimReplyOf converts the reply to a claim for the wire.
func ClaimReplyOf(r belay.ClaimReply) ClaimReply {
	w := ClaimReply{Attention: r.Attention}
	if len(r.Assignments) > 0 {
		w.Assignments = make([]Assignment, len(r.Assignments))
	}
	for i := range r.Assignments {
		w.Assignments[i] = AssignmentOf(&r.Assignments[i])
	}
	return w
}

// AssignmentOf converts an assignment for the wire.
func AssignmentOf(a *belay.Assignment) Assignment {
	w := Assignment{
		Lease: LeaseOf(a.Lease), Run: a.Lease.Run(), Workflow: a.Workflow, Version: a.Version, Queue: a.Queue,
		Input: a.Input, Generation: a.Generation, Attempt: a.Attempt, Parent: a.Parent, First: a.First,
		Alone:       a.Alone,
		Checkpoints: CheckpointsOf(a.Checkpoints), Signals: a.Signals, More: a.More, SignalSeq: a.SignalSeq,
		RemainingMS: Millis(a.Remaining), Traceparent: a.Trace.Parent, Tracestate: a.Trace.State,
	}
	if a.Policy != (belay.Policy{}) {
		w.Policy = &a.Policy
	}
	return w
}

// Reply converts the reply to a claim from the wire.
func (w *ClaimReply) Reply() belay.ClaimReply {
	r := belay.ClaimReply{Attention: w.Attention}
	if len(w.Assignments) > 0 {
		r.Assignments = make([]belay.Assignment, len(w.Assignments))
	}
	for i := range w.Assignments {
		r.Assignments[i] = w.Assignments[i].Assignment()
	}
	return r
}

// Assignment converts an assignment from the wire.
func (w *Assignment) Assignment() belay.Assignment {
	a := belay.Assignment{
		Lease: w.Lease.Lease(), Workflow: w.Workflow, Version: w.Version, Queue: w.Queue,
		Input: w.Input, Generation: w.Generation, Attempt: w.Attempt, Parent: w.Parent, First: w.First,
		Alone:       w.Alone,
		Checkpoints: checkpoints(w.Checkpoints), Signals: w.Signals, More: w.More, SignalSeq: w.SignalSeq,
		Remaining: Duration(w.RemainingMS),
		Trace:     belay.Trace{Parent: w.Traceparent, State: w.Tracestate}.Valid(),
	}
	if w.Policy != nil {
		a.Policy = *w.Policy
	}
	return a
}

// Held names a run that a worker owns.
type Held struct {
	Execution belay.ExecutionID `json:"execution"`
	Token     belay.Token       `json:"token"`
	IdleMS    int64             `json:"idle_ms,omitempty" doc:"How long ago the run last made progress. Without the field the heartbeat reports no progress, which matters if the policy has an idle_timeout."`
	Steps     []StepReport      `json:"steps,omitempty" doc:"The steps and waits that the run is busy with; 8 of a run are kept."`
}

// Heartbeat renews a session.
type Heartbeat struct {
	Holds     []Held `json:"holds,omitempty" doc:"Every run that the worker owns, from the reply to its claim until its end is acknowledged. A run that the heartbeat does not name is released."`
	ClaimSeen int64  `json:"claim_seen" minimum:"0" doc:"The highest claim number whose reply the worker has seen or no longer waits for."`

	AcceptSeen int64 `json:"accept_seen,omitempty" minimum:"0" doc:"The highest number up to which the worker has seen the replies to all accepts or no longer waits for them. Only workers that receive messages of a broker have accepts."`
}

// HeartbeatOf converts a heartbeat for the wire.
func HeartbeatOf(h belay.Heartbeat) Heartbeat {
	return Heartbeat{Holds: heldOf(h.Holds), ClaimSeen: h.ClaimSeen, AcceptSeen: h.AcceptSeen}
}

// Heartbeat converts the heartbeat from the wire.
func (w *Heartbeat) Heartbeat(id belay.WorkerID) belay.Heartbeat {
	return belay.Heartbeat{Worker: id, Holds: held(w.Holds), ClaimSeen: w.ClaimSeen, AcceptSeen: w.AcceptSeen}
}

// HeartbeatReply lists the runs that the worker must end or give back, and the runs for which
// signals were delivered.
type HeartbeatReply struct {
	ExpiresInMS int64        `json:"expires_in_ms" doc:"How long the lease lives, counted from the sending of the heartbeat."`
	Revoked     []Held       `json:"revoked,omitempty" doc:"Runs in the heartbeat that the worker does not own: end them."`
	Cancel      []Cancelling `json:"cancel,omitempty" doc:"Runs to end, with the time left to do so."`
	Pause       []Held       `json:"pause,omitempty" doc:"Runs to give back at their next safe point."`
	Preempt     []Held       `json:"preempt,omitempty" doc:"Runs to give back, because more urgent executions need the slots."`
	Signals     []Signalled  `json:"signals,omitempty" doc:"Runs with signals newer than their claim."`
	Offers      []Offer      `json:"offers,omitempty" doc:"Executions that are scheduled to the worker and that it has not accepted: accept them, since their messages may be lost."`
	Drain       bool         `json:"drain,omitempty" doc:"Claim no more executions, and end."`
}

// Cancelling is a run that was cancelled and has not ended.
type Cancelling struct {
	Held
	WithinMS int64 `json:"within_ms"`
}

// Signalled is a run for which signals were delivered.
type Signalled struct {
	Held
	SignalSeq int64 `json:"signal_seq"`
}

// HeartbeatReplyOf converts the reply to a heartbeat for the wire.
func HeartbeatReplyOf(r belay.HeartbeatReply) HeartbeatReply {
	w := HeartbeatReply{
		ExpiresInMS: r.ExpiresIn.Milliseconds(), Revoked: heldOf(r.Revoked), Pause: heldOf(r.Pause),
		Preempt: heldOf(r.Preempt), Offers: offersOf(r.Offers), Drain: r.Drain,
	}
	for _, c := range r.Cancel {
		w.Cancel = append(w.Cancel, Cancelling{heldOne(c.Held), c.Within.Milliseconds()})
	}
	for _, s := range r.Signals {
		w.Signals = append(w.Signals, Signalled{heldOne(s.Held), s.SignalSeq})
	}
	return w
}

// Reply converts the reply to a heartbeat from the wire.
func (w *HeartbeatReply) Reply() belay.HeartbeatReply {
	r := belay.HeartbeatReply{
		ExpiresIn: Duration(w.ExpiresInMS), Revoked: held(w.Revoked), Pause: held(w.Pause), Preempt: held(w.Preempt),
		Offers: offers(w.Offers), Drain: w.Drain,
	}
	for _, c := range w.Cancel {
		r.Cancel = append(r.Cancel, belay.Cancelling{Held: c.held(), Within: Duration(c.WithinMS)})
	}
	for _, s := range w.Signals {
		r.Signals = append(r.Signals, belay.Signalled{Held: s.held(), SignalSeq: s.SignalSeq})
	}
	return r
}

func heldOne(h belay.Held) Held {
	return Held{h.Execution, h.Token, Millis(h.Idle), reportsOf(h.Steps)}
}

func (h Held) held() belay.Held {
	return belay.Held{Execution: h.Execution, Token: h.Token, Idle: Duration(h.IdleMS), Steps: reports(h.Steps)}
}

func heldOf(in []belay.Held) []Held {
	if len(in) == 0 {
		return nil
	}
	out := make([]Held, len(in))
	for i, h := range in {
		out[i] = heldOne(h)
	}
	return out
}

func held(in []Held) []belay.Held {
	if len(in) == 0 {
		return nil
	}
	out := make([]belay.Held, len(in))
	for i, h := range in {
		out[i] = h.held()
	}
	return out
}
