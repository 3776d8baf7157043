package wire

import (
	"time"

	"github.com/belaydev/belay"
)

// By has the fields that the bodies of all changes of gates share. The header Idempotency-Key has
// the operation id.
type By struct {
	Reason string `json:"reason,omitempty" maxLength:"200" doc:"The reason, which the audit keeps."`
	Actor  string `json:"actor,omitempty" maxLength:"200" doc:"The name of the actor, if the request needs no key."`
}

// GatePause pauses a gate.
type GatePause struct {
	Until time.Time `json:"until,omitzero" doc:"When the pause ends by itself; without it, when an operator ends it."`
	By
}

// GateResume ends the pause of a gate.
type GateResume struct{ By }

// GateLimit sets the limit of a gate.
type GateLimit struct {
	Max int `json:"max" minimum:"1" maximum:"10000" doc:"How many may be under way at once. A lower limit ends nothing that is under way."`
	By
}

// GateRate sets the rate of a gate.
type GateRate struct {
	Max int            `json:"max" minimum:"1" maximum:"1000000" doc:"How many runs may start within the time."`
	Per belay.Duration `json:"per,omitempty" doc:"The time, between a millisecond and a day."`
	By
	PerMS int64 `json:"per_ms,omitempty" minimum:"0" doc:"per in milliseconds."`
}

// Time returns the time in which the rate lets Max runs start. The error is CodeInvalid if the text
// and the milliseconds of the time differ.
func (w *GateRate) Time() (belay.Duration, error) {
	per := w.Per
	err := eachDuration(millis{"per", &per, w.PerMS})
	return per, err
}

// Rate is the rate that a submission names.
type Rate struct {
	Name  string         `json:"name" minLength:"1" maxLength:"200"`
	Max   int            `json:"max" minimum:"1" maximum:"1000000" doc:"How many runs may start within the time."`
	Per   belay.Duration `json:"per,omitempty" doc:"The time, between a millisecond and a day."`
	PerMS int64          `json:"per_ms,omitempty" minimum:"0" doc:"per in milliseconds."`
}

// RateOf converts the rate of a submission for the wire, nil if there is none.
func RateOf(r *belay.Rate) *Rate {
	if r == nil {
		return nil
	}
	return &Rate{Name: r.Name, Max: r.Max, Per: r.Per}
}

// gates returns the gates that the submission names. The error is CodeInvalid if the text and the
// milliseconds of the rate's time differ.
func (w *Submit) gates() (belay.Gates, error) {
	g := belay.Gates{Concurrency: w.Concurrency, Target: w.Target, Requires: w.Requires}
	if w.Rate == nil {
		return g, nil
	}
	g.Rate = &belay.Rate{Name: w.Rate.Name, Max: w.Rate.Max, Per: w.Rate.Per}
	return g, eachDuration(millis{"rate.per", &g.Rate.Per, w.Rate.PerMS})
}

// GateResource sets the terms of a resource.
type GateResource struct {
	MinResidency belay.Duration `json:"min_residency,omitempty" doc:"How long the resource keeps a mode at least. Without it: 10s if a workflow performs the swaps (or max_wait, if that is shorter), otherwise none."`
	MaxWait      belay.Duration `json:"max_wait,omitempty" doc:"After this time, executions of another mode are served next: no further run of the present mode starts. Without it: 1m; at most 24h."`
	Swap         *SwapWorkflow  `json:"swap,omitempty" doc:"The workflow that changes the mode. Without it, the mode changes at once."`
	By
	MinResidencyMS int64 `json:"min_residency_ms,omitempty" minimum:"0" doc:"min_residency in milliseconds."`
	MaxWaitMS      int64 `json:"max_wait_ms,omitempty" minimum:"0" doc:"max_wait in milliseconds."`
}

// SwapWorkflow names the workflow that changes the mode of a resource.
type SwapWorkflow struct {
	Workflow  string         `json:"workflow" minLength:"1" maxLength:"200" doc:"Its input has the fields resource, from, to and number; from is empty if the mode is unknown."`
	Version   string         `json:"version,omitempty" maxLength:"200"`
	Queue     string         `json:"queue,omitempty" maxLength:"200" doc:"Without it the queue is named default."`
	Timeout   belay.Duration `json:"timeout,omitempty" doc:"Ends a change that takes longer; 10m without it."`
	TimeoutMS int64          `json:"timeout_ms,omitempty" minimum:"0" doc:"timeout in milliseconds."`
}

// GateResourceOf converts the terms of a resource for the wire.
func GateResourceOf(t *belay.ResourceTerms, by By) GateResource {
	w := GateResource{By: by}
	if t == nil {
		return w
	}
	w.MinResidency, w.MaxWait = t.MinResidency, t.MaxWait
	if s := t.Swap; s != nil {
		w.Swap = &SwapWorkflow{Workflow: s.Workflow, Version: s.Version, Queue: s.Queue, Timeout: s.Timeout}
	}
	return w
}

