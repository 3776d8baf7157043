package wire

import (
	"time"

	"github.com/belaydev/belay"
)

// By is the part that the bodies of all changes of gates share. The header Idempotency-Key has the
// operation id.
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

// Time is the time of the rate. CodeInvalid if it is given twice and differs.
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

// gates are the gates that the submission names. CodeInvalid if the time of the rate is given twice and
// differs.
func (w *Submit) gates() (belay.Gates, error) {
	g := belay.Gates{Concurrency: w.Concurrency, Target: w.Target}
	if w.Rate == nil {
		return g, nil
	}
	g.Rate = &belay.Rate{Name: w.Rate.Name, Max: w.Rate.Max, Per: w.Rate.Per}
	return g, eachDuration(millis{"rate.per", &g.Rate.Per, w.Rate.PerMS})
}

// GateBreaker sets the circuit breaker of a target.
type GateBreaker struct {
	State BreakerState `json:"state" enum:"open,closed,automatic" doc:"open and closed hold until the state is set to automatic again, which begins with a closed breaker."`
	By
}

// BreakerState is the state that an operator gives to a circuit breaker.
type BreakerState string

// The states that an operator gives to a circuit breaker.
const (
	BreakerOpen      BreakerState = "open"
	BreakerClosed    BreakerState = "closed"
	BreakerAutomatic BreakerState = "automatic"
)

// breakerActions are the actions that give a circuit breaker its states.
var breakerActions = map[BreakerState]belay.GateAction{
	BreakerOpen: belay.GateForceOpen, BreakerClosed: belay.GateForceClosed, BreakerAutomatic: belay.GateAutomatic,
}

// Action is the action that gives a circuit breaker the state, empty for another word.
func (s BreakerState) Action() belay.GateAction { return breakerActions[s] }

// BreakerStateOf is the state that an action gives to a circuit breaker.
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
	// Paused is the pause of the target, which shuts it whatever the state of its breaker is.
	Paused *belay.GatePaused `json:"paused,omitempty" doc:"A pause by an operator, which shuts the target whatever the state of its circuit breaker is."`
}

// CircuitBreakerOf is the circuit breaker of a target's gate. A target without failures has a closed
// one.
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
