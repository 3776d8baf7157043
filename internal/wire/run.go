package wire

import (
	"encoding/json"

	"github.com/belaydev/belay"
)

// StateKey is the key of a checkpoint that is saved without a key: the free-form state of an
// execution. A new state replaces the old state. A checkpoint with any other key is a step; it
// replaces only a checkpoint with the same key.
const StateKey = "state"

// Progress saves a checkpoint of a run. The headers Lease-Id and Lease-Token have the lease, and
// Idempotency-Key the operation id.
type Progress struct {
	Kind       belay.CheckpointKind `json:"kind,omitempty" doc:"Without it, a checkpoint with a key is a step, and one without a key is the state."`
	Key        string               `json:"key,omitempty" maxLength:"200" doc:"Only the newest checkpoint of each key counts. Without a key the checkpoint is the state of the execution."`
	Data       json.RawMessage      `json:"data,omitempty" doc:"Any JSON; at most 1 MiB."`
	Consumes   int64                `json:"consumes,omitempty" minimum:"0" doc:"The seq of the signal that this wait consumes."`
	Also       []int64              `json:"also_consumes,omitempty" maxItems:"1000" doc:"The seqs of further signals, and of ends of children, that this checkpoint consumes. So a state can take in many ends of children in one write."`
	CostTokens belay.Cost           `json:"cost_tokens,omitempty" doc:"Added to the execution's cost. A number of tokens with at most four decimals, kept exactly."`
	Usage      belay.ModelUsage     `json:"usage,omitzero" doc:"The usage of language models since the last report, for GET /v1/usage. It does not change the cost: cost_tokens must have its tokens too. A correction may be negative."`
	DurationMS int64                `json:"duration_ms,omitempty" doc:"How long the step or wait took, until its result was there. The history shows it."`
	Attempt    int                  `json:"attempt,omitempty" doc:"The number of the try that had this result, from 1. The history shows it."`
	Ended
}

// Ended has steps and waits without a checkpoint of their own.
type Ended struct {
	Steps []StepReport `json:"steps,omitempty" doc:"Steps and waits without a checkpoint of their own, for the history: failed tries and others that have ended since the last write of the run, and those that a run which ends leaves unfinished. The last 8 are kept."`
}

// Reports converts the steps from the wire.
func (w *Ended) Reports() []belay.StepReport { return reports(w.Steps) }

