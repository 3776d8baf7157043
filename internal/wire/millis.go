package wire

import (
	"fmt"
	"time"

	"github.com/belaydev/belay"
)

// PolicyFields are the fields of a policy in requests. The type has no methods, so that the JSON of
// a struct that embeds it contains the struct's other fields too.
type PolicyFields belay.Policy

// PolicyMS are the durations of a policy in milliseconds, for programs that do not read Go's durations.
type PolicyMS struct {
	BackoffBaseMS      int64 `json:"backoff_base_ms,omitempty" minimum:"0" doc:"backoff_base in milliseconds."`
	BackoffCapMS       int64 `json:"backoff_cap_ms,omitempty" minimum:"0" doc:"backoff_cap in milliseconds."`
	ScheduledTimeoutMS int64 `json:"scheduled_timeout_ms,omitempty" minimum:"0" doc:"scheduled_timeout in milliseconds."`
	StartTimeoutMS     int64 `json:"start_timeout_ms,omitempty" minimum:"0" doc:"start_timeout in milliseconds."`
	RunTimeoutMS       int64 `json:"run_timeout_ms,omitempty" minimum:"0" doc:"run_timeout in milliseconds."`
	IdleTimeoutMS      int64 `json:"idle_timeout_ms,omitempty" minimum:"0" doc:"idle_timeout in milliseconds."`
	TimeoutMS          int64 `json:"timeout_ms,omitempty" minimum:"0" doc:"timeout in milliseconds."`
	CancelGraceMS      int64 `json:"cancel_grace_ms,omitempty" minimum:"0" doc:"cancel_grace in milliseconds."`
	LockDelayMS        int64 `json:"lock_delay_ms,omitempty" minimum:"0" doc:"lock_delay in milliseconds."`
}

// policy returns a policy. The request may give each duration as text, in milliseconds, or in both
// forms with the same value.
func (w *PolicyMS) policy(fields PolicyFields) (belay.Policy, error) {
	p := belay.Policy(fields)
	err := eachDuration(
		millis{"backoff_base", &p.BackoffBase, w.BackoffBaseMS}, millis{"backoff_cap", &p.BackoffCap, w.BackoffCapMS},
		millis{"scheduled_timeout", &p.ScheduledTimeout, w.ScheduledTimeoutMS},
		millis{"start_timeout", &p.StartTimeout, w.StartTimeoutMS},
		millis{"run_timeout", &p.RunTimeout, w.RunTimeoutMS}, millis{"idle_timeout", &p.IdleTimeout, w.IdleTimeoutMS},
		millis{"timeout", &p.Timeout, w.TimeoutMS}, millis{"cancel_grace", &p.CancelGrace, w.CancelGraceMS},
		millis{"lock_delay", &p.LockDelay, w.LockDelayMS},
	)
	return p, err
}

// WorkerSpec is the request for a session.
type WorkerSpec struct {
	belay.WorkerSpec
	TTLMS       int64 `json:"ttl_ms,omitempty" minimum:"0" doc:"ttl in milliseconds."`
	HeartbeatMS int64 `json:"heartbeat_ms,omitempty" minimum:"0" doc:"heartbeat in milliseconds."`
}

// Spec converts the request from the wire. The error is CodeInvalid if the text and the
// milliseconds of a duration differ.
func (w *WorkerSpec) Spec() (belay.WorkerSpec, error) {
	s := w.WorkerSpec
	err := eachDuration(millis{"ttl", &s.TTL, w.TTLMS}, millis{"heartbeat", &s.Heartbeat, w.HeartbeatMS})
	return s, err
}

// millis is a duration that a request may give in two fields: the field with this name has the
// duration as text, and the field with _ms after the name has it in milliseconds. A field with the
// value 0 counts as not given.
type millis struct {
	name string
	text *belay.Duration
	ms   int64
}

// eachDuration sets durations that are given in milliseconds alone, and refuses durations whose text and milliseconds
// differ.
func eachDuration(all ...millis) error {
	for _, d := range all {
		switch {
		case d.ms == 0:
		case *d.text == 0:
			*d.text = belay.Duration(Duration(d.ms))
		case Millis(time.Duration(*d.text)) != d.ms:
			return &belay.Error{Code: belay.CodeInvalid, Message: fmt.Sprintf(
				"%s is %s and %s_ms is %d, which differ; send one of them", d.name, d.text.D(), d.name, d.ms)}
		}
	}
	return nil
}

// Policy is the JSON of a belay.Policy.
type Policy struct {
	PolicyFields
	PolicyMS
}

// WorkerFields are the fields of a belay.Worker, without its methods.
type WorkerFields belay.Worker

// Worker is the JSON of a belay.Worker.
type Worker struct {
	WorkerFields
	TTLMS       int64 `json:"ttl_ms,omitempty" minimum:"0" doc:"ttl in milliseconds."`
	HeartbeatMS int64 `json:"heartbeat_ms,omitempty" minimum:"0" doc:"heartbeat in milliseconds."`
}

// GatePaceFields are the fields of a belay.GatePace, without its methods.
type GatePaceFields belay.GatePace

// GatePace is the JSON of a belay.GatePace.
type GatePace struct {
	GatePaceFields
	PerMS int64 `json:"per_ms" minimum:"0" doc:"per in milliseconds."`
}

// GateResourceFields are the fields of a belay.GateResourceInfo, without its methods.
type GateResourceFields belay.GateResourceInfo

// GateResourceInfo is the JSON of a belay.GateResourceInfo.
type GateResourceInfo struct {
	GateResourceFields
	MinResidencyMS int64            `json:"min_residency_ms,omitempty" minimum:"0" doc:"min_residency in milliseconds."`
	MaxWaitMS      int64            `json:"max_wait_ms" minimum:"0" doc:"max_wait in milliseconds."`
	Swap           *ResourceSwapper `json:"swap,omitempty"`
}

// ResourceSwapper is the JSON of a belay.ResourceSwapper in a GateResourceInfo.
type ResourceSwapper struct {
	belay.ResourceSwapper
	TimeoutMS int64 `json:"timeout_ms,omitempty" minimum:"0" doc:"timeout in milliseconds."`
}

// SessionFields are the fields of a belay.Session, without its methods.
type SessionFields belay.Session

// Session is the JSON of a belay.Session.
type Session struct {
	SessionFields
	TTLMS       int64 `json:"ttl_ms" minimum:"0" doc:"ttl in milliseconds."`
	HeartbeatMS int64 `json:"heartbeat_ms" minimum:"0" doc:"heartbeat in milliseconds."`
}