// Terms converts the terms from the wire. The error is CodeInvalid if the text and the milliseconds of
// a duration differ.
func (w *GateResource) Terms() (*belay.ResourceTerms, error) {
	t := &belay.ResourceTerms{MinResidency: w.MinResidency, MaxWait: w.MaxWait}
	all := []millis{
		{"min_residency", &t.MinResidency, w.MinResidencyMS}, {"max_wait", &t.MaxWait, w.MaxWaitMS},
	}
	if s := w.Swap; s != nil {
		t.Swap = &belay.ResourceSwapper{Workflow: s.Workflow, Version: s.Version, Queue: s.Queue, Timeout: s.Timeout}
		all = append(all, millis{"swap.timeout", &t.Swap.Timeout, s.TimeoutMS})
	}
	return t, eachDuration(all...)
}

// GateBreaker sets the circuit breaker of a target.
type GateBreaker struct {
	State BreakerState `json:"state" enum:"open,closed,automatic" doc:"open and closed hold until the state is set to automatic again, which begins with a closed breaker."`
	By
}

// BreakerState is a state that an operator can set for a circuit breaker.
type BreakerState string

// The states that an operator can set for a circuit breaker.
const (
	BreakerOpen      BreakerState = "open"
	BreakerClosed    BreakerState = "closed"
	BreakerAutomatic BreakerState = "automatic"
)

// breakerActions has, for each state of a circuit breaker, the action with which an operator sets
// it.
var breakerActions = map[BreakerState]belay.GateAction{
	BreakerOpen: belay.GateForceOpen, BreakerClosed: belay.GateForceClosed, BreakerAutomatic: belay.GateAutomatic,
}

// Action returns the action that sets a circuit breaker to the state; empty if the state is
// unknown.
func (s BreakerState) Action() belay.GateAction { return breakerActions[s] }

// BreakerStateOf returns the state to which an action sets a circuit breaker; empty for another
// action.
func BreakerStateOf(a belay.GateAction) BreakerState {
	for s, action := range breakerActions {
		if action == a {
			return s
		}
	}
	return ""
}

// CircuitBreaker is the circuit breaker of a target.
type CircuitBreaker struct {
	Target string `json:"target"`
	belay.Breaker
	// Paused is the operator's pause of the target. While it lasts, no call passes, whatever State
	// is.
	Paused *belay.GatePaused `json:"paused,omitempty" doc:"A pause by an operator, which shuts the target whatever the state of its circuit breaker is."`
}

// CircuitBreakerOf returns the circuit breaker of a target's gate. If the gate stores no circuit
// breaker, because no call has failed, the result is a closed circuit breaker.
func CircuitBreakerOf(g *belay.GateInfo) CircuitBreaker {
	b := CircuitBreaker{Target: g.Name, Breaker: belay.Breaker{State: "closed"}, Paused: g.Pause}
	if g.Breaker != nil {
		b.Breaker = *g.Breaker
	}
	return b
}

// CircuitBreakers is a part of the list of circuit breakers, in the order of their targets.
type CircuitBreakers struct {
	CircuitBreakers []CircuitBreaker `json:"circuit_breakers"`
	Next            string           `json:"next,omitempty" doc:"The cursor at which the list goes on, if this was not all of it."`
}

// TargetCall asks whether a step of a run may call a target, or reports how the call ended.
type TargetCall struct {
	Target  string `json:"target" minLength:"1" maxLength:"200" doc:"The external service, such as payments:charge."`
	Step    string `json:"step,omitempty" maxLength:"200" doc:"Distinguishes calls that the run makes at the same time."`
	Outcome string `json:"outcome,omitempty" enum:"succeeded,failed,released" doc:"How the call ended; without it, the call is about to begin. failed: the target is to blame. released: the call failed, and the target is not to blame. The end of a probe must be reported, and the end of another call only if it is failed."`
}

// TargetCallOf converts a call of a target for the wire.
func TargetCallOf(c belay.TargetCall) TargetCall {
	return TargetCall{Target: c.Target, Step: c.Step, Outcome: c.Outcome.String()}
}

// Call converts the call from the wire.
func (w *TargetCall) Call(l belay.Lease) belay.TargetCall {
	c := belay.TargetCall{Lease: l, Target: w.Target, Step: w.Step}
	if w.Outcome != "" {
		_ = c.Outcome.UnmarshalText([]byte(w.Outcome)) // the schema of the OpenAPI document allows only known words
	}
	return c
}

// TargetAnswer says whether a run may call a target.
type TargetAnswer struct {
	Open         bool   `json:"open" doc:"Whether the target may be called now; false after the end of a call."`
	Probe        bool   `json:"probe,omitempty" doc:"The call tries a target that has failed before. If its end is not reported within 30 seconds, the call counts as failed."`
	Why          string `json:"why,omitempty" doc:"The reason for which the target must not be called."`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty" doc:"The time after which the circuit breaker lets calls through by itself, if that is known."`
}

// TargetAnswerOf converts the answer for the wire.
func TargetAnswerOf(a belay.TargetAnswer) TargetAnswer {
	return TargetAnswer{Open: a.Open, Probe: a.Probe, Why: a.Why, RetryAfterMS: Millis(a.RetryAfter)}
}

// Answer converts the answer from the wire.
func (w TargetAnswer) Answer() belay.TargetAnswer {
	return belay.TargetAnswer{Open: w.Open, Probe: w.Probe, Why: w.Why, RetryAfter: Duration(w.RetryAfterMS)}
}
