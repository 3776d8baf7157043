package belay

import "encoding/json"

// The following types have the fields of Policy, Worker and so on, but not their methods.
// The MarshalJSON methods below embed them to write each duration twice: as text that people read,
// such as "1m30s", and in whole milliseconds in a field whose name ends in _ms, for programs in other
// languages. When package json reads one of these types, it uses the text and ignores the
// milliseconds.
type (
	policyFields       Policy
	workerFields       Worker
	sessionFields      Session
	gatePaceFields     GatePace
	gateResourceFields GateResourceInfo
)

// MarshalJSON writes each duration of the policy also in milliseconds.
func (p Policy) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		policyFields
		BackoffBaseMS      int64 `json:"backoff_base_ms,omitempty"`
		BackoffCapMS       int64 `json:"backoff_cap_ms,omitempty"`
		ScheduledTimeoutMS int64 `json:"scheduled_timeout_ms,omitempty"`
		StartTimeoutMS     int64 `json:"start_timeout_ms,omitempty"`
		RunTimeoutMS       int64 `json:"run_timeout_ms,omitempty"`
		IdleTimeoutMS      int64 `json:"idle_timeout_ms,omitempty"`
		TimeoutMS          int64 `json:"timeout_ms,omitempty"`
		CancelGraceMS      int64 `json:"cancel_grace_ms,omitempty"`
		LockDelayMS        int64 `json:"lock_delay_ms,omitempty"`
	}{
		policyFields(p), p.BackoffBase.millis(), p.BackoffCap.millis(), p.ScheduledTimeout.millis(),
		p.StartTimeout.millis(), p.RunTimeout.millis(), p.IdleTimeout.millis(), p.Timeout.millis(),
		p.CancelGrace.millis(), p.LockDelay.millis(),
	})
}

// MarshalJSON writes the TTL and the heartbeat also in milliseconds.
func (w Worker) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		workerFields
		TTLMS       int64 `json:"ttl_ms,omitempty"`
		HeartbeatMS int64 `json:"heartbeat_ms,omitempty"`
	}{workerFields(w), w.TTL.millis(), w.Heartbeat.millis()})
}

// MarshalJSON writes the TTL and the heartbeat also in milliseconds.
func (s Session) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		sessionFields
		TTLMS       int64 `json:"ttl_ms"`
		HeartbeatMS int64 `json:"heartbeat_ms"`
	}{sessionFields(s), s.TTL.millis(), s.Heartbeat.millis()})
}

// MarshalJSON writes the time of the rate also in milliseconds.
func (p GatePace) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		gatePaceFields
		PerMS int64 `json:"per_ms"`
	}{gatePaceFields(p), p.Per.millis()})
}

// MarshalJSON writes each duration of the terms also in milliseconds.
func (r GateResourceInfo) MarshalJSON() ([]byte, error) {
	type swapper struct {
		ResourceSwapper
		TimeoutMS int64 `json:"timeout_ms,omitempty"`
	}
	all := struct {
		gateResourceFields
		MinResidencyMS int64    `json:"min_residency_ms,omitempty"`
		MaxWaitMS      int64    `json:"max_wait_ms"`
		Swap           *swapper `json:"swap,omitempty"` // instead of the field of the terms
	}{gateResourceFields(r), r.MinResidency.millis(), r.MaxWait.millis(), nil}
	if s := r.Swap; s != nil {
		all.Swap = &swapper{*s, s.Timeout.millis()}
	}
	return json.Marshal(all)
}

// millis is the duration in whole milliseconds. A duration above zero is at least one millisecond,
// because 0 means that no duration is set.
func (d Duration) millis() int64 {
	if ms := d.D().Milliseconds(); ms != 0 || d <= 0 {
		return ms
	}
	return 1
}