// Save converts the checkpoint from the wire.
func (w *Progress) Save(l belay.Lease, op belay.OpID) belay.Save {
	s := belay.Save{
		Lease: l, Op: op, Kind: w.Kind, Key: w.Key, Data: w.Data, Consumes: w.Consumes, AlsoConsumes: w.Also,
		CostTokens: w.CostTokens, Usage: w.Usage, Took: Duration(w.DurationMS), Attempt: w.Attempt, Steps: w.Reports(),
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

// Saved is the answer to a request that saves a checkpoint.
type Saved struct {
	Seq int64 `json:"seq" doc:"The checkpoint's number in the history."`
}

// Complete ends a run with success.
type Complete struct {
	Output     json.RawMessage `json:"output,omitempty" doc:"Any JSON; at most 1 MiB."`
	CostTokens belay.Cost      `json:"cost_tokens,omitempty"`
	Ended
}

// Fail ends a run with a failure; the execution's policy says what follows.
type Fail struct {
	Error        belay.Failure   `json:"error"`
	Output       json.RawMessage `json:"output,omitempty" doc:"A result of the failed run, if it has one."`
	RetryAfterMS int64           `json:"retry_after_ms,omitempty" minimum:"0" doc:"The least delay before the next attempt."`
	CostTokens   belay.Cost      `json:"cost_tokens,omitempty"`
	Ended
}

// Suspend ends a run, and lets its execution wait for a time, a signal or the end of a child.
type Suspend struct {
	WaitMS     int64      `json:"wait_ms,omitempty" minimum:"0" doc:"How long to wait at most; 0 waits without a limit for a signal or a child."`
	WaitText   string     `json:"wait_text,omitempty" maxLength:"200" doc:"What the run waits for. A text that begins with signal or child is shown as the reason of the wait; otherwise the reason is timer or signal."`
	SignalSeen int64      `json:"signal_seen,omitempty" minimum:"0" doc:"The seq of the newest signal that the run has seen; if there is a newer signal, the execution continues at once."`
	CostTokens belay.Cost `json:"cost_tokens,omitempty"`
	Ended
}

// Release gives the lock of an outside owner back, and says how the run ended.
type Release struct {
	Outcome    string          `json:"outcome" enum:"suspend,complete,fail,requeue" doc:"suspend: the execution waits for the next lock. complete, fail: the execution ends. requeue: the next owner may lock it at once."`
	Output     json.RawMessage `json:"output,omitempty" doc:"complete, fail: any JSON; at most 1 MiB."`
	Error      *belay.Failure  `json:"error,omitempty" doc:"fail: what went wrong."`
	Wait       belay.Duration  `json:"wait,omitempty" doc:"suspend: after how long the execution is due by itself; without wait it waits for a lock or a signal."`
	WaitText   string          `json:"wait_text,omitempty" maxLength:"200" doc:"suspend: what the execution waits for."`
	RetryAfter belay.Duration  `json:"retry_after,omitempty" doc:"fail: the least delay before the next attempt."`
	SignalSeen int64           `json:"signal_seen,omitempty" minimum:"0"`
	CostTokens belay.Cost      `json:"cost_tokens,omitempty"`

	WaitMS       int64 `json:"wait_ms,omitempty" minimum:"0" doc:"wait in milliseconds."`
	RetryAfterMS int64 `json:"retry_after_ms,omitempty" minimum:"0" doc:"retry_after in milliseconds."`
}

// Settlement converts the release from the wire. The error is CodeInvalid if the text and the milliseconds of a
// duration differ.
func (w *Release) Settlement(l belay.Lease, op belay.OpID) (belay.Settlement, error) {
	wait, after := w.Wait, w.RetryAfter
	err := eachDuration(millis{"wait", &wait, w.WaitMS}, millis{"retry_after", &after, w.RetryAfterMS})
	outcome := map[string]belay.Outcome{
		"suspend": belay.OutcomeSuspended, "complete": belay.OutcomeSucceeded, "fail": belay.OutcomeFailed,
		"requeue": belay.OutcomeReleased,
	}[w.Outcome]
	return belay.Settlement{
		Lease: l, Op: op, Outcome: outcome, Output: w.Output, Failure: w.Error, RetryAfter: after.D(),
		Wait: wait.D(), WaitText: w.WaitText, SignalSeen: w.SignalSeen, CostTokens: w.CostTokens,
	}, err
}

// Steal requests the steal action: to take an execution away from its owner.
type Steal struct {
	Reason string `json:"reason" minLength:"1" maxLength:"200" doc:"The reason, which the history shows."`
	Actor  string `json:"actor,omitempty" maxLength:"200" doc:"The name of the actor, if the request needs no key."`
}

// Renewal is the answer to the heartbeat of one run.
type Renewal struct {
	ExpiresInMS    int64 `json:"expires_in_ms" doc:"How long the lease lives, counted from the sending of the heartbeat."`
	Cancel         bool  `json:"cancel,omitempty" doc:"The execution was cancelled: end the run."`
	CancelWithinMS int64 `json:"cancel_within_ms,omitempty" doc:"The time left to end the run."`
	Pause          bool  `json:"pause,omitempty" doc:"Give the execution back at the next safe point."`
	Preempt        bool  `json:"preempt,omitempty" doc:"Give the execution back, because a more urgent one needs the slot."`
	SignalSeq      int64 `json:"signal_seq,omitempty" doc:"The seq of the newest signal, if a signal came since the claim."`
	Drain          bool  `json:"drain,omitempty" doc:"The session claims no more executions and should end."`
}

// RenewalOf converts the reply to one run's heartbeat for the wire.
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

// Reply converts the renewal of the lease l from the wire.
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
