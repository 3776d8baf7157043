package wire

import (
	"encoding/json"

	"github.com/belaydev/belay"
)

// StateKey is the key of a checkpoint that was given none: the one state of an
// execution, which replaces the state before it. Under a key of its own a
// checkpoint is a step and stands beside the others.
const StateKey = "state"

// Progress saves a checkpoint of a run. Its lease stands in the headers Lease-Id
// and Lease-Token, its operation id in Idempotency-Key.
type Progress struct {
	Kind       belay.CheckpointKind `json:"kind,omitempty" doc:"step if it has a key and state if it has none, unless said otherwise."`
	Key        string               `json:"key,omitempty" maxLength:"200" doc:"The newest checkpoint of a key counts. Without one it is the execution's one state."`
	Data       json.RawMessage      `json:"data,omitempty" doc:"Any JSON; at most 1 MiB."`
	Consumes   int64                `json:"consumes,omitempty" minimum:"0" doc:"The seq of the signal that this wait took."`
	CostTokens int64                `json:"cost_tokens,omitempty" minimum:"0" doc:"Added to the execution's cost."`
}

// Save is the checkpoint as its noun.
func (w *Progress) Save(l belay.Lease, op belay.OpID) belay.Save {
	s := belay.Save{
		Lease: l, Op: op, Kind: w.Kind, Key: w.Key, Data: w.Data, Consumes: w.Consumes, CostTokens: w.CostTokens,
	}
	if s.Kind == 0 {
		s.Kind = belay.KindStep
		if s.Key == "" {
			s.Kind = belay.KindState
		}
	}
	if s.Key == "" {
		s.Key = StateKey
	}
	return s
}

// Saved answers a checkpoint.
type Saved struct {
	Seq int64 `json:"seq" doc:"The checkpoint's number in the history."`
}

// Complete ends a run well.
type Complete struct {
	Output     json.RawMessage `json:"output,omitempty" doc:"Any JSON; at most 1 MiB."`
	CostTokens int64           `json:"cost_tokens,omitempty" minimum:"0"`
}

// Fail ends a run badly; the execution's policy says what follows.
type Fail struct {
	Error        belay.Failure   `json:"error"`
	Output       json.RawMessage `json:"output,omitempty" doc:"What it has to show nevertheless."`
	RetryAfterMS int64           `json:"retry_after_ms,omitempty" minimum:"0" doc:"The least delay before the next attempt."`
	CostTokens   int64           `json:"cost_tokens,omitempty" minimum:"0"`
}

// Suspend gives a run back until what it waits for has come.
type Suspend struct {
	WaitMS     int64  `json:"wait_ms,omitempty" minimum:"0" doc:"How long to wait at most for anything; 0 waits for a signal or child alone."`
	WaitText   string `json:"wait_text,omitempty" maxLength:"200" doc:"What it waits for. If it begins with signal or child, that is the reason that is shown; else the reason is timer or signal."`
	SignalSeen int64  `json:"signal_seen,omitempty" minimum:"0" doc:"The newest signal the run knows of; if there is a newer one it goes on at once."`
	CostTokens int64  `json:"cost_tokens,omitempty" minimum:"0"`
}

// Release gives an outside owner's lock back with what became of it.
type Release struct {
	Outcome    string          `json:"outcome" enum:"suspend,complete,fail,requeue" doc:"suspend waits for the next lock, complete and fail end it, requeue hands it on at once."`
	Output     json.RawMessage `json:"output,omitempty" doc:"complete, fail: any JSON; at most 1 MiB."`
	Error      *belay.Failure  `json:"error,omitempty" doc:"fail: what went wrong."`
	Wait       belay.Duration  `json:"wait,omitempty" doc:"suspend: how long until it is due by itself; without it, it waits for a lock or a signal."`
	WaitText   string          `json:"wait_text,omitempty" maxLength:"200" doc:"suspend: what it waits for."`
	RetryAfter belay.Duration  `json:"retry_after,omitempty" doc:"fail: the least delay before the next attempt."`
	SignalSeen int64           `json:"signal_seen,omitempty" minimum:"0"`
	CostTokens int64           `json:"cost_tokens,omitempty" minimum:"0"`
}

// Settlement is the release as its noun.
func (w *Release) Settlement(l belay.Lease, op belay.OpID) belay.Settlement {
	outcome := map[string]belay.Outcome{
		"suspend": belay.OutcomeSuspended, "complete": belay.OutcomeSucceeded, "fail": belay.OutcomeFailed,
		"requeue": belay.OutcomeReleased,
	}[w.Outcome]
	return belay.Settlement{
		Lease: l, Op: op, Outcome: outcome, Output: w.Output, Failure: w.Error, RetryAfter: w.RetryAfter.D(),
		Wait: w.Wait.D(), WaitText: w.WaitText, SignalSeen: w.SignalSeen, CostTokens: w.CostTokens,
	}
}

// Steal takes an execution from its owner.
type Steal struct {
	Reason string `json:"reason" minLength:"1" maxLength:"200" doc:"Why; it stands in the history."`
	Actor  string `json:"actor,omitempty" maxLength:"200" doc:"Who, where no key says it."`
}

// Renewal answers the heartbeat of one run.
type Renewal struct {
	ExpiresInMS    int64 `json:"expires_in_ms" doc:"How long the lease lives, counted from the sending of the heartbeat."`
	Cancel         bool  `json:"cancel,omitempty" doc:"It was cancelled: end it."`
	CancelWithinMS int64 `json:"cancel_within_ms,omitempty" doc:"The time left to end it."`
	Pause          bool  `json:"pause,omitempty" doc:"Give it back at the next safe point."`
	Preempt        bool  `json:"preempt,omitempty" doc:"Give it back to something more urgent."`
	SignalSeq      int64 `json:"signal_seq,omitempty" doc:"The newest signal, if one came since the claim."`
	Drain          bool  `json:"drain,omitempty" doc:"The session takes nothing new and should end."`
}

// RenewalOf is the reply to one run's heartbeat for the wire.
func RenewalOf(r belay.HeartbeatReply) Renewal {
	w := Renewal{
		ExpiresInMS: r.ExpiresIn.Milliseconds(), Pause: len(r.Pause) > 0, Preempt: len(r.Preempt) > 0, Drain: r.Drain,
	}
	for _, c := range r.Cancel {
		w.Cancel, w.CancelWithinMS = true, Millis(c.Within)
	}
	for _, s := range r.Signals {
		w.SignalSeq = max(w.SignalSeq, s.SignalSeq)
	}
	return w
}

// Reply is the renewal as its noun; the lease is the one that was renewed.
func (w *Renewal) Reply(l belay.Lease) belay.HeartbeatReply {
	run := belay.Held{Execution: l.Execution, Token: l.Token}
	r := belay.HeartbeatReply{ExpiresIn: Duration(w.ExpiresInMS), Drain: w.Drain}
	if w.Cancel {
		r.Cancel = []belay.Cancelling{{Held: run, Within: Duration(w.CancelWithinMS)}}
	}
	if w.Pause {
		r.Pause = []belay.Held{run}
	}
	if w.Preempt {
		r.Preempt = []belay.Held{run}
	}
	if w.SignalSeq > 0 {
		r.Signals = []belay.Signalled{{Held: run, SignalSeq: w.SignalSeq}}
	}
	return r
}
